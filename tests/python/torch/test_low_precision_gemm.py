"""torch.ops.quincunx.low_precision_linear and the packing of its weights against torch in double precision."""

import pytest
import torch
from quincunx import load_operators
from torch.library import opcheck

FORMATS = ("bfloat16", "float16", "int8", "int8_grouped", "int4_grouped")
ACTIVATIONS = {
    "none": lambda x: x,
    "relu": torch.relu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "gelu_erf": torch.nn.functional.gelu,
    "silu": torch.nn.functional.silu,
}
EPSILON = 2.0**-24  # of f32, half a unit in the last place


@pytest.fixture(autouse=True)
def operators():
    load_operators()
    torch.manual_seed(0)


def pack(weight, format):
    """The packed weight, and in double precision the values that it holds."""
    packed = torch.ops.quincunx.pack_low_precision_weight(weight, format)
    return packed, torch.ops.quincunx.unpack_low_precision_weight(packed, *weight.shape, format).double()


def dynamic_levels(x, format):
    """x as input="dynamic" rounds it: 127 levels either side for a row, or for a group of 32."""
    groups = [x] if format == "int8" else x.split(32, dim=-1)
    rounded = []
    for group in groups:
        largest = group.abs().amax(-1, keepdim=True)
        levels = torch.round(group * torch.where(largest > 0, 127.0 / largest, 0.0))
        rounded.append(levels.double() * (largest / 127).double())
    return torch.cat(rounded, -1)


def sum_bound(x, weight):
    """As many roundings as products, of sums of their magnitudes; 4 more for scales and storage."""
    return (x.shape[-1] + 4) * EPSILON * (x.double().abs() @ weight.abs().t())


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("rows", [1, 2, 3, 5, 17])
def test_untouched_activations_have_the_error_of_the_weights_alone(format, rows):
    x, weight = torch.randn(rows, 75), torch.randn(50, 75)
    packed, held = pack(weight, format)
    y = torch.ops.quincunx.low_precision_linear(x, packed, 50, format)
    assert ((y.double() - x.double() @ held.t()).abs() <= sum_bound(x, held)).all()
    # Half a level of the largest magnitude in a row or group; its own unit in the last place for 16 bits.
    level = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "int8": 1 / 254, "int8_grouped": 1 / 254, "int4_grouped": 1 / 14}
    assert ((held - weight.double()).abs() <= level[format] * 1.001 * weight.abs().amax(-1, keepdim=True)).all()


@pytest.mark.parametrize("format,levels", [("int8_grouped", 254), ("int4_grouped", 14)])
@pytest.mark.parametrize("largest", [1e-2, 1e-4, 1e-6, 1e-30])
def test_scales_of_16_bits_cost_small_groups_a_fixed_error(format, levels, largest):
    weight = torch.randn(50, 32).clamp(-1, 1) * largest
    _, held = pack(weight, format)
    bound = 1.001 / levels * weight.abs().amax(-1, keepdim=True).double() + 2.0**-25
    assert ((held - weight.double()).abs() <= bound).all()


@pytest.mark.parametrize("format", FORMATS[2:])
@pytest.mark.parametrize("rows", [1, 5, 14, 31])
def test_dynamic_activations_are_those_rounded_to_eight_bits(format, rows):
    x, weight = torch.randn(rows, 75), torch.randn(50, 75)
    packed, held = pack(weight, format)
    y = torch.ops.quincunx.low_precision_linear(x, packed, 50, format, input="dynamic")
    levels = dynamic_levels(x, format)
    assert ((y.double() - levels @ held.t()).abs() <= sum_bound(levels, held)).all()


@pytest.mark.parametrize("zero_point", [0, -30, 127])
def test_static_activations_are_those_of_fake_quantize(zero_point):
    x, weight = torch.randn(7, 75), torch.randn(50, 75)
    packed, held = pack(weight, "int8")
    y = torch.ops.quincunx.low_precision_linear(
        x, packed, 50, "int8", input="static", input_scale=0.02, input_zero_point=zero_point
    )
    levels = torch.fake_quantize_per_tensor_affine(x, 0.02, zero_point, -128, 127).double()
    assert ((y.double() - levels @ held.t()).abs() <= sum_bound(levels, held)).all()


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_epilogue_in_the_dtype_of_the_activations(activation, dtype):
    x, weight = torch.randn(2, 7, 33).to(dtype), torch.randn(50, 33)
    bias, residual = torch.randn(50).to(dtype), torch.randn(2, 7, 50).to(dtype)
    packed, held = pack(weight, "bfloat16")
    y = torch.ops.quincunx.low_precision_linear(x, packed, 50, "bfloat16", bias, activation, residual)
    assert y.dtype == dtype
    expected = torch.nn.functional.linear(x.double(), held, bias.double())
    expected = ACTIVATIONS[activation](expected) + residual.double()
    # 33 roundings of sums below 64, the activation's slope of 1.13, and the rounding of what is stored.
    storage = {torch.float32: EPSILON, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}[dtype]
    assert ((y.double() - expected).abs() <= 33 * 64 * EPSILON + storage * expected.abs()).all()


