"""Whatever tensors a compiled function is given, it does what eager does: strides, aliases, sizes, dtypes, NaN."""

import pytest
import torch
from torch.nn import functional

INTEGERS = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]


def compiled(function, **options):
    return torch.compile(function, backend="quincunx", **options)


def norm(x):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) + x.amax(-1, keepdim=True)


def chain(x):
    return torch.exp(-x.abs()) * 2 + x.sin()


LAYOUTS = {
    "transposed": lambda: torch.randn(6, 5).t(),
    "permuted": lambda: torch.randn(3, 4, 5).permute(2, 0, 1),
    "every_second": lambda: torch.randn(10, 8)[::2, ::2],
    "expanded": lambda: torch.randn(1, 7).expand(4, 7),
    "offset": lambda: torch.randn(41)[1:41].view(5, 8),
    "flipped_columns": lambda: torch.randn(4, 9).flip(1),
    "channels_last": lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("function", [norm, chain])
def test_strides_of_inputs_do_not_matter_and_those_of_results_are_eagers(layout, function):
    x = LAYOUTS[layout]()
    actual, expected = compiled(function)(x), function(x)
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)
    assert actual.stride() == expected.stride()


@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0), (2, 0, 3), (1,), (1, 1), ()])
def test_empty_and_single_element_tensors(shape):
    x = torch.randn(shape)
    torch.testing.assert_close(compiled(chain)(x), chain(x), rtol=1e-5, atol=1e-6)
    if len(shape) and shape[-1]:
        torch.testing.assert_close(compiled(norm)(x), norm(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("length", [1, 3, 4, 7, 8, 15, 16, 17, 31, 33, 64, 100])
def test_every_length_around_a_vector(length):
    x = torch.randn(3, length)
    torch.testing.assert_close(compiled(norm)(x), norm(x), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(compiled(chain)(x), chain(x), rtol=1e-5, atol=1e-6)


def test_an_input_that_is_changed_in_place():
    def function(x, y):
        x.mul_(2).add_(y)
        return torch.sin(x) * y

    ours, theirs, y = torch.arange(6.0), torch.arange(6.0), torch.linspace(-1, 1, 6)
    torch.testing.assert_close(compiled(function)(ours, y), function(theirs, y))
    torch.testing.assert_close(ours, theirs)


def test_a_change_between_two_uses_is_seen():
    def function(x):
        before = x.exp() + 1
        x.neg_()
        return before * (x.exp() + 1)

    ours, theirs = torch.linspace(-1, 1, 5), torch.linspace(-1, 1, 5)
    torch.testing.assert_close(compiled(function)(ours), function(theirs))
    torch.testing.assert_close(ours, theirs)


def test_two_inputs_that_share_memory():
    def function(x, y):
        x.add_(1)
        return x * y + y.sin()

    ours, theirs = torch.arange(8.0), torch.arange(8.0)
    actual, expected = compiled(function)(ours[:6], ours[2:]), function(theirs[:6], theirs[2:])
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(ours, theirs)


def test_one_tensor_given_twice():
    def function(x, y):
        return (x + 1) * (y - 1)

    x = torch.randn(9)
    torch.testing.assert_close(compiled(function)(x, x), function(x, x))


def test_a_result_that_is_a_view_of_an_input_shares_its_memory():
    def function(x):
        return x.view(-1)[2:], x.exp() * 2

    x = torch.randn(3, 4)
    view, _ = compiled(function)(x)
    view.fill_(7)
    assert x.flatten()[2:].eq(7).all()


def test_results_are_new_memory_at_every_call():
    function = compiled(chain)
    first = function(torch.zeros(5))
    kept = first.clone()
    function(torch.ones(5))
    assert first.equal(kept)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_wrap_and_divide_as_in_eager(dtype):
    def function(x, y):
        return (x + y) * x - y, torch.maximum(x, y) + 1, (x > y) | (x == y)

    low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    x = torch.tensor([low, high, 0, 1, 5, high // 2] * 7, dtype=dtype)
    y = torch.tensor([1, high, 3, 7, 2, high // 3 + 1] * 7, dtype=dtype)
    for actual, expected in zip(compiled(function)(x, y), function(x, y), strict=True):
        assert actual.dtype == expected.dtype
        assert actual.equal(expected)


def test_bools():
    def function(x, y):
        return torch.logical_and(x, y), torch.where(x, y, ~y), (x & ~y).sum()

    x, y = torch.rand(37) > 0.5, torch.rand(37) > 0.5
    for actual, expected in zip(compiled(function)(x, y), function(x, y), strict=True):
        assert actual.dtype == expected.dtype
        assert actual.equal(expected)


@pytest.mark.parametrize(
    "pair", [("float32", "int64"), ("bfloat16", "float32"), ("int32", "bool"), ("float32", "float64")]
)
def test_mixed_dtypes_promote_as_in_eager(pair):
    first, second = (getattr(torch, name) for name in pair)
    x, y = (torch.randn(4, 9) * 4).to(first), (torch.randn(9) * 4).to(second)

    def function(a, b):
        return (a * b + 1) * 2

    actual, expected = compiled(function)(x, y), function(x, y)
    assert actual.dtype == expected.dtype
    torch.testing.assert_close(actual, expected, rtol=1e-2 if torch.bfloat16 in (first, second) else 1e-6, atol=1e-6)


SPECIAL = [float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.0, -1.0, 3.4e38, 1e-45, -1e-45]
FUNCTIONS = {
    "gelu": lambda x: functional.gelu(x) * 1.5,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh") * 1.5,
    "silu": lambda x: functional.silu(x) * 1.5,
    "relu": lambda x: torch.relu(x) + 0.5,
    "clamp": lambda x: x.clamp(-1, 1) * 1.5,
    "maximum": lambda x: torch.maximum(x, x.flip(0)) + 0.5,
    "tanh": lambda x: torch.tanh(x) * 1.5,
    "sigmoid": lambda x: torch.sigmoid(x) * 1.5,
    "exp": lambda x: torch.exp(x) - 1,
    "log": lambda x: torch.log(x) - 1,
    "where": lambda x: torch.where(x > 0, x * 2, -x),
    "comparison": lambda x: (x < 1).float() + (x != x).float(),
    "rsqrt": lambda x: torch.rsqrt(x) * 1.5,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_nan_infinity_and_denormals_as_in_float64(name):
    # Float64, because eager's own float32 loops disagree: gelu(inf) is inf for one element and NaN for eight.
    x = torch.tensor(SPECIAL * 3)
    expected = FUNCTIONS[name](x.double()).float()
    torch.testing.assert_close(compiled(FUNCTIONS[name])(x), expected, rtol=1e-5, atol=1e-37, equal_nan=True)


@pytest.mark.parametrize("special", [float("nan"), float("inf"), -float("inf")])
def test_reductions_over_a_row_with_a_special_value(special):
    def function(x):
        return torch.softmax(x, -1), x.amax(-1) * 2, x.sum(-1) * 2, norm(x)

    x = torch.randn(4, 19)
    x[1, 3] = special
    x[2] = special
    for actual, expected in zip(compiled(function)(x), function(x), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6, equal_nan=True)


def test_a_scalar_tensor_beside_a_large_one():
    def function(x, scale):
        return (x * scale).exp() + scale

    x, scale = torch.randn(7, 9), torch.tensor(0.25)
    torch.testing.assert_close(compiled(function)(x, scale), function(x, scale), rtol=1e-6, atol=1e-6)


def test_a_random_operator_between_keeps_its_place():
    def function(x):
        return ((x * 2 + torch.rand_like(x)).sin() + torch.rand_like(x)).exp()

    x = torch.randn(11)
    torch.manual_seed(3)
    expected = function(x)
    torch.manual_seed(3)
    torch.testing.assert_close(compiled(function)(x), expected, rtol=1e-6, atol=1e-6)
