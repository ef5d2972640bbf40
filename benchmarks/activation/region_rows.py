"""What a region costs, and what its policy costs for each operator: tiny operators, so that nothing else counts."""

import contextlib
import functools
from collections.abc import Callable, Iterator

import torch
from quincunx.activation import Policy, Rule, checkpoint
from quincunx.cli.bench.capability import Context, Task
from quincunx.cli.bench.rounds import interleave
from quincunx.cli.bench.row import Measurement
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts
from torch.utils.checkpoint import checkpoint as torch_checkpoint

_NUM_OPERATORS = 200
_SIDE = 16


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _chain(x: torch.Tensor) -> torch.Tensor:
    for _ in range(_NUM_OPERATORS // 2):
        x = x.sin().exp()
    return x


def _save_sin(context: object, op: object, *args: object, **kwargs: object) -> CheckpointPolicy:
    is_kept = op is torch.ops.aten.sin.default
    return CheckpointPolicy.MUST_SAVE if is_kept else CheckpointPolicy.PREFER_RECOMPUTE


def _selective(x: torch.Tensor) -> torch.Tensor:
    contexts = functools.partial(create_selective_checkpoint_contexts, _save_sin)
    return torch_checkpoint(_chain, x, use_reentrant=False, context_fn=contexts)


def _step(run: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> Callable[[], object]:
    return lambda: run(x).sum().backward()


def _forward(x: torch.Tensor) -> Callable[[], object]:
    def run() -> None:
        with torch.no_grad():
            _chain(x)

    return run


def measure_operators(context: Context) -> list[Measurement]:
    x = torch.zeros(_SIDE, _SIDE, requires_grad=True)
    policy = Policy([Rule(op="aten.sin", action="SAVE")])
    calls = {
        "ours": _step(lambda t: checkpoint(_chain, t, policy=policy), x),
        "torch": _step(_selective, x),
        "plain": _step(_chain, x),
        "forward": _forward(x),
    }
    with one_thread():
        seconds = interleave(calls, context.rounds())

    def each(name: str, *, above: bool) -> list[float]:
        """Microseconds an operator; `above`: beyond the step without a region and the replay."""
        rows = zip(seconds[name], seconds["plain"], seconds["forward"], strict=True)
        # No less than a nanosecond: a ratio is taken of it.
        return [
            max(1e-3, (own - (plain + forward if above else 0.0)) / _NUM_OPERATORS * 1e6)
            for own, plain, forward in rows
        ]

    name = f"policy, {_NUM_OPERATORS} tiny operators, forward + backward, each"
    peer = "torch selective checkpoint"
    return [
        Measurement(
            "per_operator", f"{name}, above", "us", each("ours", above=True), {peer: each("torch", above=True)}
        ),
        Measurement("per_operator_total", name, "us", each("ours", above=False), {peer: each("torch", above=False)}),
    ]


def measure_region(context: Context) -> list[Measurement]:
    x = torch.zeros(_SIDE, _SIDE, requires_grad=True)
    calls = {
        "ours": _step(lambda t: checkpoint(torch.sin, t), x),
        "torch": _step(lambda t: torch_checkpoint(torch.sin, t, use_reentrant=False), x),
        "plain": _step(torch.sin, x),
    }
    with one_thread():
        seconds = interleave(calls, context.rounds())

    def fixed(name: str) -> list[float]:
        return [max(1e-3, (own - plain) * 1e6) for own, plain in zip(seconds[name], seconds["plain"], strict=True)]

    peers = {"torch checkpoint": fixed("torch")}
    return [Measurement("region", "region of one operator, above none", "us", fixed("ours"), peers)]


TASKS = (
    Task(("per_operator", "per_operator_total"), measure_operators),
    Task(("region",), measure_region),
)
