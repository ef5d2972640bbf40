"""Gradients under any policy are bitwise those without one, and each operator runs as often as the policy says."""

import collections
import gc
import random
import warnings
import weakref

import numpy
import pytest
import torch
from quincunx.activation import Policy, Rule, checkpoint, checkpoint_wrapper, counters
from torch import nn

ACTIONS = ("RECOMPUTE", "SAVE", "SWAP")


def mixes():
    for default in ACTIONS:
        yield f"all-{default}", [], default
    for products in ACTIONS:
        for others in ACTIONS:
            rules = [
                Rule(op="aten.*mm", action=products),
                Rule(op="aten.native_dropout", every_nth=2, action="SAVE"),
                Rule(op="aten.*", every_nth=3, action=others),
            ]
            yield f"{products}-{others}", rules, "RECOMPUTE"


@pytest.fixture(params=list(mixes()), ids=lambda mix: mix[0])
def policy(request):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield Policy(request.param[1], default=request.param[2])


class Block(nn.Module):
    """A Llama-style block with dropout, a batch norm, views and changes in place."""

    def __init__(self, width=16, heads=2):
        super().__init__()
        self.heads = heads
        self.norm, self.mlp_norm = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
        self.gate, self.up, self.down = nn.Linear(width, 24), nn.Linear(width, 24), nn.Linear(24, width)
        self.batch_norm = nn.BatchNorm1d(width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        h = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + nn.functional.dropout(self.out(h.transpose(1, 2).reshape(x.shape)), 0.2)
        h = self.mlp_norm(x)
        h = nn.functional.dropout(nn.functional.silu(self.gate(h)) * self.up(h), 0.1)
        h = self.down(h).mul_(1.5).clamp_(-2, 2)
        h[:, 0] += 1
        noise = random.random() + numpy.random.rand() + torch.randn(width)
        return x + self.batch_norm((h * noise).flatten(0, 1)).view_as(x)


def train(run, make=Block, num_steps=2):
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)
    blocks = nn.ModuleList([make(), make()])
    optimizer = torch.optim.SGD(blocks.parameters(), lr=0.1)
    trace = []
    for _ in range(num_steps):
        x = torch.randn(2, 5, 16, requires_grad=True)
        y = x
        for block in blocks:
            y = run(block, y)
        y.square().mean().backward()
        trace += [y.detach(), x.grad, *(p.grad.clone() for p in blocks.parameters())]
        optimizer.step()
        optimizer.zero_grad()
    trace += [*blocks.state_dict().values(), torch.rand(3), torch.tensor([random.random(), numpy.random.rand()])]
    return trace


def assert_same(got, plain):
    assert len(got) == len(plain)
    assert all(torch.equal(a, b) for a, b in zip(got, plain, strict=True))


def test_training_is_bitwise_that_without_checkpoints(policy):
    assert_same(train(lambda block, x: checkpoint(block, x, policy=policy)), train(lambda block, x: block(x)))


def test_all_blocks_in_one_region_and_regions_in_it(policy):
    def nested(block, x):
        return checkpoint(lambda t: checkpoint(block, t, policy=policy) * 1.0, x, policy=policy)

    assert_same(train(nested), train(lambda block, x: block(x) * 1.0))


def test_a_generator_given_to_an_operator_is_replayed(policy):
    def grad(run):
        generator = torch.Generator().manual_seed(3)
        x = torch.ones(32, requires_grad=True)
        y = run(lambda t: t.exp() * torch.rand(32, generator=generator) * torch.rand(32, generator=generator), x)
        after = torch.rand(1, generator=generator)
        y.sin().sum().backward()
        return x.grad, after, torch.rand(1, generator=generator)

    assert_same(grad(lambda fn, x: checkpoint(fn, x, policy=policy)), grad(lambda fn, x: fn(x)))


def test_second_derivatives_are_those_without_checkpoints(policy):
    def second(run):
        x = torch.linspace(0.1, 2, 9, dtype=torch.float64, requires_grad=True)
        y = run(lambda t: (t.sin() * t.exp()).tanh() * t, x)
        (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        return first.detach(), torch.autograd.grad(first.square().sum(), x)[0]

    assert_same(second(lambda fn, x: checkpoint(fn, x, policy=policy)), second(lambda fn, x: fn(x)))


@pytest.fixture(scope="module")
def counted():
    """Two operators that count their runs: y = 2 x."""
    runs = collections.Counter()

    def define(name):
        def twice(x: torch.Tensor) -> torch.Tensor:
            runs[name] += 1
            return x * 2

        operator = torch.library.custom_op(f"quincunx_test::{name}", twice, mutates_args=())
        operator.register_autograd(
            lambda ctx, grad: grad * 2 * ctx.saved_tensors[0] / ctx.saved_tensors[0],
            setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
        )
        return operator

    return runs, define("first"), define("second")


@pytest.mark.parametrize(("action", "num_runs"), [("RECOMPUTE", 2), ("SAVE", 1), ("SWAP", 1)])
def test_each_operator_runs_as_often_as_its_action_says(counted, action, num_runs):
    runs, first, second = counted
    runs.clear()
    policy = Policy([Rule(op="quincunx_test.first", action=action), Rule(op="quincunx_test.second", action="SAVE")])
    x = torch.ones(3, requires_grad=True)
    checkpoint(lambda t: second(first(t).sin()).exp().sin(), x, policy=policy).sum().backward()
    assert runs == {"first": num_runs, "second": 1}


def test_the_replay_stops_after_the_last_saved_tensor(counted):
    runs, first, second = counted
    runs.clear()
    x = torch.ones(3, requires_grad=True)

    def fn(t):
        y = first(t)
        z = y.sin()  # Saves y, the last tensor that backward wants.
        return z + second(z.detach())

    checkpoint(fn, x).sum().backward()
    assert runs == {"first": 2, "second": 1}


@pytest.mark.parametrize("action", ACTIONS)
def test_a_weight_changed_before_backward_is_named(action):
    linear = nn.Linear(4, 4)
    y = checkpoint(linear, torch.ones(2, 4, requires_grad=True), policy=Policy(default=action)).sum()
    with torch.no_grad():
        linear.weight.add_(1)
    with pytest.raises(RuntimeError, match=r"checkpoint: weight, used by aten::.*, was changed in place"):
        y.backward()


def test_an_argument_changed_before_backward_is_named():
    x, scale = torch.ones(3, requires_grad=True), torch.ones(3)
    y = checkpoint(lambda t, scale: (t * scale).sin(), x, scale=scale)
    scale.mul_(2)
    with pytest.raises(RuntimeError, match=r"argument scale, used by aten::mul \(Float \[3\]\), was changed in place"):
        y.sum().backward()


def test_a_tensor_changed_after_autograd_saved_it_is_named():
    def fn(t):
        a = t.exp()
        b = a.sin()
        a.add_(1)
        return b.cos()

    x = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"saved for backward \(Float \[3\]\) was changed in place"):
        checkpoint(fn, x).sum().backward()


