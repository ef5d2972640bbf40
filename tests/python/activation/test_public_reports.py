"""Inputs of the kind that public reports about checkpointing name, each against a run without it."""

import warnings

import pytest
import torch
from quincunx.activation import Policy, Rule, checkpoint
from torch import nn

POLICIES = {
    "recompute": lambda: None,
    "selective": lambda: Policy([Rule(op=name, action="SAVE") for name in ("aten.mm", "aten.addmm")]),
    "save": lambda: Policy(default="SAVE"),
    "swap": lambda: Policy(default="SWAP"),
    "mixed": lambda: Policy(
        [Rule(op="aten.*", every_nth=3, action="SWAP"), Rule(op="aten.*", every_nth=2, action="SAVE")]
    ),
}


@pytest.fixture(params=POLICIES)
def policy(request):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield POLICIES[request.param]()


class StridesSeen(torch.autograd.Function):
    seen: list = []

    @staticmethod
    def forward(ctx, t):
        ctx.save_for_backward(t.mT)
        ctx.strides = t.mT.stride()
        return t * 1.0

    @staticmethod
    def backward(ctx, grad):
        StridesSeen.seen.append(ctx.saved_tensors[0].stride() == ctx.strides)
        return grad


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("size", [4, 5, 17])
def test_views_of_one_storage_come_back_as_they_were(policy, dtype, size):
    def fn(t):
        a = t.view(size, size)
        b, c, row, stepped = a.mT, a[1:3], t[:size].expand(5, size), t[::3]
        products = (a @ b).sin().sum() + (b @ b).cos().sum() + (c @ b).tanh().sum()
        return products + (row * row.sin()).sum() + (stepped * stepped.exp()).sum() + StridesSeen.apply(a).sum()

    t = torch.randn(size * size, generator=torch.Generator().manual_seed(4)).to(dtype).requires_grad_()
    (plain,) = torch.autograd.grad(fn(t), t)
    StridesSeen.seen.clear()
    (got,) = torch.autograd.grad(checkpoint(fn, t, policy=policy), t)
    assert torch.equal(got, plain)
    assert StridesSeen.seen == [True]


@pytest.mark.parametrize("momentum", [0.1, None])
def test_running_statistics_are_counted_once(policy, momentum):
    def train(run):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, momentum=momentum), nn.Tanh())
        x = (torch.randn(16, 4) + 2).requires_grad_()
        # Two microbatches: the second changes the statistics before the first is replayed.
        first, second = run(model, x), run(model, x * 2)
        (first.sum() + second.sum()).backward()
        return [*model.state_dict().values(), *(p.grad for p in model.parameters()), x.grad]

    plain = train(lambda model, x: model(x))
    got = train(lambda model, x: checkpoint(model, x, policy=policy))
    assert all(torch.equal(a, b) for a, b in zip(got, plain, strict=True))


def test_a_graph_can_be_differentiated_twice(policy):
    z = torch.randn(8, requires_grad=True)
    y = checkpoint(lambda t: (t.sin() * t.exp()).tanh(), z, policy=policy).sum()
    (first,) = torch.autograd.grad(y, z, retain_graph=True)
    (second,) = torch.autograd.grad(y, z)
    assert torch.equal(first, second)


def test_outputs_are_differentiated_one_after_the_other(policy):
    def fn(t):
        return t.sin().exp(), (2 * t.sin()).cos(), t.cosh()

    z = torch.randn(8, requires_grad=True)
    p, q, _ = checkpoint(fn, z, policy=policy)
    got = [torch.autograd.grad(p.sum(), z, retain_graph=True)[0], torch.autograd.grad(q.sum(), z)[0]]
    plain = [torch.autograd.grad(out.sum(), z)[0] for out in fn(z)[:2]]
    assert all(torch.equal(a, b) for a, b in zip(got, plain, strict=True))


def test_a_region_in_a_region(policy):
    def inner(t):
        return t.sigmoid() * t

    def outer(t, run):
        return run(inner, run(inner, t).exp())

    z = torch.randn(8, requires_grad=True)
    (plain,) = torch.autograd.grad(outer(z, lambda fn, t: fn(t)).sum(), z)
    nested = checkpoint(outer, z, lambda fn, t: checkpoint(fn, t, policy=policy), policy=policy)
    assert torch.equal(torch.autograd.grad(nested.sum(), z)[0], plain)


@pytest.mark.parametrize("cast_before", [False, True])
def test_autocast_with_a_weight_cast_before_or_in_the_region(policy, cast_before):
    linear = nn.Linear(8, 8)
    x = torch.randn(3, 8, requires_grad=True)

    def total(run):
        linear.zero_grad()
        x.grad = None
        with torch.autocast("cpu", dtype=torch.bfloat16):
            h = linear(x) if cast_before else x
            y = run(lambda t: linear(linear(t).relu()), h) + linear(h)
        y.float().sum().backward()
        return x.grad.clone(), linear.weight.grad.clone(), linear.bias.grad.clone()

    plain = total(lambda fn, t: fn(t))
    got = total(lambda fn, t: checkpoint(fn, t, policy=policy))
    assert all(torch.equal(a, b) for a, b in zip(got, plain, strict=True))


def test_the_mask_of_the_gradient_is_that_of_the_output(policy):
    x = torch.ones(64, 64, requires_grad=True)

    def fn(t):
        return nn.functional.dropout(t * 1.5, 0.5) * (torch.rand_like(t) < 0.7)

    y = checkpoint(fn, x, policy=policy)
    torch.rand(7)
    y.sum().backward()
    assert torch.equal(x.grad != 0, y != 0)
