"""Functions for which a kernel calls the C library: whatever LLVM makes of the call can be linked."""

import pytest
import torch

FUNCTIONS = {
    "exp2": lambda x: torch.exp2(x) * 1.5,
    "power_of_two": lambda x: 2.0**x + 1,
    "integer_power_of_two": lambda x: 2.0 ** x.to(torch.int32) + 1,
    "power_of_ten": lambda x: 10.0**x + 1,
    "square_root": lambda x: (x.abs() + 0.1) ** 0.5 + 1,
    "cube": lambda x: x**3 + 1,
    "sine_and_cosine": lambda x: x.sin() * x.cos(),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_it_runs_as_a_kernel_with_the_value_of_float64(name, dtype, new_counts):
    x = torch.linspace(-3, 3, 37, dtype=dtype)
    actual = torch.compile(FUNCTIONS[name], backend="quincunx")(x)
    # The C library's error, 1 unit in the last place, twice, and three roundings: 5 units.
    relative = 5 * torch.finfo(dtype).eps
    torch.testing.assert_close(actual.double(), FUNCTIONS[name](x.double()).double(), rtol=relative, atol=relative)
    assert new_counts()["regions_run"] == 1