@pytest.mark.parametrize("format", FORMATS)
def test_strided_operands_give_the_same_bits(format):
    x, weight = torch.randn(33, 6).t(), torch.randn(33, 20).t()
    packed, _ = pack(weight, format)
    assert torch.equal(packed, pack(weight.contiguous(), format)[0])
    linear = torch.ops.quincunx.low_precision_linear
    assert torch.equal(linear(x, packed, 20, format), linear(x.contiguous(), packed, 20, format))


def test_vectors_and_empty_batches():
    packed, _ = pack(torch.randn(5, 3), "int8")
    linear = torch.ops.quincunx.low_precision_linear
    assert linear(torch.randn(3), packed, 5, "int8", input="dynamic").shape == (5,)
    assert linear(torch.randn(0, 3), packed, 5, "int8", input="dynamic").shape == (0, 5)


@pytest.mark.parametrize("format", FORMATS)
def test_fake_kernels(format):
    weight = torch.randn(17, 40)
    packed, _ = pack(weight, format)
    ops = torch.ops.quincunx
    opcheck(ops.pack_low_precision_weight.default, (weight, format))
    opcheck(ops.unpack_low_precision_weight.default, (packed, 17, 40, format))
    opcheck(ops.low_precision_linear.default, (torch.randn(2, 3, 40), packed, 17, format, torch.randn(17), "silu"))
    opcheck(ops.low_precision_linear.default, (torch.randn(3, 40).bfloat16(), packed, 17, format))


@pytest.mark.parametrize("format", FORMATS)
def test_packed_weight_of_another_shape_or_format_is_refused(format):
    packed, _ = pack(torch.randn(16, 64), format)
    x, ops = torch.randn(2, 64), torch.ops.quincunx
    given = f", got what pack_low_precision_weight gives for \\[16, 64\\] in {format}"
    with pytest.raises(RuntimeError, match=f"expected .* \\[15, 64\\] in {format}" + given):
        ops.low_precision_linear(x, packed, 15, format)
    if format != "float16":  # of which no k is padded
        with pytest.raises(RuntimeError, match=f"expected .* \\[16, 63\\] in {format}" + given):
            ops.low_precision_linear(x[:, :63], packed, 16, format)
        with pytest.raises(RuntimeError, match=f"expected .* \\[16, 63\\] in {format}" + given):
            ops.unpack_low_precision_weight(packed, 16, 63, format)
    if format in ("bfloat16", "float16"):
        other = {"bfloat16": "float16", "float16": "bfloat16"}[format]
        with pytest.raises(RuntimeError, match=f"expected .* \\[16, 64\\] in {other}" + given):
            ops.low_precision_linear(x, packed, 16, other)


def test_bad_input_names_the_argument():
    packed, _ = pack(torch.randn(5, 3), "int4_grouped")
    linear = torch.ops.quincunx.low_precision_linear
    x = torch.randn(2, 3)
    with pytest.raises(RuntimeError, match="TYPE_ERROR: x: expected a float32, bfloat16 or float16"):
        linear(x.double(), packed, 5, "int4_grouped")
    with pytest.raises(RuntimeError, match="TYPE_ERROR: packed: expected a uint8 tensor"):
        linear(x, packed.float(), 5, "int4_grouped")
    with pytest.raises(RuntimeError, match="packed: expected the 608 contiguous bytes .* in int8_grouped, got 352"):
        linear(x, packed, 5, "int8_grouped")
    with pytest.raises(RuntimeError, match='format: expected .* got "int2"'):
        linear(x, packed, 5, "int2")
    with pytest.raises(RuntimeError, match='input: expected .* got "exact"'):
        linear(x, packed, 5, "int4_grouped", input="exact")
    with pytest.raises(RuntimeError, match="input: kStatic expects int8 weights"):
        linear(x, packed, 5, "int4_grouped", input="static")
    with pytest.raises(RuntimeError, match="bias: expected one dimension of 5 elements"):
        linear(x, packed, 5, "int4_grouped", torch.randn(4))
    with pytest.raises(RuntimeError, match="residual: expected"):
        linear(x, packed, 5, "int4_grouped", residual=torch.randn(5, 2))
    with pytest.raises(RuntimeError, match="weight: column 1 holds NaN"):
        torch.ops.quincunx.pack_low_precision_weight(torch.tensor([[1.0], [float("nan")]]), "int8")
    with pytest.raises(RuntimeError, match="weight: expected \\[out_features, in_features\\]"):
        torch.ops.quincunx.pack_low_precision_weight(torch.randn(3), "int8")
