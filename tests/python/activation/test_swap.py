"""Swapped results leave memory, come back in time, and a full disk is an error that loses nothing."""

import os
import subprocess
import sys
import textwrap

import pytest
import torch
from quincunx.activation import Policy, Rule, checkpoint, counters, swap_arena


def swap_all(budget_bytes=1 << 26, **options):
    return Policy(default="SWAP", arena=swap_arena(budget_bytes=budget_bytes, **options))


def run_program(text):
    # A fixed threshold, so that the C library gives freed tensors back to the system at once.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}
    command = [sys.executable, "-c", textwrap.dedent(text)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, env=environment)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
@pytest.mark.parametrize("size", [1, 1023, 4096, 5001])
def test_results_come_back_bit_for_bit(dtype, size):
    x = torch.randn(size).to(dtype).requires_grad_()

    def fn(t):
        return (t * t.exp()).sin() * t.cos()

    (plain,) = torch.autograd.grad(fn(x).abs().sum(), x)
    (got,) = torch.autograd.grad(checkpoint(fn, x, policy=swap_all()).abs().sum(), x)
    assert torch.equal(got, plain)


def test_special_values_and_strides_come_back():
    values = torch.tensor([[float("nan"), float("inf"), 1e-45], [-0.0, 3.0, -float("inf")]])
    strides = []

    def fn(t):
        y = t.mT * 1  # The product keeps the strides of the transpose.
        strides.append(y.stride())
        return y.exp().cos()

    for shape in (values, values[:, :0]):
        x = shape.clone().requires_grad_()
        strides.clear()
        (got,) = torch.autograd.grad(checkpoint(fn, x, policy=swap_all()).sum(), x)
        (plain,) = torch.autograd.grad(fn(x).sum(), x)
        assert torch.equal(got.view(torch.int32), plain.view(torch.int32))
        assert len(set(strides)) == 1


def test_a_swapped_result_changed_in_place_in_and_after_the_region():
    def fn(t):
        y = t * 2
        y.view(-1)[1:].mul_(3)
        return y.sin()

    x = torch.randn(200_000, requires_grad=True)
    (plain,) = torch.autograd.grad(fn(x).sum(), x)
    out = checkpoint(fn, x, policy=swap_all())
    loss = out.sum()
    out.detach().zero_()
    (got,) = torch.autograd.grad(loss, x)
    assert torch.equal(got, plain)


def test_an_earlier_region_is_prefetched_while_a_later_one_is_replayed():
    policy = swap_all()
    x = torch.randn(1000, requires_grad=True)
    y = x
    seen = []
    for _ in range(3):
        y = checkpoint(lambda t: t.sin().exp().cos(), y, policy=policy)
        y.register_hook(lambda grad: seen.append(policy.arena.num_prefetched))
    y.sum().backward()
    # Each region swapped three results; the last one's replay asked for its own and for those before.
    assert seen == [0, 6, 9]
    assert policy.arena.num_prefetched == 9


def test_the_file_is_reused_and_given_back():
    policy = swap_all(budget_bytes=1 << 16)
    x = torch.randn(4096, requires_grad=True)
    for _ in range(20):
        y = checkpoint(lambda t: t.sin().exp().cos(), x, policy=policy)
        assert policy.arena.used_bytes == 3 * 4096 * 4
        y.sum().backward()
    del y
    assert policy.arena.used_bytes == 0


def test_a_budget_that_is_too_small_is_an_error_and_training_goes_on():
    policy = swap_all(budget_bytes=40_000)
    x = torch.randn(4096, requires_grad=True)
    with pytest.raises(RuntimeError, match="16384 bytes more than the 32768 in use exceed .* budget_bytes of 40000"):
        checkpoint(lambda t: t.sin().exp().cos(), x, policy=policy)
    assert policy.arena.used_bytes == 0
    checkpoint(lambda t: t.sin().exp(), x, policy=policy).sum().backward()
    assert torch.equal(x.grad, torch.autograd.grad(x.sin().exp().sum(), x)[0])


def test_a_full_disk_is_an_error_and_the_training_state_is_intact():
    result = run_program("""
        import resource, torch
        from quincunx.activation import Policy, checkpoint
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        model = torch.nn.Linear(300, 300)
        optimizer = torch.optim.AdamW(model.parameters())
        x = torch.randn(300, 300, requires_grad=True)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        policy = Policy(default="SWAP")
        try:
            checkpoint(lambda t: model(t).sin().exp().cos().tanh(), x, policy=policy)
            raise SystemExit("no error")
        except RuntimeError as error:
            assert "the arena's file cannot grow" in str(error), error
            assert "File too large" in str(error), error
        assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
        assert policy.arena.used_bytes == 0
        checkpoint(lambda t: model(t).sin(), x, policy=policy).sum().backward()
        got = model.weight.grad.clone()
        model.zero_grad()
        model(x).sin().sum().backward()
        assert torch.equal(got, model.weight.grad)
    """)
    assert result.returncode == 0, result.stderr


def test_resident_memory_falls():
    result = run_program("""
        import torch, sys
        from quincunx.activation import Policy, checkpoint
        torch.set_num_threads(1)

        def resident_mib():
            with open("/proc/self/status") as status:
                return next(int(line.split()[1]) for line in status if line.startswith("RssAnon")) / 1024

        def chain(t):
            for _ in range(8):
                t = t.sin().exp().cos().tanh()
            return t.sum()

        def growth(run):
            x = torch.randn(2 << 20, requires_grad=True)  # 8 MiB
            start = resident_mib()
            y = run(chain, x)
            grown = resident_mib() - start
            y.backward()
            return grown, x.grad

        growth(lambda fn, t: fn(t))
        plain, _ = growth(lambda fn, t: fn(t))
        swapped, _ = growth(lambda fn, t: checkpoint(fn, t, policy=Policy(default="SWAP")))
        print(plain, swapped)
        assert plain > 100, plain
        assert swapped < 0.3 * plain, (plain, swapped)
    """)
    assert result.returncode == 0, result.stderr + result.stdout


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_what_cannot_be_swapped_is_refused():
    x = torch.ones(3, requires_grad=True)

    def fn(t):
        return t * torch.quantize_per_tensor(t.detach(), 0.1, 0, torch.qint8).dequantize()

    with pytest.raises(NotImplementedError, match="swap: the result of aten::quantize_per_tensor.* expected a strided"):
        checkpoint(fn, x, policy=swap_all())


def test_sparse_results_are_computed_again():
    x = torch.eye(3).to_sparse().requires_grad_()
    y = checkpoint(lambda t: (t * 2).to_dense().sin(), x, policy=swap_all())
    (got,) = torch.autograd.grad(y.sum(), x)
    (plain,) = torch.autograd.grad((x * 2).to_dense().sin().sum(), x)
    assert torch.equal(got.to_dense(), plain.to_dense())


def test_what_is_smaller_than_the_rule_says_stays():
    policy = Policy([Rule(op="aten.sin", min_bytes=4000, action="SWAP")])
    before = counters()["swapped"]
    x = torch.randn(1000, requires_grad=True)
    checkpoint(lambda t: t[:10].sin() + t.sin().sum(), x, policy=policy).sum().backward()
    assert counters()["swapped"] == before + 1
