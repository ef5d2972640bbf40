"""The six headline networks: eager, stock Inductor and ours, interleaved in one process. Inference in f32."""

import functools
import math
from collections.abc import Callable, Mapping

import quincunx.fusion
import torch
from quincunx.cli.bench.capability import Context, Task
from quincunx.cli.bench.rounds import Call, interleave
from quincunx.cli.bench.row import Measurement

from .networks import NETWORKS, build
from .threads import one_thread

# The figures that were announced for six networks, on other machines against other peers: not comparable.
ANNOUNCED = {
    "bert": 4.46,
    "vit_small": 2.10,
    "speech_transformer": 1.92,
    "clip": 1.39,
    "resnet18": 1.33,
    "dcgan": 1.15,
}
# Of results near one: float32 through a few dozen layers.
_TOLERANCE = 2e-3

# Seconds a round of each network, for the row of all six.
_taken: dict[str, Mapping[str, list[float]]] = {}


def _compiled(model: torch.nn.Module, inputs: tuple[torch.Tensor, ...], **options) -> Callable[[], torch.Tensor]:
    """A call of the model as `torch.compile(model, **options)` makes it, apart from what others have compiled."""
    function = torch.compile(lambda *tensors: model(*tensors), **options)
    return lambda: function(*inputs)


def calls_for(name: str) -> dict[str, Call]:
    model, inputs = build(name)
    calls = {
        "eager": lambda: model(*inputs),
        "Inductor": _compiled(model, inputs),
        "ours": _compiled(model, inputs, options=quincunx.fusion.inductor_options()),
        "ours, stand-alone": _compiled(model, inputs, backend="quincunx"),
    }
    expected = calls["eager"]()
    for maker, call in calls.items():
        difference = (call() - expected).abs().max().item() / expected.abs().max().item()
        if not difference <= _TOLERANCE:
            raise RuntimeError(f"{name}: {maker} computes something else: it differs by {difference:.2g}")
    return calls


def measure(name: str, context: Context) -> list[Measurement]:
    torch._dynamo.reset()
    with one_thread(), torch.no_grad():
        seconds = dict(interleave(calls_for(name), context.rounds()))
    _taken[name] = seconds
    text = f"{name}, f32 inference (announced elsewhere: {ANNOUNCED[name]}, not comparable)"
    row = f"network_{name}"
    alone = Measurement(row, text, "s", seconds["ours, stand-alone"], {"Inductor": seconds["Inductor"]}, 1, "alone")
    rows = [Measurement(row, text, "s", seconds["ours"], {"Inductor": seconds["Inductor"]}), alone]
    if name == "resnet18":
        rows.append(
            Measurement("resnet18_eager", "resnet18 against eager", "s", best(name), {"eager": seconds["eager"]})
        )
    return rows


def best(name: str) -> list[float]:
    """Of our two ways the one of the lower median: a user takes one of them."""
    seconds = _taken[name]
    return min((seconds["ours"], seconds["ours, stand-alone"]), key=lambda costs: sorted(costs)[len(costs) // 2])


def _geometric_mean(of_networks: list[list[float]]) -> list[float]:
    return [math.exp(sum(map(math.log, costs)) / len(costs)) for costs in zip(*of_networks, strict=True)]


def measure_six(_context: Context) -> list[Measurement]:
    missing = sorted(set(NETWORKS) - set(_taken))
    if missing:
        raise RuntimeError(f"{', '.join(missing)} could not be measured")
    name = "six networks, geometric mean"
    ours = _geometric_mean([best(network) for network in NETWORKS])
    eager = _geometric_mean([_taken[network]["eager"] for network in NETWORKS])
    return [Measurement("six_eager", f"{name}, against eager", "s", ours, {"eager": eager})]


TASKS = (
    *(
        Task(
            (f"network_{name}", "resnet18_eager") if name == "resnet18" else (f"network_{name}",),
            functools.partial(measure, name),
        )
        for name in NETWORKS
    ),
    # It reads what the others have taken.
    Task(("six_eager",), measure_six, cores=0),
)
