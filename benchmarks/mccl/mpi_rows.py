"""1 MiB of every operation against MPICH and Open MPI, in turns: whoever does not run sleeps."""

import contextlib
import json
import subprocess

import torch
from quincunx.cli.bench.capability import Context, Task
from quincunx.cli.bench.rounds import Rounds, slowest
from quincunx.cli.bench.row import Measurement

from . import collective_rows
from .groups import connect, in_step
from .mpi import MPIS, MpiJob
from .programs import find_program

_RANKS = 2
_MIB = 1 << 20
_CALLS = 10
_PROGRAM = "collectives_communicator_benchmark"
_PROGRAM_SECONDS = 120.0


def time_round(rank: int, num_ranks: int, store: str, *, operation: str, num_bytes: int, num_calls: int) -> list[float]:
    """Runs on each rank: one sample of mccl, on tensors that are kept from round to round."""
    import time

    group = connect(rank, num_ranks, store)["mccl"]
    call = collective_rows.collective(operation, num_bytes, group)
    with torch.inference_mode():
        return in_step({"mccl": call}, Rounds(1), num_calls, time.perf_counter)["mccl"]


def measure_against_mpi(context: Context) -> list[Measurement]:
    options = {"num_bytes": _MIB, "num_calls": _CALLS}
    rows = []
    with contextlib.ExitStack() as stack:
        jobs = [stack.enter_context(contextlib.closing(MpiJob(name, _RANKS, context.checkout))) for name in MPIS]
        for operation in collective_rows.OPERATIONS:
            ours: list[float] = []
            peers: dict[str, list[float]] = {job.name: [] for job in jobs}
            for _ in range(context.rounds().count):
                of_ranks = context.workers(_RANKS).run(__name__, "time_round", operation=operation, **options)
                ours += slowest(of_ranks)
                for job in jobs:
                    peers[job.name].append(job.sample(operation, _MIB, _CALLS))
            rows.append(
                Measurement(
                    "each_op_1_mib_mpi", "1 MiB, 2 ranks, against MPI", "us", ours, peers,
                    variant=operation, value_of=lambda cost: cost * 1e6,
                )
            )  # fmt: skip
    return rows


def measure_cpp(context: Context) -> list[Measurement]:
    """The C++ program, which forks its second rank itself."""
    program = find_program(_PROGRAM)
    result = subprocess.run(
        [
            program,
            "--benchmark_filter=BM_Latency",
            f"--benchmark_repetitions={context.rounds().count}",
            "--benchmark_format=json",
        ],
        capture_output=True,
        text=True,
        timeout=_PROGRAM_SECONDS,
        check=True,
    )
    runs = [run for run in json.loads(result.stdout)["benchmarks"] if run["run_type"] == "iteration"]
    seconds = [run["s_per_call"] for run in runs]
    name = "8 B all_reduce, 2 ranks, C++"
    return [Measurement("all_reduce_8_bytes_cpp", name, "us", seconds, value_of=lambda cost: cost * 1e6)]


TASKS = (
    Task(("all_reduce_8_bytes_cpp",), measure_cpp, cores=_RANKS),
    Task(("each_op_1_mib_mpi",), measure_against_mpi, cores=_RANKS),
)
