"""How long init_process_group holds up its caller: with a store that exists already, and over mccl://.

The ranks are forked from one process after the imports. They start each round together, so that at 64 ranks the slowest
one also waits for its turn on the cores. What torch itself takes for that is seen beside them: the group of its backend
"fake", which does nothing at all."""

import datetime
import os
import socket
import time
import warnings
from collections.abc import Callable

import torch.distributed as dist
from quincunx.cli.bench.capability import Context, Task
from quincunx.cli.bench.row import Measurement

_SIZES = (2, 64)
_WAYS = ("mccl, store=", "mccl://", "gloo", "lazy gloo", "fake")
_TIMEOUT = datetime.timedelta(seconds=60)
_UNREACHABLE_TIMEOUT = datetime.timedelta(seconds=2)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _start_together(rank: int, num_ranks: int, port: int) -> None:
    """A group that does nothing cannot make its ranks meet before a round."""
    dist.init_process_group(
        "mccl", init_method=f"mccl://127.0.0.1:{port}", rank=rank, world_size=num_ranks, timeout=_TIMEOUT
    )
    dist.barrier()
    dist.destroy_process_group()


def _initialise(way: str, rank: int, num_ranks: int, place: str, port: int) -> float:
    """Seconds of the call alone. `place`: of a file that no group has used."""
    os.environ["TORCH_GLOO_LAZY_INIT"] = "1" if way == "lazy gloo" else "0"
    store = None if way == "mccl://" else dist.FileStore(place, num_ranks)
    method = f"mccl://127.0.0.1:{port}" if way == "mccl://" else None
    backend = "mccl" if way.startswith("mccl") else way.removeprefix("lazy ")
    start = time.perf_counter()
    dist.init_process_group(backend, init_method=method, store=store, rank=rank, world_size=num_ranks, timeout=_TIMEOUT)
    return time.perf_counter() - start


def _fork(num_ranks: int, body: Callable[[int], list[float]]) -> list[list[float]]:
    """What body(rank) returned on each rank. RuntimeError where one failed."""
    read, write = os.pipe()
    pids = []
    for rank in range(num_ranks):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.write(write, (" ".join(map(repr, body(rank))) + "\n").encode())
                code = 0
            finally:
                os._exit(code)
        pids.append(pid)
    os.close(write)
    with open(read) as lines:
        results = [[float(value) for value in line.split()] for line in lines]
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    if any(codes):
        raise RuntimeError(f"the ranks ended with {sorted(set(codes))}")
    return results


def time_init(
    rank: int, num_ranks: int, store: str, *, ways: tuple[str, ...], size: int, rounds: int
) -> dict[str, list[float]]:
    """Way -> seconds of the slowest of `size` ranks in each round. Runs in one process, which holds no group."""
    import quincunx.mccl  # noqa: F401  Registers the backend.
    import torch.testing._internal.distributed.fake_pg  # noqa: F401  Registers "fake".

    warnings.simplefilter("ignore", DeprecationWarning)  # the process has threads, which the ranks do not use
    port = _free_port()

    def run_rounds(way: str, forked: int) -> list[float]:
        seconds = []
        for round_index in range(-1, rounds):
            _start_together(forked, size, port)
            place = f"{store}-{way.replace(' ', '-').replace('/', '')}-{size}-{round_index}"
            elapsed = _initialise(way, forked, size, place, port)
            if round_index >= 0:  # the first round loads what torch loads late
                seconds.append(elapsed)
            if way != "fake":
                dist.barrier()
            dist.destroy_process_group()
        return seconds

    slowest = {}
    for way in ways:
        of_ranks = _fork(size, lambda forked, way=way: run_rounds(way, forked))
        slowest[way] = [max(values) for values in zip(*of_ranks, strict=True)]
    return slowest


def time_init_alone(rank: int, num_ranks: int, store: str, *, rounds: int) -> dict[str, list[float]]:
    """The init of rank 1 of 2, whose root never comes."""
    import quincunx.mccl  # noqa: F401  Registers the backend.

    seconds: dict[str, list[float]] = {"store=": [], "mccl://": []}
    port = _free_port()
    for round_index in range(-1, rounds):
        for way in seconds:
            options = {"init_method": f"mccl://127.0.0.1:{port}"}
            if way == "store=":
                options = {"store": dist.FileStore(f"{store}-alone-{round_index}", 2)}
            start = time.perf_counter()
            dist.init_process_group("mccl", rank=1, world_size=2, timeout=_UNREACHABLE_TIMEOUT, **options)
            if round_index >= 0:
                seconds[way].append(time.perf_counter() - start)
            dist.destroy_process_group()
    return seconds


def _milliseconds(cost: float) -> float:
    return cost * 1e3


def measure_init(context: Context) -> list[Measurement]:
    rows = []
    for size in _SIZES:
        context.close()  # a new process: it must not hold a default group
        # 64 ranks of gloo that is not lazy take seconds a round.
        ways = _WAYS if size == _SIZES[0] else tuple(way for way in _WAYS if way != "gloo")
        rounds = context.rounds().count if size == _SIZES[0] else 7
        (seconds,) = context.workers(1).run(__name__, "time_init", ways=ways, size=size, rounds=rounds)
        context.close()
        peers = {way: seconds[way] for way in ways if "gloo" in way}
        peers["torch alone (fake)"] = seconds["fake"]
        for way in ways[:2]:
            variant = f"{way.removeprefix('mccl, ')}, {size} ranks"
            rows.append(
                Measurement(
                    "init_returns", "init returns", "ms", seconds[way], peers, variant=variant, value_of=_milliseconds
                )
            )
    return rows


def measure_unreachable(context: Context) -> list[Measurement]:
    context.close()
    (seconds,) = context.workers(1).run(__name__, "time_init_alone", rounds=context.rounds().count)
    context.close()
    return [
        Measurement(
            "init_returns_unreachable_root",
            "init returns with an unreachable root",
            "ms",
            values,
            variant=way,
            value_of=_milliseconds,
        )
        for way, values in seconds.items()
    ]


TASKS = (
    Task(("init_returns",), measure_init, cores=_SIZES[0]),
    Task(("init_returns_unreachable_root",), measure_unreachable),
)