def test_a_kept_result_changed_by_the_caller_is_named():
    x = torch.ones(3, requires_grad=True)
    y = checkpoint(lambda t: t.sin() * 1, x, policy=Policy(default="SAVE"))
    z = y.cos()
    with torch.no_grad():
        y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation|aten::mul .* was changed in place"):
        z.sum().backward()


def test_changing_an_argument_of_autograd_in_place_is_refused():
    x = torch.ones(3, requires_grad=True) * 1
    with pytest.raises(RuntimeError, match=r"aten::mul_ \(Float \[3\]\) changes in place a tensor from outside"):
        checkpoint(lambda t: t.mul_(2), x)
    assert torch.equal(x, torch.ones(3))


def test_an_exception_in_the_forward_leaves_no_region_behind():
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(ZeroDivisionError):
        checkpoint(lambda t: t.sin() * (1 // 0), x)
    inspected = counters()["inspected"]
    x.sin()
    assert counters()["inspected"] == inspected


def test_an_exception_in_the_replay_reaches_the_caller_and_can_be_retried():
    fails = []

    def fn(t):
        y = t.sin().exp()
        if fails:
            raise OSError("no such luck")
        return y.cos()

    x = torch.ones(3, requires_grad=True)
    y = checkpoint(fn, x).sum()
    state = torch.get_rng_state()
    fails.append(True)
    with pytest.raises(OSError, match="no such luck"):
        y.backward(retain_graph=True)
    assert torch.equal(torch.get_rng_state(), state)
    fails.clear()
    y.backward()
    assert torch.equal(x.grad, torch.autograd.grad(fn(x).sum(), x)[0])


def test_a_function_that_does_something_else_in_the_replay_is_refused():
    num_runs = []

    def fn(t):
        num_runs.append(1)
        return t.sin() if len(num_runs) == 1 else t[:1].sin()

    y = checkpoint(fn, torch.ones(3, requires_grad=True)).sum()
    with pytest.raises(RuntimeError, match=r"was Float \[3\] in the forward and is Float \[1\] in the replay"):
        y.backward()


def test_backward_in_a_region_through_itself_is_refused():
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(NotImplementedError, match="whose forward has not ended"):
        checkpoint(lambda t: torch.autograd.grad(t.exp().sum(), t, create_graph=True)[0], x)


def test_nothing_leaks_over_200_iterations():
    policy = Policy([Rule(op="aten.sin", action="SAVE"), Rule(op="aten.exp", action="SWAP")])
    x = torch.ones(64, requires_grad=True)
    alive = []
    for i in range(200):
        y = checkpoint(lambda t: t.sin().exp().cos().tanh(), x, policy=policy)
        if i % 2:  # The other half of the graphs is dropped without a backward.
            y.sum().backward()
        alive.append(weakref.ref(y))
        del y
    gc.collect()
    assert not any(ref() is not None for ref in alive)
    assert policy.arena.used_bytes == 0


def test_without_gradients_the_function_is_just_called():
    before = counters()["regions"]
    with torch.no_grad():
        assert checkpoint(torch.sin, torch.zeros(2)).sum() == 0
    assert counters()["regions"] == before


def test_a_wrapped_module_keeps_its_names_and_class():
    plain, wrapped = Block(), Block()
    assert checkpoint_wrapper(wrapped, {"default": "SAVE"}) is wrapped
    assert isinstance(wrapped, Block)
    assert list(wrapped.state_dict()) == list(plain.state_dict())
    assert_same(train(lambda block, x: block(x), lambda: checkpoint_wrapper(Block())), train(lambda block, x: block(x)))
    with pytest.raises(ValueError, match="module Block is already checkpointed"):
        checkpoint_wrapper(wrapped)
    with pytest.raises(ValueError, match="module is 3; expected"):
        checkpoint_wrapper(3)


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="fn is 3; expected a callable"):
        checkpoint(3)
    with pytest.raises(ValueError, match="policy is 'SAVE'; expected a Policy, a dict, a callable or None"):
        checkpoint(torch.sin, torch.zeros(1), policy="SAVE")
