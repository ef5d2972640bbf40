"""torch.ops.quincunx.softmax against torch in double precision."""

import pytest
import torch
from quincunx._library import load_operators


@pytest.fixture(autouse=True)
def operators():
    load_operators()
    torch.manual_seed(0)


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_equals_torch_along_any_dimension(dim, dtype):
    x = (3 * torch.randn(4, 7, 19)).to(dtype)
    y = torch.ops.quincunx.softmax(x, dim)
    expected = torch.softmax(x.double(), dim)
    # f32: the differences to the maximum (below 32) are rounded once, exp turns that into 32 * 2^-24 relative.
    rounding = {torch.float32: 2**-18, torch.bfloat16: 2**-8, torch.float16: 2**-10}[dtype]
    # float16 is spaced 2^-24 below 2^-14.
    torch.testing.assert_close(y.double(), expected, rtol=1.01 * rounding, atol=2**-25 if dtype == torch.float16 else 0)


def test_infinities_and_nan_are_those_of_torch():
    inf = float("inf")
    x = torch.tensor([[-inf, -inf, -inf], [-inf, 1, 2], [inf, 1, 2], [float("nan"), 1, 2]])
    torch.testing.assert_close(torch.ops.quincunx.softmax(x), torch.softmax(x, -1), equal_nan=True)


def test_bad_input_names_the_argument():
    with pytest.raises(RuntimeError, match="TYPE_ERROR: x: expected a float32, bfloat16 or float16 tensor"):
        torch.ops.quincunx.softmax(torch.arange(3))
    with pytest.raises(RuntimeError, match="INVALID_ARGUMENT: dim: expected -2 to 1, got 2"):
        torch.ops.quincunx.softmax(torch.randn(2, 3), 2)
    with pytest.raises(RuntimeError, match="INVALID_ARGUMENT: x: expected at least one dimension, got a scalar"):
        torch.ops.quincunx.softmax(torch.tensor(1.0))
