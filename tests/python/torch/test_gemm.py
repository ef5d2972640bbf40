"""torch.ops.quincunx.packed_linear, gated_linear, gram and symmetric_polynomial against torch in double precision."""

import pytest
import torch
from quincunx._library import load_operators
from torch.library import opcheck

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


def test_scales_the_product_and_the_rows():
    x, weight, bias, row_scale = torch.randn(2, 7, 33), torch.randn(50, 33), torch.randn(50), torch.randn(2, 7)
    y = linear(x, weight, bias=bias, activation="relu", scale=0.25, row_scale=row_scale)
    expected = torch.relu(0.25 * (x.double() @ weight.double().t()) + bias.double()) * row_scale.double()[..., None]
    torch.testing.assert_close(y.double(), expected, rtol=0, atol=33 * 64 * 2**-24)


def test_writes_into_a_slice_of_a_larger_matrix():
    x, weight, out = torch.randn(7, 33), torch.randn(20, 33), torch.full((7, 30), 5.0)
    packed = torch.ops.quincunx.pack_linear_weight(weight)
    torch.ops.quincunx.packed_linear_out(x, packed, out=out[:, 4:24])
    assert torch.equal(out[:, 4:24], linear(x, weight))
    assert (out[:, :4] == 5.0).all() and (out[:, 24:] == 5.0).all()


@pytest.mark.parametrize("activation", ["silu", "gelu_erf", "gelu_tanh"])
def test_gated_linear_equals_the_feed_forward_of_two_weights(activation):
    x, gate, up = torch.randn(2, 5, 33), torch.randn(50, 33) / 6, torch.randn(50, 33) / 6
    bias, up_bias, residual = torch.randn(50), torch.randn(50), torch.randn(2, 5, 50)
    packed = torch.ops.quincunx.pack_gated_weight(gate, up)
    y = torch.ops.quincunx.gated_linear(x, packed, 50, activation, bias, up_bias, residual)
    left = ACTIVATIONS[activation](torch.nn.functional.linear(x.double(), gate.double(), bias.double()))
    right = torch.nn.functional.linear(x.double(), up.double(), up_bias.double())
    # Sums of 33 products below 8 in each factor, seen through the other one, which is below 8 as well.
    torch.testing.assert_close(y.double(), left * right + residual.double(), rtol=0, atol=2 * 33 * 64 * 2**-24)


def test_halves_of_a_doubled_weight_are_gate_and_up():
    x, doubled = torch.randn(3, 8), torch.randn(12, 8)
    packed = torch.ops.quincunx.pack_gated_weight(doubled[:6], doubled[6:])
    y = torch.ops.quincunx.gated_linear(x, packed, 6)
    gate, up = (x @ doubled.t()).chunk(2, -1)
    torch.testing.assert_close(y, torch.nn.functional.silu(gate) * up)


def test_gram_is_symmetric():
    x = torch.randn(70, 33)
    y = torch.ops.quincunx.gram(x, 0.5)
    torch.testing.assert_close(y.double(), 0.5 * x.double() @ x.double().t(), rtol=0, atol=33 * 64 * 2**-24)
    assert torch.equal(y, y.t())


def test_symmetric_polynomial_equals_its_formula():
    g = torch.ops.quincunx.gram(torch.randn(70, 33) / 33)
    expected = 3.0 * torch.eye(70).double() - 4.0 * g.double() + 2.0 * g.double() @ g.double()
    y = torch.ops.quincunx.symmetric_polynomial(g, 3.0, -4.0, 2.0)
    torch.testing.assert_close(y.double(), expected, rtol=0, atol=70 * 8 * 2**-24)


def test_takes_strided_operands():
    x, weight = torch.randn(33, 6).t(), torch.randn(33, 20).t()
    assert torch.equal(linear(x, weight), linear(x.contiguous(), weight.contiguous()))


def test_vectors_and_empty_batches():
    weight = torch.randn(5, 3)
    assert linear(torch.randn(3), weight).shape == (5,)
    assert linear(torch.randn(0, 3), weight).shape == (0, 5)


def test_no_features_give_an_empty_result():
    x, empty = torch.randn(2, 3, 5), torch.randn(0, 5)
    assert linear(x, empty).shape == (2, 3, 0)
    assert linear(x[0, 0], empty, residual=torch.empty(0)).shape == (0,)
    packed = torch.ops.quincunx.pack_gated_weight(empty, empty)
    assert torch.ops.quincunx.gated_linear(x, packed, 0, residual=torch.empty(2, 3, 0)).shape == (2, 3, 0)


