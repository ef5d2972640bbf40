"""Faults that users of compilers have reported in public, each as a small case of its own."""

import pytest
import torch
from fusion.reference import value_and_gradients
from torch.nn import functional


def compiled(function, **options):
    return torch.compile(function, backend="quincunx", **options)


def wrapped(value, bits=32):
    return (value + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


WIDENED = {
    "sum": (lambda x: (x + x).to(torch.int64), lambda v: wrapped(2 * v)),
    "product": (lambda x: (x * x).to(torch.int64), lambda v: wrapped(v * v)),
    "difference": (lambda x: (x - 1).to(torch.int64) + 1, lambda v: wrapped(v - 1) + 1),
    "negation": (lambda x: (-x).to(torch.int64), lambda v: wrapped(-v)),
    "comparison": (lambda x: (x + 1) > x, lambda v: wrapped(v + 1) > v),
    "halved_double": (lambda x: (x * 2) // 2, lambda v: wrapped(2 * v) // 2),
}


@pytest.mark.parametrize("size", [30, 1, 3])
@pytest.mark.parametrize("name", WIDENED)
def test_int32_wraps_before_it_is_widened_or_compared(name, size):
    function, exact = WIDENED[name]
    x = torch.tensor([2**31 - 1, 5, -(2**31), 46341, -7, 100000] * 5, dtype=torch.int32)[:size]
    assert compiled(function)(x).tolist() == [exact(value) for value in x.tolist()]


def test_the_sum_of_a_softmax_is_not_the_constant_one():
    x = torch.randn(6, 37)
    x[1, 3], x[2, 5], x[3] = float("nan"), float("inf"), -float("inf")
    actual = compiled(lambda t: torch.softmax(t, -1).sum(-1))(x)
    assert actual.isnan().tolist() == [False, True, True, True, False, False]
    # At most 37 roundings of numbers below one.
    torch.testing.assert_close(actual[[0, 4, 5]], torch.ones(3), rtol=0, atol=37 * 2.0**-24)


INDEXED = {
    "embedding": (lambda w, i: functional.embedding(i, w), [2, -2, 4], [2, 0, 4]),
    "index_select": (lambda w, i: torch.index_select(w, 0, i), [0, -1], [0, 4]),
    "index_add": (lambda w, i: torch.index_add(w, 0, i, torch.ones(2, 2)), [0, -1], [0, 4]),
    "gather": (lambda w, i: torch.gather(w, 0, i), [[0, -1]], [[0, 4]]),
    "scatter": (lambda w, i: w.scatter(0, i, torch.ones(1, 2)), [[0, -1]], [[0, 4]]),
    "getitem": (lambda w, i: w[i], [0, 7], [0, -1]),
}


@pytest.mark.parametrize("name", INDEXED)
def test_an_index_that_eager_refuses_is_refused(name):
    def function(weight, index):
        return INDEXED[name][0](weight * 2 + 1, index).sin() * 2

    weight = torch.arange(10.0).reshape(5, 2)
    right, wrong = torch.tensor(INDEXED[name][2]), torch.tensor(INDEXED[name][1])
    torch.testing.assert_close(compiled(function)(weight, right), function(weight, right))
    with pytest.raises((IndexError, RuntimeError)):
        compiled(function)(weight, wrong)


FAR_FROM_ZERO = {
    "layer_norm_of_a_plane": (lambda x: functional.layer_norm(x, (300, 300)), lambda: torch.randn(1, 300, 300) + 1000),
    "layer_norm_of_a_row": (lambda x: functional.layer_norm(x, (1023,)), lambda: torch.randn(7, 1023) + 3e4),
    "instance_norm": (functional.instance_norm, lambda: torch.randn(1, 3, 257, 55) + 100),
    "variance": (lambda x: x.var(-1) * 1.0, lambda: torch.randn(5, 4099) + 3000),
    "layer_norm_by_hand": (
        lambda x: (x - x.mean(-1, True)) * torch.rsqrt(x.var(-1, correction=0, keepdim=True) + 1e-5),
        lambda: torch.randn(5, 777) + 2000,
    ),
}


@pytest.mark.parametrize("name", FAR_FROM_ZERO)
def test_a_normalisation_far_from_zero_keeps_its_digits(name):
    function, make = FAR_FROM_ZERO[name]
    x = make()
    exact = function(x.double())
    ours, eager = ((result.double() - exact).abs().max() for result in (compiled(function)(x), function(x)))
    assert ours <= 4 * eager + 2e-6 * exact.abs().max().clamp(min=1)


def test_gradients_of_norms_that_share_one_table():
    def function(x, table, weight):
        shift1, scale1, gate1, shift2, scale2, gate2 = table.chunk(6, 1)
        x = x + gate1 * ((functional.layer_norm(x, (24,)) * (1 + scale1) + shift1) @ weight)
        return (x + gate2 * ((functional.layer_norm(x, (24,)) * (1 + scale2) + shift2) @ weight)).sin()

    ours = compiled(function)
    for _ in range(2):
        inputs = torch.randn(2, 30, 24), torch.randn(1, 6, 24) / 5, torch.randn(24, 24) / 5
        values, gradients = value_and_gradients(ours, *inputs)
        expected, expected_gradients = value_and_gradients(function, *(tensor.double() for tensor in inputs))
        for actual, right in zip(values + gradients, expected + expected_gradients, strict=True):
            torch.testing.assert_close(actual.double(), right, rtol=1e-3, atol=1e-4)


OVER_NOTHING = {
    "mean": lambda x: x.mean(0) * 1.5,
    "sum": lambda x: x.sum(0) * 1.5,
    "product": lambda x: x.prod(0) * 1.5,
    "softmax": lambda x: torch.softmax(x, -1) * 1.5,
    "layer_norm": lambda x: functional.layer_norm(x, (4,)) * 1.5,
    "matmul": lambda x: x.t() @ x,
    "cat": lambda x: torch.cat([x, x[:0], x * 2], 0),
    "gelu_of_a_product": lambda x: functional.gelu(x @ x.new_ones(4, 3)),
    "any": lambda x: (x > 0).any(0),
}


@pytest.mark.parametrize("name", OVER_NOTHING)
def test_one_dynamic_function_serves_five_one_no_and_many_rows(name):
    function = OVER_NOTHING[name]
    ours = compiled(function, dynamic=True)
    for rows in (5, 1, 0, 33):
        x = torch.linspace(-1, 1, rows * 4).reshape(rows, 4)
        torch.testing.assert_close(ours(x), function(x), rtol=1e-5, atol=1e-6, equal_nan=True)


def test_the_maximum_of_nothing_is_refused():
    ours = compiled(lambda x: x.amax(0) * 2, dynamic=True)
    ours(torch.ones(5, 4))
    with pytest.raises((IndexError, RuntimeError)):
        ours(torch.ones(0, 4))
