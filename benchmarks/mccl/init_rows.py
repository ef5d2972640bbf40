"""How long init_process_group holds up its caller, with a store that exists already."""

import datetime
import pathlib
import time

import torch.distributed as dist
from quincunx.cli.bench.capability import Context, Task
from quincunx.cli.bench.rounds import slowest
from quincunx.cli.bench.row import Measurement

from .groups import BACKENDS

_RANKS = 2
_TIMEOUT = datetime.timedelta(seconds=60)
_UNREACHABLE_TIMEOUT = datetime.timedelta(seconds=2)


def _init_seconds(backend: str, rank: int, num_ranks: int, path: pathlib.Path) -> float:
    """The call alone; the group is used once and destroyed after it."""
    store = dist.FileStore(str(path), num_ranks)
    start = time.perf_counter()
    dist.init_process_group(backend, store=store, rank=rank, world_size=num_ranks, timeout=_TIMEOUT)
    elapsed = time.perf_counter() - start
    dist.barrier()
    dist.destroy_process_group()
    return elapsed


def time_init(rank: int, num_ranks: int, store: str, *, rounds: int) -> dict[str, list[float]]:
    """Runs on each rank, before any other group exists there."""
    import quincunx.mccl  # noqa: F401  Registers the backend.

    seconds: dict[str, list[float]] = {backend: [] for backend in BACKENDS}
    for round_index in range(-1, rounds):
        for backend in BACKENDS:
            path = pathlib.Path(f"{store}-init-{backend}-{round_index}")
            elapsed = _init_seconds(backend, rank, num_ranks, path)
            if round_index >= 0:  # the first round loads what torch loads late
                seconds[backend].append(elapsed)
    return seconds


def time_init_alone(rank: int, num_ranks: int, store: str, *, rounds: int) -> list[float]:
    """The init of a rank whose root, rank 0 of a larger group, never comes."""
    import quincunx.mccl  # noqa: F401  Registers the backend.

    seconds = []
    for round_index in range(rounds):
        file_store = dist.FileStore(f"{store}-alone-{rank}-{round_index}", num_ranks + 1)
        start = time.perf_counter()
        dist.init_process_group(
            "mccl", store=file_store, rank=num_ranks, world_size=num_ranks + 1, timeout=_UNREACHABLE_TIMEOUT
        )
        seconds.append(time.perf_counter() - start)
        dist.destroy_process_group()
    return seconds


def _milliseconds(cost: float) -> float:
    return cost * 1e3


def measure_init(context: Context) -> list[Measurement]:
    context.close()  # new processes: these must not hold a default group
    of_ranks = context.workers(_RANKS).run(__name__, "time_init", rounds=context.rounds().count)
    seconds = {backend: slowest([values[backend] for values in of_ranks]) for backend in BACKENDS}
    name, peers = "init returns, store=, 2 ranks", {"gloo": seconds["gloo"]}
    return [Measurement("init_returns", name, "ms", seconds["mccl"], peers, value_of=_milliseconds)]


def measure_unreachable(context: Context) -> list[Measurement]:
    context.close()
    of_ranks = context.workers(1).run(__name__, "time_init_alone", rounds=context.rounds().count)
    context.close()
    name = "init returns with an unreachable root, store="
    return [Measurement("init_returns_unreachable_root", name, "ms", slowest(of_ranks), value_of=_milliseconds)]


TASKS = (
    Task(("init_returns",), measure_init, cores=_RANKS),
    Task(("init_returns_unreachable_root",), measure_unreachable),
)