def test_bad_input_names_the_argument():
    weight = torch.randn(5, 3)
    packed = torch.ops.quincunx.pack_linear_weight(weight)
    op = torch.ops.quincunx.packed_linear
    with pytest.raises(RuntimeError, match="TYPE_ERROR: x: expected a float32 tensor"):
        op(torch.randn(2, 3, dtype=torch.float64), packed, 5)
    with pytest.raises(RuntimeError, match="INVALID_ARGUMENT: packed: expected the 80 contiguous floats of"):
        op(torch.randn(2, 4), packed, 5)
    with pytest.raises(RuntimeError, match="INVALID_ARGUMENT: shape: .* \\[3, -1\\]"):
        op(torch.randn(2, 3), packed, -1)
    with pytest.raises(RuntimeError, match="INVALID_ARGUMENT: shape: .* overflow"):
        op(torch.randn(2, 3), packed, 2**62)
    with pytest.raises(RuntimeError, match="bias: expected \\[5\\], got float32\\[4\\]"):
        op(torch.randn(2, 3), packed, 5, bias=torch.randn(4))
    with pytest.raises(RuntimeError, match='activation: expected .* got "tanh"'):
        op(torch.randn(2, 3), packed, 5, activation="tanh")
    with pytest.raises(RuntimeError, match="residual: expected"):
        op(torch.randn(2, 3), packed, 5, residual=torch.randn(5, 2))
    with pytest.raises(RuntimeError, match="weight: expected"):
        torch.ops.quincunx.pack_linear_weight(torch.randn(3))
    with pytest.raises(RuntimeError, match="row_scale: expected \\[2\\]"):
        op(torch.randn(2, 3), packed, 5, row_scale=torch.randn(3))
    with pytest.raises(RuntimeError, match="x, out: expected two dimensions"):
        torch.ops.quincunx.packed_linear_out(torch.randn(3), packed, out=torch.empty(5))
    with pytest.raises(RuntimeError, match="up: expected the shape of gate"):
        torch.ops.quincunx.pack_gated_weight(weight, weight.t())
    with pytest.raises(RuntimeError, match="of what pack_gated_weight gives for \\[5, 3\\], got 64"):
        torch.ops.quincunx.gated_linear(torch.randn(2, 3), packed, 5)
    with pytest.raises(RuntimeError, match="expected a square matrix"):
        torch.ops.quincunx.symmetric_polynomial(torch.randn(2, 3), 1.0, 1.0, 1.0)


def test_packed_weight_of_another_shape_with_the_same_padded_size_is_refused():
    x, ops = torch.randn(2, 6), torch.ops.quincunx
    packed, gated = ops.pack_linear_weight(torch.randn(8, 6)), ops.pack_gated_weight(*torch.randn(2, 8, 6))
    of = "expected what pack_{} gives for \\[{}\\], got what pack_{} gives for \\[8, 6\\]"
    with pytest.raises(RuntimeError, match=of.format("linear_weight", "7, 6", "linear_weight")):
        ops.packed_linear_out(x, packed, out=torch.empty(2, 7))
    with pytest.raises(RuntimeError, match=of.format("linear_weight", "32, 3", "linear_weight")):
        ops.packed_linear(torch.randn(2, 3), packed, 32)
    with pytest.raises(RuntimeError, match=of.format("gated_weight", "9, 6", "gated_weight")):
        ops.gated_linear(x, gated, 9)
    with pytest.raises(RuntimeError, match=of.format("linear_weight", "24, 6", "gated_weight")):
        ops.packed_linear(x, gated, 24)
    for other in (torch.zeros(112), torch.full((112,), torch.nan)):
        with pytest.raises(RuntimeError, match="\\[8, 6\\], got what no operator packed"):
            ops.packed_linear(x, other, 8)


def test_compilers_see_the_operators_as_they_are():
    x, weight = torch.randn(4, 8), torch.randn(17, 8)
    packed = torch.ops.quincunx.pack_linear_weight(weight)
    gated = torch.ops.quincunx.pack_gated_weight(weight, weight)
    operators = torch.ops.quincunx
    opcheck(operators.packed_linear_out.default, (x, packed), {"out": torch.empty(4, 17)})
    opcheck(operators.pack_gated_weight.default, (weight, weight))
    opcheck(operators.gated_linear.default, (x, gated, 17))
    opcheck(operators.gram.default, (x,))
    opcheck(operators.symmetric_polynomial.default, (x @ x.t(), 1.0, 2.0, 3.0))
