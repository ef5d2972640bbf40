"""Collectives of two ranks: mccl and gloo in turn on the same tensors, and what memory alone would take."""

import functools
import os
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from quincunx.cli.bench.capability import Context, Task
from quincunx.cli.bench.rounds import Rounds, slowest
from quincunx.cli.bench.row import Measurement

from .groups import BACKENDS, connect, in_step

_RANKS, _MANY_RANKS = 2, (4, 8)
_MIB = 1 << 20
# Calls a sample: enough that a barrier's end, at which the ranks leave microseconds apart, weighs little.
_SMALL_CALLS, _MEDIUM_CALLS, _OVERSUBSCRIBED_CALLS = 300, 10, 50
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "gather", "scatter")
_BOUND = "staged memcpy bound"
_DIRECT_BOUND = "direct bound"
# Operation -> peer -> id of the row.
_LARGE = {
    "all_reduce": {_BOUND: "all_reduce_64_mib_staged", "gloo": "all_reduce_64_mib"},
    "all_gather": {"gloo": "all_gather_64_mib"},
    "reduce_scatter": {"gloo": "reduce_scatter_64_mib"},
}

Call = Callable[[], object]


def collective(operation: str, num_bytes: int, group: dist.ProcessGroup) -> Call:
    """The operation on a tensor of num_bytes: the reduced, sent, gathered or scattered one."""
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    whole = torch.ones(max(world, num_bytes // 4 // world * world))
    part = torch.ones(whole.numel() // world)
    received = torch.empty_like(whole)
    parts = list(torch.ones_like(whole).chunk(world)) if rank == 0 else None
    # MAX leaves equal values alone, however often it runs.
    largest = dist.ReduceOp.MAX
    calls: dict[str, Call] = {
        "all_reduce": lambda: dist.all_reduce(whole, op=largest, group=group),
        "all_gather": lambda: dist.all_gather_single(whole, part, group=group),
        "reduce_scatter": lambda: dist.reduce_scatter_single(part, whole, op=largest, group=group),
        "all_to_all": lambda: dist.all_to_all_single(received, whole, group=group),
        "broadcast": lambda: dist.broadcast(whole, 0, group=group),
        "reduce": lambda: dist.reduce(whole, 0, op=largest, group=group),
        "gather": lambda: dist.gather(part, parts, 0, group=group),
        "scatter": lambda: dist.scatter(part, parts, 0, group=group),
    }
    return calls[operation]


def _staged_bound(num_bytes: int) -> Call:
    """What an all_reduce of two ranks must move if it passes through shared memory: all in, half added, half out."""
    tensor, stage = torch.ones(num_bytes // 4), torch.ones(num_bytes // 4)
    half = tensor.numel() // 2

    def bound() -> None:
        stage.copy_(tensor)
        torch.maximum(tensor[:half], stage[:half], out=tensor[:half])
        tensor[half:].copy_(stage[half:])

    return bound


def _direct_bound(num_bytes: int) -> Call:
    """What it must move if each rank reads the other's tensor where it lies: half of it added, half copied."""
    tensor, peer = torch.ones(num_bytes // 4), torch.ones(num_bytes // 4)
    half = tensor.numel() // 2

    def bound() -> None:
        torch.maximum(tensor[:half], peer[:half], out=tensor[:half])
        tensor[half:].copy_(peer[half:])

    return bound


def time_allocated(rank: int, num_ranks: int, store: str, *, num_bytes: int, rounds: int) -> dict[str, list[float]]:
    """Runs on each rank: all_reduce of a tensor that the backend has allocated."""
    group = connect(rank, num_ranks, store)["mccl"]
    backend = group._get_backend(torch.device("cpu"))
    tensor = backend.allocate_tensor(num_bytes // 4, dtype=torch.float32, device=torch.device("cpu"))
    tensor.fill_(1.0)
    calls: dict[str, Call] = {
        "mccl": lambda: dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=group),
        _DIRECT_BOUND: _direct_bound(num_bytes),
    }
    with torch.inference_mode():
        return in_step(calls, Rounds(rounds), 1, time.perf_counter)


def time_operation(
    rank: int, num_ranks: int, store: str, *, operation: str, num_bytes: int, num_calls: int, rounds: int, bound: bool
) -> dict[str, list[float]]:
    """Runs on each rank."""
    groups = connect(rank, num_ranks, store)
    calls = {backend: collective(operation, num_bytes, groups[backend]) for backend in BACKENDS}
    if bound:
        calls[_BOUND] = _staged_bound(num_bytes)
    with torch.inference_mode():
        return in_step(calls, Rounds(rounds), num_calls, time.perf_counter)


def _seconds(
    context: Context, operation: str, num_bytes: int, num_calls: int, *, bound: bool = False, ranks: int = _RANKS
) -> dict[str, list[float]]:
    of_ranks = context.workers(ranks).run(
        __name__,
        "time_operation",
        operation=operation,
        num_bytes=num_bytes,
        num_calls=num_calls,
        rounds=context.rounds().count,
        bound=bound,
    )
    return {name: slowest([seconds[name] for seconds in of_ranks]) for name in of_ranks[0]}


def _microseconds(cost: float) -> float:
    return cost * 1e6


def _milliseconds(cost: float) -> float:
    return cost * 1e3


def measure_small(context: Context) -> list[Measurement]:
    seconds = _seconds(context, "all_reduce", 8, _SMALL_CALLS)
    name, peers = "8 B all_reduce, 2 ranks, Python", {"gloo": seconds["gloo"]}
    return [
        Measurement(row_id, name, "us", seconds["mccl"], peers, value_of=_microseconds)
        for row_id in ("all_reduce_8_bytes_python", "all_reduce_8_bytes_gloo")
    ]


def measure_oversubscribed(num_ranks: int, context: Context) -> list[Measurement]:
    seconds = _seconds(context, "all_reduce", 8, _OVERSUBSCRIBED_CALLS, ranks=num_ranks)
    name = f"8 B all_reduce on {len(os.sched_getaffinity(0))} cores"
    row_id, peers = "all_reduce_8_bytes_oversubscribed", {"gloo": seconds["gloo"]}
    ours, variant = seconds["mccl"], f"{num_ranks} ranks"
    return [Measurement(row_id, name, "us", ours, peers, variant=variant, value_of=_microseconds)]


def measure_medium(operation: str, context: Context) -> list[Measurement]:
    seconds = _seconds(context, operation, _MIB, _MEDIUM_CALLS)
    name, peers = f"1 MiB {operation}, 2 ranks", {"gloo": seconds["gloo"]}
    return [Measurement(f"{operation}_1_mib", name, "us", seconds["mccl"], peers, value_of=_microseconds)]


def measure_allocated(context: Context) -> list[Measurement]:
    of_ranks = context.workers(_RANKS).run(
        __name__, "time_allocated", num_bytes=64 * _MIB, rounds=context.rounds().count
    )
    seconds = {name: slowest([values[name] for values in of_ranks]) for name in of_ranks[0]}
    name, peers = "64 MiB all_reduce, 2 ranks, allocated by the backend", {_DIRECT_BOUND: seconds[_DIRECT_BOUND]}
    return [Measurement("all_reduce_64_mib_direct", name, "ms", seconds["mccl"], peers, value_of=_milliseconds)]


def measure_large(operation: str, context: Context) -> list[Measurement]:
    row_ids = _LARGE[operation]
    seconds = _seconds(context, operation, 64 * _MIB, 1, bound=_BOUND in row_ids)
    name = f"64 MiB {operation}, 2 ranks"
    return [
        Measurement(row_id, name, "ms", seconds["mccl"], {peer: seconds[peer]}, value_of=_milliseconds)
        for peer, row_id in row_ids.items()
    ]


def _tasks() -> tuple[Task, ...]:
    small = Task(("all_reduce_8_bytes_python", "all_reduce_8_bytes_gloo"), measure_small, cores=_RANKS)
    medium = [
        Task((f"{operation}_1_mib",), functools.partial(measure_medium, operation), cores=_RANKS)
        for operation in OPERATIONS
    ]
    large = [
        Task(tuple(row_ids.values()), functools.partial(measure_large, operation), cores=_RANKS)
        for operation, row_ids in _LARGE.items()
    ]
    allocated = Task(("all_reduce_64_mib_direct",), measure_allocated, cores=_RANKS)
    crowded = [
        Task(("all_reduce_8_bytes_oversubscribed",), functools.partial(measure_oversubscribed, num_ranks), cores=_RANKS)
        for num_ranks in _MANY_RANKS
    ]
    return (small, *medium, *large, allocated, *crowded)


TASKS = _tasks()
