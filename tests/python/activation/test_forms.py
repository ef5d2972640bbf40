"""Regions by decorator, policies by context manager, from YAML and by a function."""

import warnings

import pytest
import torch
from quincunx.activation import (
    Action,
    Policy,
    Rule,
    checkpoint,
    checkpoint_wrapper,
    checkpointed,
    counters,
    default_policy,
)
from torch import nn


def kept(run):
    before = counters()["saved"]
    run()
    return counters()["saved"] - before


def test_a_decorated_function_is_a_region_with_its_name():
    @checkpointed
    def plain(t, *, power):
        "Its words."
        return t.sin() ** power

    @checkpointed(policy={"default": "SAVE"})
    def saving(t):
        return t.sin().exp()

    class Block(nn.Module):
        @checkpointed(policy=Policy([Rule(op="aten.sin", action="SAVE")]))
        def forward(self, t):
            return t.sin().exp()

    x = torch.ones(3, requires_grad=True)
    assert (plain.__name__, plain.__doc__) == ("plain", "Its words.")
    regions = counters()["regions"]
    (got,) = torch.autograd.grad(plain(x, power=2).sum(), x)
    assert torch.equal(got, torch.autograd.grad((x.sin() ** 2).sum(), x)[0])
    assert kept(lambda: saving(x).sum().backward()) == 2
    assert kept(lambda: Block()(x).sum().backward()) == 1
    assert counters()["regions"] == regions + 3
    with pytest.raises(ValueError, match="fn is 3; expected a callable"):
        checkpointed(3)
    with pytest.raises(ValueError, match="policy is 3; expected"):
        checkpointed(policy=3)(torch.sin)


def test_a_default_policy_holds_in_its_block_where_none_is_given():
    x = torch.ones(3, requires_grad=True)
    wrapped = checkpoint_wrapper(nn.Sequential(nn.Tanh()))

    def run(**options):
        checkpoint(lambda t: t.sin().exp(), x, **options).sum().backward()

    with default_policy({"default": "SAVE"}) as policy:
        assert policy.default is Action.SAVE
        assert kept(run) == 2
        assert kept(lambda: run(policy=Policy())) == 0
        assert kept(lambda: wrapped(x)) == 1
        with default_policy(Policy()):
            assert kept(run) == 0
        assert kept(run) == 2
    assert kept(run) == 0
    with pytest.raises(ValueError, match="policy is 3; expected"), default_policy(3):
        pass


def test_a_policy_is_read_from_yaml(tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text(
        "rules:\n- {op: aten.mm, action: SAVE}\n- {op: aten.*, min_bytes: 4096, action: SWAP}\n"
        "default: RECOMPUTE\nswap: {budget_bytes: 1048576}\n"
    )
    policy = Policy.from_yaml(path)
    assert policy.rules == [Rule(op="aten.mm", action="SAVE"), Rule(op="aten.*", min_bytes=4096, action="SWAP")]
    assert (policy.default, policy.arena.budget_bytes) == (Action.RECOMPUTE, 1 << 20)
    for text, message in (
        ("rules: [", "cannot be read as YAML"),
        ("- 3", r"policy is \[3\]; expected a dict"),
        ("rulez: []", "unknown key 'rulez'"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=message):
            Policy.from_yaml(path)
    path.write_bytes(b"rules:\xff")
    with pytest.raises(ValueError, match=r"path is .*policy.yaml', which cannot be read as YAML: 'utf-8' codec"):
        Policy.from_yaml(path)
    with pytest.raises(ValueError, match=r"path is .*absent.yaml', which cannot be read"):
        Policy.from_yaml(tmp_path / "absent.yaml")


def test_a_function_decides_by_operator_and_module():
    calls = []

    def decide(call):
        calls.append((call.op, list(call.modules), call.dtype, list(call.shape), call.num_bytes))
        return "SAVE" if "0" in call.modules else Action.RECOMPUTE

    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    x = torch.ones(2, 4, requires_grad=True)
    assert kept(lambda: checkpoint(model, x, policy=decide).sum().backward()) == 1
    assert ("aten.addmm.default", ["", "0"], torch.float32, [2, 4], 32) in calls
    assert ("aten.tanh.default", ["", "1"], torch.float32, [2, 4], 32) in calls


def test_gradients_under_a_deciding_function_are_bitwise_the_same():
    actions = iter(["SAVE", "SWAP", "RECOMPUTE"] * 100)
    x = torch.randn(50, requires_grad=True)

    def fn(t):
        return (t.sin().exp() * torch.rand(50)).cos().tanh() * t

    torch.manual_seed(1)
    (plain,) = torch.autograd.grad(fn(x).sum(), x)
    torch.manual_seed(1)
    (got,) = torch.autograd.grad(checkpoint(fn, x, policy=lambda call: next(actions)).sum(), x)
    assert torch.equal(got, plain)


def test_a_function_that_decides_nothing_sensible_is_an_error_of_its_own():
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(ValueError, match="action is None; expected one of SAVE, RECOMPUTE, SWAP"):
        checkpoint(torch.sin, x, policy=lambda call: None)
    with pytest.raises(KeyError, match="absent"):
        checkpoint(torch.sin, x, policy=lambda call: {}["absent"])
    with pytest.raises(ValueError, match="decide is 3; expected a callable"):
        Policy.from_callable(3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checkpoint(torch.sin, x, policy=lambda call: "SAVE").sum().backward()
