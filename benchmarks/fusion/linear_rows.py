"""Linear layers of inference as one region, against torch's linear with a weight in MKL's packing."""

import functools
from collections.abc import Callable

import torch
from quincunx.cli.bench.capability import Context, Task
from quincunx.cli.bench.rounds import interleave
from quincunx.cli.bench.row import Measurement
from quincunx.fusion import Settings
from quincunx.fusion.backend import compile_with
from torch import fx, nn

from .threads import num_threads

# Rows, columns, inner: of transformers at a sequence of 128 or 197, and of one token with weights up to 10 MiB.
MANY_ROWS = ((128, 768, 768), (128, 3072, 768), (197, 1152, 384), (197, 1536, 384))
ONE_ROW = ((1, 512, 512), (1, 1408, 512), (1, 4000, 512))
_PAUSE_S = 0.06


def row_id(shape: tuple[int, int, int], threads: int) -> str:
    rows, columns, inner = shape
    return f"linear_{rows}x{columns}x{inner}" + ("_2_threads" if threads == 2 else "")


def region_call(layer: nn.Linear, x: torch.Tensor) -> Callable[[], torch.Tensor]:
    """The call of the layer's region, as it stands in a compiled graph."""
    graphs: list[fx.Graph] = []
    torch._dynamo.reset()
    backend = compile_with(Settings(), lambda _report, _before, after: graphs.append(after))
    torch.compile(layer, backend=backend)(x)
    calls = [node for node in graphs[0].nodes if node.target is torch.ops.quincunx.fused_region.default]
    if len(calls) != 1:
        raise RuntimeError(f"the linear layer became {len(calls)} regions, expected one")
    arguments, key, program = calls[0].args
    by_shape = {tuple(tensor.shape): tensor for tensor in (x, layer.weight, layer.bias)}
    inputs = [by_shape[tuple(node.meta["val"].shape)] for node in arguments]
    return lambda: torch.ops.quincunx.fused_region.default(inputs, key, program)[0]


def measure(shape: tuple[int, int, int], threads: int, context: Context) -> list[Measurement]:
    rows, columns, inner = shape
    torch.manual_seed(0)
    layer, x = nn.Linear(inner, columns), torch.randn(rows, inner)
    with num_threads(threads), torch.no_grad():
        packed = torch.ops.mkl._mkl_reorder_linear_weight(layer.weight, rows)
        calls = {
            "ours": region_call(layer, x),
            "MKL, packed": lambda: torch.ops.mkl._mkl_linear(x, packed, layer.weight, layer.bias, rows),
        }
        torch.testing.assert_close(calls["ours"](), calls["MKL, packed"](), rtol=1e-4, atol=1e-4)
        seconds = interleave(calls, context.rounds(pause_s=_PAUSE_S if threads > 1 else 0.0))
    gflop = 2e-9 * rows * columns * inner
    name = f"linear f32 {rows} x {columns} x {inner} with bias, as a region"
    peers = {"MKL, packed": seconds["MKL, packed"]}
    ours = seconds["ours"]
    return [Measurement(row_id(shape, threads), name, "GF/s", ours, peers, threads, value_of=lambda cost: gflop / cost)]


TASKS = tuple(
    Task((row_id(shape, threads),), functools.partial(measure, shape, threads), threads, cores=threads)
    for shape in (*MANY_ROWS, *ONE_ROW)
    for threads in (1, 2)
)
