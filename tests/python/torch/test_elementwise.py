"""torch.ops.quincunx.unary and gated against torch in double precision."""

import pytest
import torch
from quincunx._library import load_operators

F = torch.nn.functional
FUNCTIONS = {
    "exp": torch.exp,
    "log": torch.log,
    "erf": torch.erf,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "gelu_erf": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "sin": torch.sin,
    "cos": torch.cos,
    "rsqrt": torch.rsqrt,
    "relu": torch.relu,
    "relu6": F.relu6,
    "gelu_quick": lambda x: x * torch.sigmoid(1.702 * x),
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "softplus": F.softplus,
}
# The type's rounding, and four units of f32.
ROUNDING = {torch.float32: 2**-21, torch.bfloat16: 1.01 * 2**-8, torch.float16: 1.01 * 2**-11}


@pytest.fixture(autouse=True)
def operators():
    load_operators()
    torch.manual_seed(0)


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_function_equals_torch(name, dtype):
    x = (3 * torch.randn(7, 37)).to(dtype)
    if name in ("log", "rsqrt"):
        x = x.abs() + 0.01
    expected = FUNCTIONS[name](x.double())
    for actual in (
        torch.ops.quincunx.unary(x, name),
        torch.ops.quincunx.unary(x.t(), name).t(),
        torch.ops.quincunx.unary(x.repeat_interleave(2, 1)[:, ::2], name),
    ):
        assert actual.dtype == dtype
        # torch's softplus is x itself beyond 20; gelu and hardswish cancel near their zeros.
        torch.testing.assert_close(actual.double(), expected, rtol=ROUNDING[dtype], atol=2**-20)


def test_angles_of_any_size_are_reduced():
    x = torch.tensor([1e8, -3e20, 3.4e38, 2.0**100])
    torch.testing.assert_close(torch.ops.quincunx.unary(x, "sin").double(), torch.sin(x.double()), rtol=2**-22, atol=0)
    torch.testing.assert_close(torch.ops.quincunx.unary(x, "cos").double(), torch.cos(x.double()), rtol=2**-22, atol=0)


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("name", ["silu", "gelu_erf", "gelu_tanh", "sigmoid", "relu"])
def test_gated_units_equal_torch(name, dtype):
    gate, up = torch.randn(5, 2 * 19).to(dtype).chunk(2, -1)
    expected = FUNCTIONS[name](gate.double()) * up.double()
    actual = torch.ops.quincunx.gated(gate, up, name)
    torch.testing.assert_close(actual.double(), expected, rtol=ROUNDING[dtype], atol=2**-20)


def test_bad_input_names_the_argument():
    x = torch.randn(3, 4)
    with pytest.raises(RuntimeError, match="INVALID_ARGUMENT: function: expected one of exp, log, .* got 'elu'"):
        torch.ops.quincunx.unary(x, "elu")
    with pytest.raises(RuntimeError, match="TYPE_ERROR: x: expected a float32, bfloat16 or float16 tensor"):
        torch.ops.quincunx.unary(x.double(), "exp")
    with pytest.raises(RuntimeError, match="up: expected the shape of gate float32.3, 4., got float32.4, 3."):
        torch.ops.quincunx.gated(x, x.t())
