"""quincunx.muon.parameter: momenta and states that do not fit are refused by name, before anything changes."""

import copy

import pytest
import torch
from quincunx.muon import Muon, build_optimizer
from torch import nn


def stepped(*shapes: tuple[int, ...]) -> tuple[list[nn.Parameter], Muon]:
    params = [nn.Parameter(torch.randn(shape)) for shape in shapes]
    optimizer = Muon([(f"layer{i}", p) for i, p in enumerate(params)])
    for param in params:
        param.grad = torch.randn_like(param)
    optimizer.step()
    return params, optimizer


def test_a_state_in_another_order_is_refused_and_changes_nothing():
    _, saved = stepped((4, 5), (6, 7))
    params, optimizer = stepped((6, 7), (4, 5))
    before = [optimizer.state[p]["momentum_buffer"].clone() for p in params]
    with pytest.raises(ValueError, match=r"parameter layer0: momentum_buffer .* shape \(6, 7\), got \(4, 5\)"):
        optimizer.load_state_dict(saved.state_dict())
    assert all(torch.equal(optimizer.state[p]["momentum_buffer"], m) for p, m in zip(params, before, strict=True))
    optimizer.step()


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [("lr", -1.0, "lr: must be finite"), ("ns_steps", 0, "ns_steps: must be in"), ("adjust_lr_fn", "x", "adjust_lr")],
)
def test_a_state_with_bad_options_is_refused_and_changes_nothing(option, value, message):
    _, optimizer = stepped((4, 5))
    state = copy.deepcopy(optimizer.state_dict())
    state["param_groups"][0][option] = value
    with pytest.raises(ValueError, match=message):
        optimizer.load_state_dict(state)
    assert optimizer.param_groups[0][option] != value


def test_a_momentum_that_is_no_tensor_is_refused():
    _, optimizer = stepped((4, 5))
    state = optimizer.state_dict()
    state["state"] = {0: {"momentum_buffer": 1.0}}
    with pytest.raises(ValueError, match="parameter layer0: momentum_buffer .* got 1.0"):
        optimizer.load_state_dict(state)


def test_routed_states_are_checked_too():
    def model(*widths: int) -> nn.Module:
        return nn.Sequential(*(nn.Linear(a, b) for a, b in zip(widths, widths[1:], strict=False)))

    optimizer = build_optimizer(model(4, 5, 6))
    with pytest.raises(ValueError, match="parameter 0.weight: momentum_buffer"):
        optimizer.load_state_dict(build_optimizer(model(3, 5, 6)).state_dict())


def test_a_plain_momentum_for_a_sharded_parameter_is_refused(run_ranks):
    def body(rank: int, world: int) -> str:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Replicate, Shard, distribute_tensor

        mesh = init_device_mesh("cpu", (world,))
        param = nn.Parameter(distribute_tensor(torch.randn(4, 5), mesh, [Shard(0)]))
        optimizer = Muon([("layer", param)])
        refused = 0
        for momentum in (torch.zeros(4, 5), distribute_tensor(torch.zeros(4, 5), mesh, [Replicate()])):
            state = optimizer.state_dict()
            state["state"] = {0: {"momentum_buffer": momentum}}
            with pytest.raises(ValueError, match="parameter layer: .* expected the sharding of the parameter"):
                optimizer.load_state_dict(state)
            refused += 1
        return refused

    assert run_ranks(2, body) == [2, 2]
