"""torch.ops.quincunx.rms_norm and layer_norm against torch in double precision."""

import pytest
import torch
from quincunx._library import load_operators

# Half a unit in the last place of the type, for the one rounding of the result, beside f32's own error.
ROUNDING = {torch.float32: 2**-20, torch.bfloat16: 2**-8, torch.float16: 2**-10}


@pytest.fixture(autouse=True)
def operators():
    load_operators()
    torch.manual_seed(0)


def close(actual, expected):
    rounding = ROUNDING[actual.dtype]
    torch.testing.assert_close(actual.double(), expected, rtol=1.01 * rounding, atol=2**-20)


@pytest.mark.parametrize("dtype", ROUNDING)
def test_rms_norm_equals_torch(dtype):
    x, weight = torch.randn(2, 5, 33).to(dtype), torch.randn(33).to(dtype)
    y = torch.ops.quincunx.rms_norm(x, weight, 1e-5)
    assert y.dtype == dtype
    close(y, torch.nn.functional.rms_norm(x.double(), (33,), weight.double(), 1e-5))
    close(torch.ops.quincunx.rms_norm(x), torch.nn.functional.rms_norm(x.double(), (33,), None, 1e-6))


@pytest.mark.parametrize("dtype", ROUNDING)
def test_layer_norm_equals_torch(dtype):
    x, weight, bias = torch.randn(4, 40).to(dtype), torch.randn(40).to(dtype), torch.randn(40).to(dtype)
    y = torch.ops.quincunx.layer_norm(x, weight, bias)
    close(y, torch.nn.functional.layer_norm(x.double(), (40,), weight.double(), bias.double()))
    close(torch.ops.quincunx.layer_norm(x), torch.nn.functional.layer_norm(x.double(), (40,)))


def test_strided_inputs_and_f32_weights_of_half_inputs():
    x = torch.randn(6, 8, 5).transpose(0, 2)
    close(torch.ops.quincunx.layer_norm(x), torch.nn.functional.layer_norm(x.double(), (6,)))
    half, weight = torch.randn(3, 16).bfloat16(), torch.randn(16)
    close(
        torch.ops.quincunx.rms_norm(half, weight),
        torch.nn.functional.rms_norm(half.double(), (16,), weight.double(), 1e-6),
    )


def test_bad_input_names_the_argument():
    x = torch.randn(3, 4)
    with pytest.raises(RuntimeError, match="TYPE_ERROR: x: expected a float32, bfloat16 or float16 tensor"):
        torch.ops.quincunx.rms_norm(x.double())
    with pytest.raises(RuntimeError, match="INVALID_ARGUMENT: weight: expected one dimension of 4 elements"):
        torch.ops.quincunx.rms_norm(x, torch.randn(5))
    with pytest.raises(RuntimeError, match="eps: expected a finite number that is not negative, got -1"):
        torch.ops.quincunx.layer_norm(x, eps=-1.0)


@pytest.mark.parametrize("dtype", ROUNDING)
def test_norms_after_a_residual_equal_two_steps(dtype):
    x, residual, weight = torch.randn(3, 40).to(dtype), torch.randn(3, 40).to(dtype), torch.randn(40).to(dtype)
    y, total = torch.ops.quincunx.add_rms_norm(x, residual, weight, 1e-5)
    assert torch.equal(total, x + residual)
    assert torch.equal(y, torch.ops.quincunx.rms_norm(total, weight, 1e-5))
    y, total = torch.ops.quincunx.add_layer_norm(x, residual, weight, weight)
    assert torch.equal(total, x + residual)
    assert torch.equal(y, torch.ops.quincunx.layer_norm(total, weight, weight))


@pytest.mark.parametrize("dtype", ROUNDING)
def test_modulated_norms_equal_torch(dtype):
    x, weight = torch.randn(2, 5, 24).to(dtype), torch.randn(24).to(dtype)
    scale, shift = torch.randn(2, 1, 24).to(dtype), torch.randn(2, 1, 24).to(dtype)
    normal = torch.nn.functional.layer_norm(x.double(), (24,))
    y = torch.ops.quincunx.modulated_layer_norm(x, scale, shift)
    torch.testing.assert_close(
        y.double(), normal * (1 + scale.double()) + shift.double(), rtol=1.01 * ROUNDING[dtype], atol=2**-18
    )
    normal = torch.nn.functional.rms_norm(x.double(), (24,), weight.double(), 1e-6)
    y = torch.ops.quincunx.modulated_rms_norm(x, weight, scale, shift)
    torch.testing.assert_close(
        y.double(), normal * (1 + scale.double()) + shift.double(), rtol=1.01 * ROUNDING[dtype], atol=2**-18
    )


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("silu", [False, True])
def test_group_norm_equals_torch_in_its_memory_order(dtype, channels_last, silu):
    x, weight, bias = torch.randn(2, 12, 5, 7).to(dtype), torch.randn(12).to(dtype), torch.randn(12).to(dtype)
    x = x.to(memory_format=torch.channels_last) if channels_last else x
    y = torch.ops.quincunx.group_norm(x, 3, weight, bias, 1e-5, silu)
    assert y.stride() == x.stride()
    expected = torch.nn.functional.group_norm(x.double(), 3, weight.double(), bias.double())
    expected = torch.nn.functional.silu(expected) if silu else expected
    torch.testing.assert_close(y.double(), expected, rtol=1.01 * ROUNDING[dtype], atol=2**-18)
