"""3 x 3 convolutions of stride 1, of which Winograd's are, against each of torch's layouts."""

import functools
from collections.abc import Callable

import torch
from quincunx._library import load_operators
from quincunx.cli.bench.capability import Context, Task
from quincunx.cli.bench.rounds import interleave
from quincunx.cli.bench.row import Measurement, Work
from torch.nn.functional import conv2d

# Channels and side of the image, at batch 1: the four stages of ResNet-50.
SHAPES = ((64, 56), (128, 28), (256, 14), (512, 7))
THREADS = (1, 2)
# What the kernel states, of the largest output.
_LARGEST_ERROR = 2e-5

Call = Callable[[], torch.Tensor]


def row_id(channels: int) -> str:
    return f"conv_3x3_{channels}"


def _prepacked(x: torch.Tensor, weight: torch.Tensor) -> Call | None:
    """oneDNN with a weight in the layout that it chooses, where this torch has oneDNN."""
    if not torch.backends.mkldnn.is_available():
        return None
    ones = [1, 1]
    packed = torch.ops.mkldnn._reorder_convolution_weight(weight, ones, ones, ones, 1, list(x.shape))
    convolve = torch.ops.mkldnn._convolution_pointwise
    return lambda: convolve(x, packed, None, ones, ones, ones, 1, "none", [], "")


def calls_for(channels: int, side: int) -> dict[str, Call]:
    """The same convolution by ours, channels-last as in a chain of layers, and by each peer."""
    load_operators()
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, channels, side, side, generator=generator)
    weight = torch.randn(channels, channels, 3, 3, generator=generator)
    x_last = x.to(memory_format=torch.channels_last)
    weight_last = weight.to(memory_format=torch.channels_last)
    packed = torch.ops.quincunx.pack_convolution_weight(weight, typical_output=[side, side])
    calls = {
        "ours": lambda: torch.ops.quincunx.convolution(x_last, packed, padding=[1], weight_shape=list(weight.shape)),
        "torch, NCHW": lambda: conv2d(x, weight, padding=1),
        "torch, channels-last": lambda: conv2d(x_last, weight_last, padding=1),
    }
    for name, image in (("oneDNN, prepacked", x), ("oneDNN, prepacked, channels-last", x_last)):
        if (call := _prepacked(image, weight)) is not None:
            calls[name] = call
    return calls


def check(calls: dict[str, Call], expected: torch.Tensor) -> None:
    """A wrong result is not worth timing."""
    bound = _LARGEST_ERROR * expected.abs().max().item()
    for name, call in calls.items():
        difference = (call().double() - expected).abs().max().item()
        if not difference <= bound:
            raise RuntimeError(f"{name} computes another convolution: it differs by {difference:.3g}")


def measure(channels: int, side: int, threads: int, context: Context) -> list[Measurement]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.inference_mode():
            calls = calls_for(channels, side)
            check(calls, calls["torch, NCHW"]().double())
            seconds = interleave(calls, context.rounds(pause_s=0.02 if threads > 1 else 0.0))
    finally:
        torch.set_num_threads(before)
    work = Work(18.0 * channels * channels * side * side, 4 * (9 * channels * channels + 2 * channels * side * side))
    ours = seconds.pop("ours")
    name = f"convolution 3 x 3, {channels} channels, {side} x {side}"
    unit = "GF/s of a direct sum"

    def giga_of(cost: float) -> float:
        return 1e-9 * work.operations / cost

    return [Measurement(row_id(channels), name, unit, ours, seconds, threads, value_of=giga_of, work=work)]


TASKS = tuple(
    Task((row_id(channels),), functools.partial(measure, channels, side, threads), threads, cores=threads)
    for channels, side in SHAPES
    for threads in THREADS
)
