"""PyTorch's own sample inputs for operators that regions are made of: our kernels against the eager operator."""

import functools

import pytest
import torch
from quincunx.fusion import Settings, counters, decompositions
from quincunx.fusion.fuser import fuse_graph
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.common_methods_invocations import op_db

FLOATING = (
    "abs add amax amin ceil clamp div eq exp expm1 floor ge gt le lerp log log1p lt maximum mean minimum mul ne neg "
    "nn.functional.gelu nn.functional.layer_norm nn.functional.relu nn.functional.silu nn.functional.softplus pow "
    "reciprocal round rsqrt sigmoid sign sin softmax sqrt square sub sum tanh trunc var where"
).split()
INTEGER = "abs add bitwise_and bitwise_or bitwise_xor eq ge maximum minimum mul ne neg sub sum where".split()
CASES = [(name, torch.float32) for name in FLOATING] + [(name, torch.int32) for name in INTEGER]
NUM_SAMPLES = 6


@functools.cache
def operators():
    found = {}
    for info in op_db:
        found.setdefault(info.name, info)
    return found


def used_once_more(result):
    """A second operator: one alone is no region."""
    if result.dtype == torch.bool:
        return ~result
    return result * 1.5 if result.is_floating_point() else result + result


def fused(function, *inputs):
    module = make_fx(function, decomposition_table=decompositions.table(), tracing_mode="fake")(*inputs)
    fuse_graph(module.graph, Settings())
    module.recompile()
    return module(*inputs)


@pytest.mark.parametrize(("name", "dtype"), CASES, ids=lambda value: str(value).removeprefix("torch."))
def test_samples_of_pytorch(name, dtype):
    info = operators()[name]
    run_before, num_checked = counters()["regions_run"], 0
    for sample in info.sample_inputs("cpu", dtype):
        tensors = [value for value in (sample.input, *sample.args) if isinstance(value, torch.Tensor)]
        if not isinstance(sample.input, torch.Tensor) or num_checked == NUM_SAMPLES:
            continue

        def function(*given, sample=sample):
            others = iter(given)
            values = [next(others) if isinstance(v, torch.Tensor) else v for v in (sample.input, *sample.args)]
            return used_once_more(info.op(*values, **sample.kwargs))

        torch.testing.assert_close(fused(function, *tensors), function(*tensors), rtol=1e-5, atol=1e-5, equal_nan=True)
        num_checked += 1
    assert num_checked > 0
    assert counters()["regions_run"] > run_before
