"""The f32 matrix product against the machine: its peak, its read bandwidth, and the product without epilogue."""

import functools
from collections.abc import Callable

import torch
from quincunx._library import load_operators
from quincunx.cli.bench.capability import Context, Task
from quincunx.cli.bench.peak import load_reader
from quincunx.cli.bench.rounds import Rounds, interleave
from quincunx.cli.bench.row import Measurement

from . import read_bandwidth
from .gemm_shapes import SHAPES, Shape

_PAUSE_S = 0.02
SQUARE = Shape("square", 2048, 2048, 2048)
# The layers of BERT-base's feed-forward part: the first has the activation, the second the residual.
LAYER = Shape("BERT-base", 128, 3072, 768)
SECOND_LAYER = Shape("BERT-base", 128, 768, 3072)
_CACHED_WEIGHT_BYTES = 10 << 20
STREAMED = tuple(shape for shape in SHAPES if shape.rows == 1 and shape.weight_bytes > _CACHED_WEIGHT_BYTES)


def peak_id(threads: int) -> str:
    return "gemm_peak" if threads == 1 else f"gemm_peak_{threads}_threads"


def bandwidth_id(shape: Shape) -> str:
    return f"{shape.row_id}_bandwidth"


def _operands(shape: Shape) -> tuple[torch.Tensor, torch.Tensor]:
    load_operators()
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(shape.rows, shape.inner, generator=generator)
    weight = torch.randn(shape.columns, shape.inner, generator=generator)
    return a, torch.ops.quincunx.pack_linear_weight(weight)


class _Threads:
    """PyTorch's number of threads inside, the old one after."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __enter__(self) -> None:
        self._before = torch.get_num_threads()
        torch.set_num_threads(self._count)

    def __exit__(self, *error: object) -> None:
        torch.set_num_threads(self._before)


def measure_peak(threads: int, context: Context) -> list[Measurement]:
    a, packed = _operands(SQUARE)
    read_peak = load_reader(context.checkout)
    ours, peak = [], []
    out = torch.empty(SQUARE.rows, SQUARE.columns)
    calls = {"ours": lambda: torch.ops.quincunx.packed_linear_out(a, packed, out=out)}
    with _Threads(threads), torch.inference_mode():
        for _ in range(context.num_steps):
            ours += interleave(calls, Rounds(1, 0.0, _PAUSE_S if threads > 1 else 0.0))["ours"]
            peak.append(SQUARE.operations / (read_peak(threads) * 1e9))
    name = f"gemm f32 {SQUARE}, packed weight, against the fused multiply-adds of the machine"
    rate = {"FMA peak": peak}
    return [
        Measurement(
            peak_id(threads), name, "GF/s", ours, rate, threads, value_of=lambda s: 1e-9 * SQUARE.operations / s
        )
    ]


def measure_bandwidth(shape: Shape, threads: int, context: Context) -> list[Measurement]:
    a, packed = _operands(shape)
    out = torch.empty(shape.rows, shape.columns)
    calls: dict[str, Callable[[], object]] = {
        "ours": lambda: torch.ops.quincunx.packed_linear_out(a, packed, out=out),
        read_bandwidth.NAME: read_bandwidth.reader(context.checkout, packed, threads),
    }
    with _Threads(threads), torch.inference_mode():
        seconds = interleave(calls, context.rounds(pause_s=_PAUSE_S if threads > 1 else 0.0))
    ours = seconds.pop("ours")
    name = f"gemm f32 {shape} ({shape.network}), against reading the weight"
    giga = 1e-9 * shape.weight_bytes
    return [Measurement(bandwidth_id(shape), name, "GB/s", ours, seconds, threads, value_of=lambda s: giga / s)]


def epilogues() -> dict[str, tuple[Shape, dict[str, object]]]:
    """Name -> layer and arguments of packed_linear."""
    bias, second = torch.randn(LAYER.columns), SECOND_LAYER
    residual = {"bias": torch.randn(second.columns), "residual": torch.randn(second.rows, second.columns)}
    activations = {
        name: (LAYER, {"bias": bias, "activation": name}) for name in ("relu", "gelu_tanh", "gelu_erf", "silu")
    }
    return {
        "bias": (LAYER, {"bias": bias}),
        "residual": (second, residual),
        "scale": (LAYER, {"scale": 0.5}),
        "row_scale": (second, {"row_scale": torch.randn(second.rows)}),
        **activations,
    }


def _epilogue_row(
    name: str, layer: Shape, calls: dict[str, Callable[[], object]], context: Context
) -> list[Measurement]:
    with _Threads(1), torch.inference_mode():
        seconds = interleave(calls, context.rounds(sample_s=0.04))
    ours = seconds.pop("ours")
    text = f"gemm f32 {layer}, epilogue {name}"
    return [Measurement(f"gemm_epilogue_{name}", text, "us", ours, seconds, value_of=lambda s: s * 1e6)]


def measure_epilogue(name: str, context: Context) -> list[Measurement]:
    layer, arguments = epilogues()[name]
    a, packed = _operands(layer)
    out = torch.empty(layer.rows, layer.columns)
    linear = torch.ops.quincunx.packed_linear_out
    calls = {
        "ours": lambda: linear(a, packed, **arguments, out=out),
        "without epilogue": lambda: linear(a, packed, out=out),
    }
    return _epilogue_row(name, layer, calls, context)


def measure_gated(context: Context) -> list[Measurement]:
    """Gate and up have half of the columns each: as many sums as the product without epilogue."""
    a, packed = _operands(LAYER)
    half = torch.randn(LAYER.columns // 2, LAYER.inner)
    gated = torch.ops.quincunx.pack_gated_weight(half, half.flip(0))
    calls = {
        "ours": lambda: torch.ops.quincunx.gated_linear(a, gated, LAYER.columns // 2),
        "without epilogue": lambda: torch.ops.quincunx.packed_linear(a, packed, LAYER.columns),
    }
    return _epilogue_row("gated", LAYER, calls, context)


_EPILOGUES = ("bias", "residual", "scale", "row_scale", "relu", "gelu_tanh", "gelu_erf", "silu")
TASKS = (
    *(Task((peak_id(count),), functools.partial(measure_peak, count), count, cores=count) for count in (1, 2)),
    *(
        Task((bandwidth_id(shape),), functools.partial(measure_bandwidth, shape, count), count, cores=count)
        for shape in STREAMED
        for count in (1, 2)
    ),
    *(Task((f"gemm_epilogue_{name}",), functools.partial(measure_epilogue, name)) for name in _EPILOGUES),
    Task(("gemm_epilogue_gated",), measure_gated),
)
