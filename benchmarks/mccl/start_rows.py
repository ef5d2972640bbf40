"""How long a job of 64 ranks on this host takes to its first collective, and what a new group of all costs.

Ranks are processes without PyTorch, and for one more row processes that are forked after its import."""

import ctypes
import json
import os
import pathlib
import subprocess
import tempfile
import time
import warnings

import torch
import torch.distributed as dist
from quincunx.cli.bench.capability import Context, Task
from quincunx.cli.bench.row import Measurement

from .programs import find_program

NUM_RANKS = 64
_LIMIT_S = 120
_INJECTED_S = 1.0
_CLONE_NEWNS = 0x20000
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 0x40000
# An address of TEST-NET-1: nobody answers there.
_DEAD_RESOLVER = "nameserver 192.0.2.1\n"


def run_program(
    name: str, num_ranks: int, *, options: tuple[str, ...] = (), dead_resolver: pathlib.Path | None = None
) -> dict:
    """The report of one run. RuntimeError where it failed."""
    program = find_program(name)
    command = [program, "--ranks", str(num_ranks), *options]
    prepare = None if dead_resolver is None else lambda: _use_resolver(dead_resolver)
    done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, preexec_fn=prepare)
    if done.returncode != 0:
        raise RuntimeError(f"{program.name} ended with {done.returncode}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def _use_resolver(path: pathlib.Path) -> None:
    """For this process and those that it starts, `path` is /etc/resolv.conf. Needs the right to mount."""
    libc = ctypes.CDLL(None, use_errno=True)
    for failed in (
        libc.unshare(_CLONE_NEWNS),
        libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None),
        libc.mount(str(path).encode(), b"/etc/resolv.conf", None, _MS_BIND, None),
    ):
        if failed:
            raise OSError(ctypes.get_errno(), "no right to mount another /etc/resolv.conf")


def _start_forked(num_ranks: int, port: int) -> float:
    """Seconds from the common start to the end of the last rank's first collective; the ranks are forked from here."""
    gate_read, gate_write = os.pipe()
    result_read, result_write = os.pipe()
    pids = []
    for rank in range(num_ranks):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.close(gate_write)
                os.read(gate_read, 1)
                dist.init_process_group(
                    "mccl", init_method=f"mccl://127.0.0.1:{port}?rank={rank}&world_size={num_ranks}"
                )
                value = torch.ones(1)
                dist.all_reduce(value)
                os.write(result_write, f"{time.monotonic()!r}\n".encode())
                code = 0 if value.item() == num_ranks else 2
                dist.barrier()
                dist.destroy_process_group()
            finally:
                os._exit(code)
        pids.append(pid)
    os.close(gate_read)
    os.close(result_write)
    time.sleep(0.3)  # all have been forked, and wait
    start = time.monotonic()
    os.close(gate_write)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    with open(result_read) as results:
        ends = [float(line) for line in results]
    if any(codes) or len(ends) != num_ranks:
        raise RuntimeError(f"the ranks ended with {sorted(set(codes))}")
    return max(ends) - start


def start_forked(rank: int, num_ranks: int, store: str, *, num_forked: int, rounds: int) -> list[float]:
    """Runs in a process of its own, which holds no group. The first round loads what torch loads late."""
    import socket

    import quincunx.mccl  # noqa: F401  Registers the backend.

    warnings.simplefilter("ignore", DeprecationWarning)  # the process has threads, which the ranks do not use
    seconds = []
    for round_index in range(-1, rounds):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        elapsed = _start_forked(num_forked, port)
        if round_index >= 0:
            seconds.append(elapsed)
    return seconds


