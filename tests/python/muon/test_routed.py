"""quincunx.muon.routed: two families behind one optimizer."""

import copy
import io

import pytest
import torch
from muon.reference import random_matrix
from quincunx.muon import Muon, build_optimizer
from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

MUON = {"lr": 0.05, "weight_decay": 0.2}
ADAMW = {"lr": 3e-3, "weight_decay": 0.01}


def build() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 7))


def backward(model: nn.Module, step: int) -> torch.Tensor:
    tokens = torch.randint(7, (5,), generator=torch.Generator().manual_seed(step))
    loss = nn.functional.cross_entropy(model(tokens), tokens.roll(1))
    loss.backward()
    return loss


def train(model: nn.Module, optimizers: list, steps: range) -> None:
    for step in steps:
        for optimizer in optimizers:
            optimizer.zero_grad()
        backward(model, step)
        for optimizer in optimizers:
            optimizer.step()


def assert_equal(a: nn.Module, b: nn.Module) -> None:
    for p, q in zip(a.parameters(), b.parameters(), strict=True):
        assert torch.equal(p, q)


@pytest.mark.parametrize("options", [{}, {"amsgrad": True}, {"foreach": True}, {"fused": True}])
def test_equals_the_two_optimizers_bitwise(options):
    model, twin = build(), build()
    one = build_optimizer(model, muon=MUON, adamw=ADAMW | options)
    hidden = [twin[1].weight]
    others = [p for p in twin.parameters() if p is not twin[1].weight]
    train(model, [one], range(4))
    train(twin, [Muon(hidden, **MUON), torch.optim.AdamW(others, **(ADAMW | options))], range(4))
    assert_equal(model, twin)


def test_closure_is_called_once():
    model = build()
    optimizer = build_optimizer(model)
    calls = []

    def closure():
        calls.append(None)
        return backward(model, 0)

    assert optimizer.step(closure).item() > 0
    assert len(calls) == 1


def test_schedulers_set_both_rates():
    model = build()
    optimizer = build_optimizer(model, muon=MUON, adamw=ADAMW)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.0)
    before = copy.deepcopy(model)
    train(model, [optimizer], range(2))
    assert_equal(model, before)
    scheduler.step()
    assert [g["lr"] for g in optimizer.param_groups] == [0.0, 0.0]
    assert {g["family"] for g in optimizer.param_groups} == {"muon", "adamw"}


def test_state_exists_before_the_first_step():
    model = build()
    optimizer = build_optimizer(model)
    assert set(optimizer.state) == set(model.parameters())
    keys = {tuple(sorted(state)) for state in optimizer.state.values()}
    assert keys == {("momentum_buffer",), ("exp_avg", "exp_avg_sq", "step")}


def test_grad_scaler_skips_infinite_gradients():
    model = build()
    optimizer = build_optimizer(model)
    scaler = torch.amp.GradScaler("cpu")
    before = copy.deepcopy(model)
    scaler.scale(backward(model, 0).detach().requires_grad_())
    model[1].weight.grad.fill_(torch.inf)
    scaler.step(optimizer)
    assert_equal(model, before)


@pytest.mark.parametrize("is_distributed_form", [False, True])
@pytest.mark.parametrize("options", [{}, {"amsgrad": True}])
def test_resume_is_bitwise(is_distributed_form, options):
    model = build()
    optimizer = build_optimizer(model, muon=MUON, adamw=ADAMW | options)
    train(model, [optimizer], range(3))
    resumed = copy.deepcopy(model)
    other = build_optimizer(resumed, adamw=options)
    if is_distributed_form:
        state = copy.deepcopy(get_optimizer_state_dict(model, optimizer))
        assert set(state["state"]["1.weight"]) == {"momentum_buffer"}
        set_optimizer_state_dict(resumed, other, state)
    else:
        other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    train(model, [optimizer], range(3, 6))
    train(resumed, [other], range(3, 6))
    assert_equal(model, resumed)
    assert [g["lr"] for g in other.param_groups] == [MUON["lr"], ADAMW["lr"]]


def pickled(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


@pytest.mark.parametrize("copied", [copy.deepcopy, pickled])
def test_copies_step_their_own_parameters(copied):
    model = build()
    optimizer = build_optimizer(model, muon=MUON, adamw=ADAMW)
    train(model, [optimizer], range(2))
    twin, twin_optimizer = copied((model, optimizer))
    train(model, [optimizer], range(2, 4))
    train(twin, [twin_optimizer], range(2, 4))
    assert_equal(model, twin)
    assert twin_optimizer.counters == optimizer.counters
    assert twin_optimizer.explain() == optimizer.explain()


def test_state_of_other_routes_is_refused():
    state = build_optimizer(build(), overrides={"1.weight": "adamw"}).state_dict()
    with pytest.raises(ValueError, match="routed differently"):
        build_optimizer(build()).load_state_dict(state)


def test_groups_cannot_be_added():
    with pytest.raises(ValueError, match="add_param_group"):
        build_optimizer(build()).add_param_group({"params": [nn.Parameter(torch.zeros(2, 2))]})


def test_one_family_alone_works():
    matrix = nn.Linear(4, 6, bias=False)
    optimizer = build_optimizer(matrix, adamw=None)
    matrix.weight.grad = random_matrix(6, 4)
    optimizer.step()
    assert optimizer.counters["matrices_orthogonalized"] == 1
    norm = nn.LayerNorm(4)
    optimizer = build_optimizer(norm, muon=None)
    norm.weight.grad = torch.ones(4)
    optimizer.step()
    assert optimizer.counters == {}
    assert optimizer.timeline is None


def test_explain_lists_every_parameter():
    model = build()
    text = build_optimizer(model).explain()
    for name, _ in model.named_parameters():
        assert name in text
    lines = {line.split()[0]: line for line in text.splitlines()}
    assert "hidden matrix" in lines["1.weight"] and "direct" in lines["1.weight"]
    assert "embedding" in lines["0.weight"]


def test_timeline_is_passed_on():
    model, events = build(), []
    optimizer = build_optimizer(model)
    optimizer.timeline = lambda *event: events.append(event)
    train(model, [optimizer], range(1))
    assert "newton_schulz" in {event[0] for event in events}
    assert optimizer.timeline is not None
