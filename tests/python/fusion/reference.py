"""What compiled functions are compared with: torch's eager operators, in float64 where that decides."""

import copy

import torch

# Float32 against float64 through a few dozen operators and sums of at most a few thousand terms near one.
FLOAT32_RELATIVE = 2e-5
# A 16-bit result against float64: the inputs are exact, so what is left in eager torch is each operator's rounding.
# Ours must not be farther from the float64 value than this many times that, or a unit in the last place.
EAGER_ERROR_FACTOR = 2.0
UNIT = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}


def value_and_gradients(function, *inputs):
    """function(*inputs), and the gradients of its results' weighted sum for each float input."""
    leaves = [
        tensor.detach().clone().requires_grad_() if tensor.is_floating_point() else tensor.clone() for tensor in inputs
    ]
    results = function(*leaves)
    results = [results] if isinstance(results, torch.Tensor) else list(results)
    # Weights that no symmetry cancels.
    total = sum(
        (result * torch.linspace(0.5, 1.5, result.numel(), dtype=result.dtype).reshape(result.shape)).sum()
        for result in results
        if result.requires_grad
    )
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    gradients = torch.autograd.grad(total, wanted, allow_unused=True)
    return [result.detach() for result in results], list(gradients)


def doubled(inputs):
    return [tensor.double() if tensor.is_floating_point() else tensor for tensor in inputs]


def double_module(module):
    return copy.deepcopy(module).double()


def assert_close(actual, expected, relative=FLOAT32_RELATIVE):
    """Elements near zero count against the largest one: their own size says nothing about rounding."""
    assert actual.shape == expected.shape
    scale = expected.abs().max().item() if expected.numel() else 0.0
    torch.testing.assert_close(
        actual.double(), expected.double(), rtol=relative, atol=relative * max(scale, 1e-30), equal_nan=True
    )


def assert_as_good_as_eager(actual, eager, exact):
    """For 16-bit results: the error against float64 is eager's or about as small."""
    assert actual.dtype == eager.dtype and actual.shape == eager.shape
    unit = UNIT[actual.dtype] * exact.abs().max().clamp(min=1e-30)
    ours, theirs = (actual.double() - exact).abs().max(), (eager.double() - exact).abs().max()
    assert ours <= EAGER_ERROR_FACTOR * theirs + unit
