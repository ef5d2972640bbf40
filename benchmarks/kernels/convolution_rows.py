"""Each layer of four networks against the best of torch's layouts: NCHW, channels-last, oneDNN's own."""

import functools
import math
import statistics
from collections.abc import Callable, Sequence

import torch
from quincunx._library import load_operators
from quincunx.cli.bench.capability import Context, Task
from quincunx.cli.bench.rounds import Rounds, interleave
from quincunx.cli.bench.row import Measurement, Work, best_peer
from torch.utils import mkldnn

from .convolution_layers import LAYERS, Layer
from .kept_memory import kept_memory

GEOMEAN_ID = "conv_layers_geomean"
EACH_ID = "conv_each_layer"
THREADS = (1, 2)
# Layers of this many operations take tens of milliseconds a call: fewer rounds.
_MANY_OPERATIONS = 5e8
_LARGEST_ERROR = 2e-5  # of the largest output: what Winograd's kernel states

Call = Callable[[], torch.Tensor]
_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
_MODULES = {4: torch.nn.Conv2d, 5: torch.nn.Conv3d}


def _prepacked(layer: Layer, x: torch.Tensor, module: torch.nn.Module) -> Call:
    """oneDNN's convolution with a weight in the layout that it chooses for x."""
    ones = [1] * len(layer.kernel)
    stride, padding = list(layer.stride), list(layer.padding)
    packed = torch.ops.mkldnn._reorder_convolution_weight(
        module.weight, padding, stride, ones, layer.groups, list(x.shape)
    )
    arguments = (x, packed, module.bias, padding, stride, ones, layer.groups, "none", [], "")
    return lambda: torch.ops.mkldnn._convolution_pointwise(*arguments)


def calls_for(layer: Layer) -> dict[str, Call]:
    """The same convolution by ours, channels-last as in a chain of layers, and by each peer."""
    load_operators()
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, *layer.input, generator=generator)
    x_last = x.to(memory_format=_FORMATS[x.dim()])
    arguments = (layer.input[0], layer.out_channels, layer.kernel, layer.stride, layer.padding, 1, layer.groups)
    module = _MODULES[x.dim()](*arguments).eval().requires_grad_(False)
    module_last = _MODULES[x.dim()](*arguments).eval().requires_grad_(False)
    module_last.load_state_dict(module.state_dict())
    module_last.to(memory_format=_FORMATS[x.dim()])
    stride, padding = list(layer.stride), list(layer.padding)
    packed = torch.ops.quincunx.pack_convolution_weight(
        module.weight, stride, [], layer.groups, False, False, list(layer.output_sizes)
    )
    geometry = [*layer.weight_shape, *stride, *padding, *[1] * len(stride), layer.groups]
    calls = {
        "ours": lambda: torch.ops.quincunx.packed_convolution(x_last, packed, module.bias, geometry),
        "torch, NCHW": lambda: module(x),
        "torch, channels-last": lambda: module_last(x_last),
    }
    if torch.backends.mkldnn.is_available():
        blocked, x_blocked = mkldnn.to_mkldnn(module), x.to_mkldnn()
        calls["oneDNN, prepacked"] = _prepacked(layer, x_last, module)
        calls["oneDNN, blocked tensors"] = lambda: blocked(x_blocked)
    return calls


def check(calls: dict[str, Call]) -> None:
    """A wrong result is not worth timing."""
    expected = calls["torch, NCHW"]()
    bound = _LARGEST_ERROR * expected.abs().max().item()
    for name, call in calls.items():
        result = call()
        difference = ((result.to_dense() if result.is_mkldnn else result) - expected).abs().max().item()
        if not difference <= bound:
            raise RuntimeError(f"{name} computes another convolution: it differs by {difference:.3g}")


def _rounds(layer: Layer, threads: int, context: Context) -> Rounds:
    pause_s = 0.01 if threads > 1 else 0.0
    if layer.operations > _MANY_OPERATIONS:
        return Rounds(3, 0.0, pause_s)
    return Rounds(4, 0.003, pause_s) if context.quick else context.rounds(pause_s=pause_s)


# Threads -> layer -> times better than the best peer: what the rows of all layers are made of.
_ratios: dict[int, dict[Layer, float]] = {count: {} for count in THREADS}


def measure(layer: Layer, threads: int, context: Context) -> list[Measurement]:
    """Nothing in a quick run on several threads: no demand is made of it."""
    if context.quick and threads > 1:
        return []
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.inference_mode(), kept_memory():
            calls = calls_for(layer)
            check(calls)
            seconds = interleave(calls, _rounds(layer, threads, context))
    finally:
        torch.set_num_threads(before)
    ours = seconds.pop("ours")
    name, work = f"convolution, {layer}", Work(layer.operations, layer.moved_bytes)
    row = Measurement(layer.row_id, name, "us", ours, seconds, threads, value_of=lambda s: s * 1e6, work=work)
    best = seconds[best_peer(row)]
    _ratios[threads][layer] = statistics.median(peer / own for own, peer in zip(ours, best, strict=True))
    return [row]


def geomean(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(math.log(value) for value in values))


def measure_all_layers(threads: int, context: Context) -> list[Measurement]:
    """The slowest and the mean of the rows before it; fails where one of them is missing."""
    if context.quick and threads > 1:
        return []
    ratios = _ratios[threads]
    missing = [str(layer) for layer in LAYERS if layer not in ratios]
    if missing:
        raise RuntimeError(f"no time was taken of {', '.join(missing)}")
    fast = sum(ratio >= 1 for ratio in ratios.values())
    slowest = min(ratios, key=ratios.__getitem__)
    peers = {"best of each layer": [1.0]}
    each = f"convolution, {fast} of {len(ratios)} layers at >= 1.0x, the slowest: {slowest}"
    mean = f"convolution, geometric mean of {len(ratios)} layers"
    return [
        Measurement(EACH_ID, each, "of the peer's time", [1 / ratios[slowest]], peers, threads),
        Measurement(GEOMEAN_ID, mean, "of the peer's time", [1 / geomean(list(ratios.values()))], peers, threads),
    ]


TASKS = (
    *(
        Task((layer.row_id,), functools.partial(measure, layer, threads), threads, cores=threads)
        for threads in THREADS
        for layer in LAYERS
    ),
    *(
        Task((EACH_ID, GEOMEAN_ID), functools.partial(measure_all_layers, threads), threads, cores=0)
        for threads in THREADS
    ),
)
