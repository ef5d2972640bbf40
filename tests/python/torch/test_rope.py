"""torch.ops.quincunx.rope against formulas written in torch, in double precision."""

import pytest
import torch
from quincunx._library import load_operators


@pytest.fixture(autouse=True)
def operators():
    load_operators()
    torch.manual_seed(0)


def tables(positions, pairs):
    angles = torch.arange(positions).double()[:, None] * 10000.0 ** (-torch.arange(pairs).double() / pairs)
    return angles.cos().float(), angles.sin().float()


def rotate(x_BSHD, cos, sin, interleaved):
    """The pairs as complex numbers, multiplied by the turn of their position."""
    pairs = cos.shape[1]
    rotary, rest = x_BSHD[..., : 2 * pairs].double(), x_BSHD[..., 2 * pairs :].double()
    a, b = (rotary[..., 0::2], rotary[..., 1::2]) if interleaved else rotary.split(pairs, dim=-1)
    turned = torch.complex(a, b) * torch.complex(cos.double(), sin.double())[:, None, :]
    parts = [turned.real, turned.imag]
    joined = torch.stack(parts, dim=-1).flatten(-2) if interleaved else torch.cat(parts, dim=-1)
    return torch.cat([joined, rest], dim=-1)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("pairs", [20, 12])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_equals_complex_multiplication_in_both_layouts(interleaved, pairs, dtype):
    x_BSHD = torch.randn(2, 9, 3, 40).to(dtype)
    cos, sin = tables(9, pairs)
    expected = rotate(x_BSHD, cos, sin, interleaved)
    rounding = 2**-8 if dtype == torch.bfloat16 else 0
    for dim in (1, 2):
        x = x_BSHD if dim == 1 else x_BSHD.transpose(1, 2).contiguous()
        y = torch.ops.quincunx.rope(x, cos, sin, interleaved=interleaved, sequence_dim=dim)
        # Two products and a sum of numbers below 8, each rounded once.
        y_BSHD = y if dim == 1 else y.transpose(1, 2)
        torch.testing.assert_close(y_BSHD.double(), expected, rtol=1.01 * rounding, atol=3 * 8 * 2**-24)


def test_bad_input_names_the_argument():
    x, (cos, sin) = torch.randn(1, 4, 2, 8), tables(4, 4)
    with pytest.raises(RuntimeError, match="INVALID_ARGUMENT: sequence_dim: expected 1 or 2, got 3"):
        torch.ops.quincunx.rope(x, cos, sin, sequence_dim=3)
    with pytest.raises(RuntimeError, match="INVALID_ARGUMENT: cos: expected one row for each of the 4 positions"):
        torch.ops.quincunx.rope(x, cos[:3], sin[:3])
    with pytest.raises(RuntimeError, match="TYPE_ERROR: cos: expected a float32 tensor"):
        torch.ops.quincunx.rope(x, cos.double(), sin)
