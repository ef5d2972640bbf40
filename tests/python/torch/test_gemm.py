"""torch.ops.quincunx.pack_linear_weight and packed_linear against torch in double precision."""

import pytest
import torch
from quincunx._library import load_operators

ACTIVATIONS = {
    "none": lambda x: x,
    "relu": torch.relu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "gelu_erf": torch.nn.functional.gelu,
    "silu": torch.nn.functional.silu,
}


@pytest.fixture(autouse=True)
def operators():
    load_operators()
    torch.manual_seed(0)


def linear(x, weight, **arguments):
    packed = torch.ops.quincunx.pack_linear_weight(weight)
    return torch.ops.quincunx.packed_linear(x, packed, weight.shape[0], **arguments)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_equals_linear_with_its_epilogue(activation):
    x, weight, bias, residual = torch.randn(2, 7, 33), torch.randn(50, 33), torch.randn(50), torch.randn(2, 7, 50)
    y = linear(x, weight, bias=bias, activation=activation, residual=residual)
    expected = torch.nn.functional.linear(x.double(), weight.double(), bias.double())
    expected = ACTIVATIONS[activation](expected) + residual.double()
    # 33 products of normal numbers: at most 33 roundings of sums below 64, then the activation's slope of 1.13.
    torch.testing.assert_close(y.double(), expected, rtol=0, atol=33 * 64 * 2**-24)


def test_takes_strided_operands():
    x, weight = torch.randn(33, 6).t(), torch.randn(33, 20).t()
    assert torch.equal(linear(x, weight), linear(x.contiguous(), weight.contiguous()))


def test_vectors_and_empty_batches():
    weight = torch.randn(5, 3)
    assert linear(torch.randn(3), weight).shape == (5,)
    assert linear(torch.randn(0, 3), weight).shape == (0, 5)


def test_bad_input_names_the_argument():
    weight = torch.randn(5, 3)
    packed = torch.ops.quincunx.pack_linear_weight(weight)
    op = torch.ops.quincunx.packed_linear
    with pytest.raises(RuntimeError, match="TYPE_ERROR: x: expected a float32 tensor"):
        op(torch.randn(2, 3, dtype=torch.float64), packed, 5)
    with pytest.raises(RuntimeError, match="INVALID_ARGUMENT: packed: expected the 64 contiguous floats"):
        op(torch.randn(2, 4), packed, 5)
    with pytest.raises(RuntimeError, match="bias: expected \\[5\\], got float32\\[4\\]"):
        op(torch.randn(2, 3), packed, 5, bias=torch.randn(4))
    with pytest.raises(RuntimeError, match='activation: expected .* got "tanh"'):
        op(torch.randn(2, 3), packed, 5, activation="tanh")
    with pytest.raises(RuntimeError, match="residual: expected"):
        op(torch.randn(2, 3), packed, 5, residual=torch.randn(5, 2))
    with pytest.raises(RuntimeError, match="weight: expected"):
        torch.ops.quincunx.pack_linear_weight(torch.randn(3))
