"""Faults that were reported of other Muon implementations."""

import pytest
import torch
from muon.reference import CLASSIC, NEWTON_SCHULZ_ERROR, Reference, newton_schulz, random_matrix, relative_error
from quincunx.muon import Muon
from torch import nn

TRIPLES = [CLASSIC] * 5


def step(grad: torch.Tensor) -> torch.Tensor:
    """One step from zero, without momentum and decay, at a rate of one: minus the scaled orthogonal factor."""
    param = nn.Parameter(torch.zeros_like(grad))
    optimizer = Muon(
        [param], lr=1.0, weight_decay=0.0, momentum=0.0, nesterov=False, coefficients="classic", adjust_lr_fn="original"
    )
    param.grad = grad.clone(memory_format=torch.preserve_format)
    optimizer.step()
    return param.detach()


# microsoft/dion#24 and MoonshotAI/Moonlight#27: 0/0 and overflow of the norm.
@pytest.mark.parametrize("scale", [1e-38, 1e-30, 1e-6, 1.0, 1e6, 1e18, 1e25, 1e30, 1e37])
def test_the_update_does_not_depend_on_the_scale_of_the_gradient(scale):
    grad = random_matrix(8, 5)
    expected = -newton_schulz((grad * scale).double() / scale, TRIPLES) * (8 / 5) ** 0.5
    # The smallest scale is denormal and has few bits left: its own rounded values are the input of the reference.
    assert relative_error(step(grad * scale), expected) < NEWTON_SCHULZ_ERROR


def test_zero_gradients_give_zero_updates():
    assert not step(torch.zeros(8, 5)).any()


def test_half_zero_gradients_leave_the_zero_rows_alone():
    update = step(torch.cat([random_matrix(4, 5), torch.zeros(4, 5)]))
    assert update.isfinite().all()
    assert not update[4:].any()


def test_rank_one_gradients_keep_their_direction():
    u, v = random_matrix(8, 1), random_matrix(1, 5, seed=1)
    update = step(u @ v).double()
    expected = -newton_schulz(u.double() @ v.double(), TRIPLES) * (8 / 5) ** 0.5
    assert relative_error(update, expected) < NEWTON_SCHULZ_ERROR


# huggingface/lerobot#4658 and mindspore-ai/hyper-parallel#262: experts mixed with each other.
@pytest.mark.parametrize(
    "grad",
    [
        random_matrix(3, 24, 40) * torch.tensor([1.0, 1e-3, 50.0]).view(3, 1, 1),
        random_matrix(3, 24, 40).mT.contiguous().mT,
        random_matrix(1, 16, 4),
        random_matrix(2, 3, 8, 8),
    ],
)
def test_each_expert_is_orthogonalised_on_its_own(grad):
    rows, columns = grad.shape[-2:]
    update = step(grad)
    for one, matrix in zip(update.reshape(-1, rows, columns), grad.reshape(-1, rows, columns), strict=True):
        expected = -newton_schulz(matrix, TRIPLES) * max(1, rows / columns) ** 0.5
        assert relative_error(one, expected) < NEWTON_SCHULZ_ERROR


# kozistr/pytorch_optimizer#408: the scale rule of tall and wide matrices, and decay by the unscaled rate.
@pytest.mark.parametrize("shape", [(64, 16), (16, 64)])
@pytest.mark.parametrize(("adjust_lr_fn", "match_rms"), [("original", None), ("match_rms_adamw", 0.2)])
def test_scale_rule_and_decoupled_decay(shape, adjust_lr_fn, match_rms):
    param = nn.Parameter(random_matrix(*shape, seed=1))
    options = {"lr": 0.1, "weight_decay": 0.3, "momentum": 0.0, "nesterov": False}
    reference = Reference(param, **options, triples=TRIPLES, match_rms=match_rms)
    optimizer = Muon([param], **options, coefficients="classic", adjust_lr_fn=adjust_lr_fn)
    param.grad = random_matrix(*shape)
    reference.step(param.grad)
    optimizer.step()
    assert relative_error(param, reference.value) < NEWTON_SCHULZ_ERROR


# deepspeedai/DeepSpeed#8443 and #8600 (momentum advanced once a micro-batch) are
# test_fsdp_with_accumulation_equals_one_big_batch in test_distributed.py.
