"""Policies are checked when they are made, and decide by operator, module, dtype, size and count."""

import copy
import warnings

import pytest
import torch
from quincunx.activation import Action, Policy, Rule, checkpoint, checkpoint_wrapper, counters
from torch import nn


def kept(policy, fn, action="saved"):
    """How many results the region of fn keeps."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = counters()[action]
        checkpoint(fn, x(), policy=policy).sum().backward()
        return counters()[action] - before


def x():
    return torch.ones(4, 4, requires_grad=True)


@pytest.mark.parametrize("op", ["aten.mm", "aten.mm.default", "aten.m?", "aten.*", torch.ops.aten.mm])
def test_an_operator_is_named_in_several_ways(op):
    assert kept(Policy([Rule(op=op, action="SAVE")]), lambda t: t @ t) == 1


def test_a_name_without_an_overload_means_all_overloads():
    policy = Policy([Rule(op="aten.add", action=Action.SAVE)])
    assert kept(policy, lambda t: torch.add(t + 1, t)) == 2
    assert kept(Policy([Rule(op="aten.add.out", action="SAVE")]), lambda t: t + t) == 0


def test_the_first_rule_that_applies_decides():
    rules = [Rule(op="aten.sin", action="RECOMPUTE"), Rule(action="SAVE")]
    assert kept(Policy(rules), lambda t: t.sin().cos()) == 1


def test_dtype_size_and_count_are_conditions():
    assert kept(Policy([Rule(dtype="float64", action="SAVE")]), lambda t: (t * 1).double().sin()) == 2
    assert kept(Policy([Rule(op="aten.sin", min_bytes=65, action="SAVE")]), lambda t: t.sin()) == 0
    assert kept(Policy([Rule(op="aten.sin", min_bytes=64, action="SAVE")]), lambda t: t.sin()) == 1
    every_second = Policy([Rule(op="aten.sin", every_nth=2, action="SAVE")])
    assert kept(every_second, lambda t: t.sin().sin().sin().sin().sin()) == 2


def test_a_module_path_is_a_condition():
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)))
    assert kept(Policy([Rule(op="aten.addmm", module="1", action="SAVE")]), model) == 2
    assert kept(Policy([Rule(op="aten.addmm", module="1.*", action="SAVE")]), model) == 2
    assert kept(Policy([Rule(op="aten.addmm", module="0", action="SAVE")]), model) == 1
    assert kept(Policy([Rule(op="aten.addmm", module="", action="SAVE")]), model) == 3
    assert kept(Policy([Rule(op="aten.addmm", module="2", action="SAVE")]), model) == 0
    with pytest.raises(ValueError, match="module is '0', but what is checkpointed is no torch.nn.Module"):
        checkpoint(torch.sin, x(), policy=Policy([Rule(module="0", action="SAVE")]))


def test_a_dict_says_the_same():
    data = {"rules": [{"op": "aten.mm", "action": "SAVE"}], "default": "SWAP", "swap": {"budget_bytes": 1 << 20}}
    policy = Policy.from_dict(data)
    assert policy.rules == [Rule(op="aten.mm", action=Action.SAVE)]
    assert (policy.default, policy.arena.budget_bytes) == (Action.SWAP, 1 << 20)
    assert kept(data, lambda t: (t @ t).sin(), action="swapped") == 1


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"rulez": []}, "policy has the unknown key 'rulez'"),
        ({"rules": [{"ops": "aten.mm", "action": "SAVE"}]}, "rule has the unknown key 'ops'"),
        ({"rules": [{"op": "aten.mmm", "action": "SAVE"}]}, "op is 'aten.mmm', which no registered operator matches"),
        ({"rules": [{"op": 3, "action": "SAVE"}]}, "op is 3; expected a name"),
        ({"rules": [{"op": "aten.mm", "action": "save"}]}, "action is 'save'; expected one of SAVE, RECOMPUTE, SWAP"),
        ({"rules": [{"op": "aten.mm"}]}, "has no action"),
        ({"rules": [{"action": "SAVE", "dtype": "float33"}]}, "dtype is 'float33'"),
        ({"rules": [{"action": "SAVE", "module": 1}]}, "module is 1"),
        ({"rules": [{"action": "SAVE", "min_bytes": -1}]}, "min_bytes is -1; expected an integer of at least 0"),
        ({"rules": [{"action": "SAVE", "every_nth": 0}]}, "every_nth is 0; expected an integer of at least 1"),
        ({"rules": ["SAVE"]}, "rule is 'SAVE'"),
        ({"default": "KEEP"}, "action is 'KEEP'"),
        ({"swap": {"budget": 1}}, "swap has the unknown key 'budget'"),
        ({"rules": [{"action": "SAVE", "min_bytes": 1 << 63}]}, "min_bytes is 9223372036854775808; expected"),
        ({"rules": None}, "rules is None; expected a list of rules"),
        ({"rules": {"op": "aten.mm", "action": "SAVE"}}, "rules is .*; expected a list of rules"),
        ({"swap": "/tmp"}, "swap is '/tmp'; expected a dict"),
        ({"swap": {"budget_bytes": "16G"}}, "budget_bytes is '16G'; expected more than 0"),
        ({"swap": {"budget_bytes": True}}, "budget_bytes is True; expected more than 0"),
        ({"swap": {"budget_bytes": 1 << 63}}, "budget_bytes is 9223372036854775808; expected"),
        ({"swap": {"directory": 3}}, "directory is 3; expected the path of a folder"),
        ({"swap": {"budget_bytes": 0}}, "budget_bytes is 0; expected more than 0"),
        ({"swap": {"directory": "/nowhere/at/all"}}, "directory is '/nowhere/at/all'"),
        ([], "policy is \\[\\]"),
    ],
)
def test_bad_policies_are_refused_by_name(data, message):
    with pytest.raises(ValueError, match=message):
        Policy.from_dict(data)


def test_an_arena_is_one():
    with pytest.raises(ValueError, match="arena is 3; expected what swap_arena"):
        Policy(default="SWAP", arena=3)


def test_a_copied_module_shares_its_policy_and_no_weights():
    """As an average of weights copies the model that trains."""
    model = checkpoint_wrapper(nn.Linear(4, 4), {"default": "SWAP", "swap": {"budget_bytes": 1 << 20}})
    model(x()).sum().backward()
    copied = copy.deepcopy(model)
    with torch.no_grad():
        copied.weight.zero_()
        copied.bias.fill_(3)
    assert torch.equal(copied(x()), torch.full((4, 4), 3.0))
    assert copied._quincunx_policy.arena is model._quincunx_policy.arena


def test_a_rule_that_never_matched_is_reported_once():
    policy = Policy([Rule(op="aten.linear", action="SAVE"), Rule(op="aten.mm", action="SAVE")])
    with pytest.warns(UserWarning, match="aten.linear is composed of other operators") as warned:
        checkpoint(lambda t: (t @ t).sum(), x(), policy=policy).backward()
        checkpoint(lambda t: (t @ t).sum(), x(), policy=policy).backward()
    assert len(warned) == 1
    assert policy.unmatched() == [policy.rules[0]]