def time_overlap(rank: int, num_ranks: int, store: str, *, rounds: int) -> dict[str, list[float]]:
    """Rank 0's seconds to the end of its first collective where the other rank comes a second late: with a second of
    work of its own before the collective, and without."""
    import quincunx.mccl  # noqa: F401  Registers the backend.

    seconds: dict[str, list[float]] = {"alone": [], "both": []}
    for round_index in range(rounds):
        for name, work_s in (("alone", 0.0), ("both", _INJECTED_S)):
            start = time.perf_counter()
            if rank != 0:
                time.sleep(_INJECTED_S)
            file_store = dist.FileStore(f"{store}-overlap-{name}-{round_index}", num_ranks)
            dist.init_process_group("mccl", store=file_store, rank=rank, world_size=num_ranks)
            if rank == 0:
                end_of_work = time.perf_counter() + work_s
                while time.perf_counter() < end_of_work:
                    time.sleep(0.001)
            dist.barrier()
            seconds[name].append(time.perf_counter() - start)
            dist.barrier()
            dist.destroy_process_group()
            time.sleep(0.2)  # both ranks begin the next round together
    return seconds


def _milliseconds(cost: float) -> float:
    return cost * 1e3


def measure_start(context: Context) -> list[Measurement]:
    rounds = context.rounds().count
    reports, dead = [], []
    with tempfile.TemporaryDirectory() as folder:
        resolver = pathlib.Path(folder) / "resolv.conf"
        resolver.write_text(_DEAD_RESOLVER)
        for _ in range(rounds):
            reports.append(run_program("collectives_start_benchmark", NUM_RANKS))
            dead.append(run_program("collectives_start_benchmark", NUM_RANKS, dead_resolver=resolver))
    seconds = [report["seconds"] for report in reports]
    name = f"{NUM_RANKS} ranks on 2 cores: start to end of first collective"
    with_dead = f"{NUM_RANKS} ranks on 2 cores with a dead name server: unchanged"
    return [
        Measurement("start_64_ranks", name, "s", seconds),
        Measurement(
            "start_64_ranks_dead_name_server",
            with_dead,
            "s",
            [report["seconds"] for report in dead],
            {"no dead name server": seconds},
        ),
        Measurement(
            "new_group_64",
            f"new group of {NUM_RANKS}",
            "ms",
            [report["new_group_seconds"] for report in reports],
            value_of=_milliseconds,
        ),
        Measurement(
            "new_group_64_descriptors",
            f"new group of {NUM_RANKS}: file descriptors before and after are the same",
            "descriptors",
            [float(report["descriptors"] + report["new_descriptors"]) for report in reports],
            {"before": [float(report["descriptors"]) for report in reports]},
        ),
        Measurement(
            "descriptors_64_ranks",
            f"file descriptors a rank at {NUM_RANKS} ranks in all",
            "descriptors",
            [float(report["descriptors"]) for report in reports],
        ),
    ]


def measure_forked_start(context: Context) -> list[Measurement]:
    context.close()  # new processes: these must not hold a default group
    rounds = 3 if context.quick else 7
    (seconds,) = context.workers(1).run(__name__, "start_forked", num_forked=NUM_RANKS, rounds=rounds)
    context.close()
    name = f"{NUM_RANKS} ranks on 2 cores: start to end of first collective"
    return [Measurement("start_64_ranks", name, "s", seconds, variant="forked after import torch, mccl://")]


def measure_overlap(context: Context) -> list[Measurement]:
    context.close()
    of_ranks = context.workers(2).run(__name__, "time_overlap", rounds=3 if context.quick else 7)
    context.close()
    seconds = of_ranks[0]
    longer = [max(alone, _INJECTED_S) for alone in seconds["alone"]]
    name = "overlap: total against max(init, other work), 1 s injected into each"
    return [Measurement("overlap", name, "s", seconds["both"], {"the longer": longer})]


TASKS = (
    Task(
        (
            "start_64_ranks",
            "start_64_ranks_dead_name_server",
            "new_group_64",
            "new_group_64_descriptors",
            "descriptors_64_ranks",
        ),
        measure_start,
        cores=2,
    ),
    Task(("start_64_ranks",), measure_forked_start, cores=2),
    Task(("overlap",), measure_overlap),
)
