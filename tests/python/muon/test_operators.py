"""The operators of quincunx/torch/muon called directly: what they refuse."""

import pytest
import torch
from quincunx._errors import core_errors

OPS = torch.ops.quincunx
HELD = torch.tensor([[0, 0, 2, 3, 0, 0, 3, -1, -1]])
REMOTE = torch.tensor([[0, 2, 3, 0, 3, 0, 0]])
FLAGS = torch.zeros(1, dtype=torch.int64)
PRESENT = torch.ones(1, dtype=torch.int64)
RULES = torch.tensor([[0.9, 1.0, 1.0, 0.1]], dtype=torch.float64)
EMPTY = torch.empty(0)


def pack(held=HELD, momentum=None, grad=None, present=PRESENT, rules=RULES, whole=None, flags=FLAGS):
    momentum = torch.zeros(2, 3) if momentum is None else momentum
    grad = torch.zeros(2, 3) if grad is None else grad
    OPS.muon_pack(held, [momentum], [grad], present, rules, EMPTY, torch.zeros(6) if whole is None else whole, flags)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"held": HELD[:, :8].contiguous()}, ValueError, "held: expected 9 columns"),
        ({"held": HELD.float()}, TypeError, "held"),
        ({"held": HELD.repeat(2, 2)[:, ::2]}, TypeError, "held: expected a contiguous"),
        ({"whole": torch.zeros(5)}, ValueError, "whole: a piece ends beyond its 5 elements"),
        ({"flags": FLAGS[:0]}, ValueError, "slot_flags: expected more than 0 elements"),
        ({"present": PRESENT[:0]}, ValueError, "has_grad"),
        ({"rules": RULES[:0]}, ValueError, "rules"),
        ({"momentum": torch.zeros(3, 2)}, ValueError, r"momenta\[0\]: expected a tensor that ends in 2 x 3"),
        ({"momentum": torch.zeros(2, 3, dtype=torch.float64)}, TypeError, r"momenta\[0\]: expected float32"),
        ({"momentum": torch.zeros(6)}, ValueError, r"momenta\[0\]"),
        ({"momentum": torch.zeros(0, 2, 3)}, ValueError, r"momenta\[0\]: .*it is empty"),
        ({"grad": torch.zeros(2, 3, dtype=torch.bfloat16)}, TypeError, "grads: expected the dtype of the momentum"),
        ({"held": torch.tensor([[0, 0, 2, -3, 0, 0, 3, -1, -1]])}, ValueError, "whole: a piece of 2 x -3"),
        ({"held": torch.tensor([[1, 0, 2, 3, 0, 0, 3, -1, -1]])}, ValueError, "has_grad: expected more than 1"),
        ({"held": torch.tensor([[0, 4, 2, 3, 0, 0, 3, -1, -1]])}, ValueError, "expected at least 5 matrices"),
        ({"held": torch.tensor([[0, 0, 2, 3, -1, -1, 0, 0, -1]])}, ValueError, "send: a piece ends beyond"),
    ],
)
def test_pack_refuses(arguments, error, message):
    with pytest.raises(error, match=message), core_errors():
        pack(**arguments)


def test_unpack_and_reply_refuse_pieces_beyond_their_buffers():
    with pytest.raises(ValueError, match="receive: a piece ends beyond"), core_errors():
        OPS.muon_unpack(REMOTE, torch.zeros(6), torch.zeros(6), FLAGS.clone())
    with pytest.raises(ValueError, match="whole: a piece ends beyond"), core_errors():
        OPS.muon_unpack(REMOTE, torch.zeros(7), torch.zeros(5), FLAGS.clone())
    with pytest.raises(ValueError, match="reply: a piece ends beyond"), core_errors():
        OPS.muon_reply(REMOTE, torch.zeros(6), FLAGS, torch.zeros(6))


def test_apply_refuses_a_reply_that_is_too_short():
    held = torch.tensor([[0, 0, 2, 3, -1, -1, 0, 0, 0]])
    with pytest.raises(ValueError, match="reply: a piece ends beyond"), core_errors():
        matrices = [torch.zeros(2, 3)]
        OPS.muon_apply(held, matrices, matrices, matrices, PRESENT, RULES, torch.zeros(6), EMPTY, FLAGS)


def test_orthogonalize_refuses_mismatched_flags_and_coefficients():
    for batch, coefficients in ((torch.zeros(2, 2, 3), torch.ones(1, 3)), (torch.zeros(1, 2, 3), torch.ones(2, 2))):
        with pytest.raises(ValueError, match="batch"), core_errors():
            OPS.muon_orthogonalize(batch, FLAGS, coefficients, 1e-7)
    with pytest.raises(ValueError, match="eps"), core_errors():
        OPS.muon_orthogonalize(torch.zeros(1, 2, 3), torch.ones(1, dtype=torch.int64), torch.ones(1, 3), -1.0)


def test_plan_refuses_tables_that_do_not_fit():
    box = torch.tensor([[0, 1, 0, 2, 0, 3, 0]])
    shape = torch.tensor([[1, 2, 3, 5, 0]])
    for names, shapes, boxes in (([], shape, box), (["w"], shape, box.repeat(2, 1)), (["w"], shape[:, :4], box)):
        with pytest.raises((ValueError, TypeError), match="shapes"), core_errors():
            OPS.muon_plan(names, shapes, boxes, 1, 0, 0, 1)
    with pytest.raises(ValueError, match="rank: must be in"), core_errors():
        OPS.muon_plan(["w"], shape, box, 1, 1, 0, 1)


def test_errors_without_a_code_stay_as_they_are():
    with pytest.raises(RuntimeError, match="something: else"), core_errors():
        raise RuntimeError("something: else")
