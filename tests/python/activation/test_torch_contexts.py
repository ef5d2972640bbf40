"""torch.utils.checkpoint under our policies, and our regions under torch's contexts."""

import contextlib
import functools

import pytest
import torch
from quincunx.activation import Policy, Rule, checkpoint, context_fn, counters
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts
from torch.utils.checkpoint import checkpoint as torch_checkpoint


def fn(t):
    return torch.nn.functional.dropout((t @ t).sin().exp() * t, 0.3).cos()


def grad(run):
    torch.manual_seed(0)
    x = torch.randn(6, 6, requires_grad=True)
    (result,) = torch.autograd.grad(run(x).sum(), x)
    return result


@pytest.mark.parametrize("policy", [Policy(), Policy(default="SAVE"), Policy(default="SWAP"), lambda call: "SAVE"])
def test_torch_checkpoint_takes_our_policy(policy):
    given = context_fn(policy)
    got = grad(lambda x: torch_checkpoint(fn, x, use_reentrant=False, context_fn=given))
    assert torch.equal(got, grad(fn))


def test_what_the_policy_keeps_is_answered_in_the_replay_of_torch():
    given = context_fn({"rules": [{"op": "aten.mm", "action": "SAVE"}, {"op": "aten.exp", "action": "SWAP"}]})
    before = counters()
    x = torch.randn(6, 6, requires_grad=True)
    y = torch_checkpoint(fn, x, use_reentrant=False, context_fn=given)
    first = torch.autograd.grad(y.sum(), x, retain_graph=True)[0]
    second = torch.autograd.grad(y.sum(), x)[0]
    assert torch.equal(first, second)
    after = counters()
    assert after["saved"] - before["saved"] == 1
    assert after["swapped"] - before["swapped"] == 1
    assert after["answered"] - before["answered"] >= 2


def test_a_changed_tensor_and_a_failing_forward_are_noticed():
    given = context_fn(Policy([Rule(op="aten.mul", action="SAVE")]))
    x, scale = torch.ones(3, requires_grad=True), torch.ones(3)
    y = torch_checkpoint(lambda t: (t * scale).sin().exp(), x, use_reentrant=False, context_fn=given)
    scale.mul_(2)
    with pytest.raises(RuntimeError, match="a tensor from outside of the region, used by aten::mul .* was changed"):
        y.sum().backward()
    with pytest.raises(ZeroDivisionError):
        torch_checkpoint(lambda t: t.sin() * (1 // 0), x, use_reentrant=False, context_fn=given)
    inspected = counters()["inspected"]
    x.sin()
    assert counters()["inspected"] == inspected


def test_our_region_takes_the_contexts_of_torch():
    def decide(ctx, op, *args, **kwargs):
        return CheckpointPolicy.MUST_SAVE if op is torch.ops.aten.mm.default else CheckpointPolicy.PREFER_RECOMPUTE

    theirs = functools.partial(create_selective_checkpoint_contexts, decide)
    got = grad(lambda x: checkpoint(fn, x, context_fn=theirs))
    assert torch.equal(got, grad(fn))


def test_the_first_context_is_around_the_forward_and_the_second_around_the_replay():
    seen = []

    @contextlib.contextmanager
    def noted(name):
        seen.append(name)
        try:
            yield
        finally:  # A replay ends by an exception of its own.
            seen.append(f"end of {name}")

    x = torch.ones(3, requires_grad=True)
    y = checkpoint(
        lambda t: seen.append("fn") or t.sin().exp(), x, context_fn=lambda: (noted("first"), noted("second"))
    )
    assert seen == ["first", "fn", "end of first"]
    y.sum().backward()
    assert seen[3:] == ["second", "fn", "end of second"]


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="policy is 3; expected"):
        context_fn(3)
    with pytest.raises(ValueError, match="module is 'a', but what is checkpointed is no torch.nn.Module"):
        context_fn(Policy([Rule(module="a", action="SAVE")]))
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(NotImplementedError, match="context_fn is given in a region"):
        checkpoint(lambda t: checkpoint(torch.sin, t, context_fn=context_fn(Policy())), x)
