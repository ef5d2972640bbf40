"""4,096 virtual ranks over real sockets, what `qx plan comm` says of them and of 64 processes, and how long it takes
to simulate 100,000.

Both sides are times from the common start until the last rank is connected, on both cores of this machine, without a
spread of starts: of each real run, how far the simulated time is off.
"""

import json
import subprocess
import time

from quincunx.cli.bench.capability import Context, Task
from quincunx.cli.bench.row import Measurement

from .programs import find_program
from .start_rows import NUM_RANKS as NUM_PROCESSES
from .start_rows import run_program

NUM_RANKS = 100_000
NUM_VIRTUAL_RANKS = 4096
_MOST_LEVELS = 5
_LIMIT_S = 300
_CORES = 2


def plan(*arguments: str) -> tuple[float, dict]:
    """Seconds of the whole command, and what it prints."""
    program = find_program("qx")
    start = time.perf_counter()
    command = [program, "plan", "comm", "--json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S)
    elapsed = time.perf_counter() - start
    if done.returncode != 0:
        raise RuntimeError(f"qx plan comm {' '.join(arguments)} ended with {done.returncode}: {done.stderr[-2000:]}")
    return elapsed, json.loads(done.stdout)


def simulate(num_ranks: int) -> float:
    """Seconds. RuntimeError unless every rank came up, at most 5 levels deep."""
    elapsed, found = plan("--ranks", str(num_ranks))
    if found["ready_ranks"] != num_ranks or found["depth"] > _MOST_LEVELS:
        raise RuntimeError(f"{found['ready_ranks']} of {num_ranks} ranks came up, {found['depth']} levels deep")
    return elapsed


def _on_this_machine(num_ranks: int, ranks_per_host: int) -> tuple[str, ...]:
    job = ("--ranks", str(num_ranks), "--ranks-per-host", str(ranks_per_host))
    return (*job, "--one-machine", "--cores", str(_CORES), "--skew", "0")


def connect(num_ranks: int) -> dict:
    """What virtual ranks, each a host of its own, took to connect over loopback; "simulated_s" is what it should be."""
    found = plan(*_on_this_machine(num_ranks, 1), "--measure")[1]
    return found["measured"] | {"simulated_s": found["bootstrap_s"]}


def percent_off(simulated_s: float, real_s: float) -> float:
    return 100 * abs(simulated_s - real_s) / real_s


def measure_simulator(context: Context) -> list[Measurement]:
    seconds = [simulate(NUM_RANKS) for _ in range(1 if context.quick else 3)]
    return [Measurement("simulator_100000_ranks", f"simulator, {NUM_RANKS:,} ranks", "s", seconds)]


def measure_virtual_ranks(context: Context) -> list[Measurement]:
    runs = [connect(NUM_VIRTUAL_RANKS) for _ in range(3 if context.quick else 7)]
    name = f"{NUM_VIRTUAL_RANKS:,} virtual ranks"

    def row(suffix: str, what: str, unit: str, values: list[float]) -> Measurement:
        return Measurement(f"virtual_4096_ranks{suffix}", f"{name}{what}", unit, [float(value) for value in values])

    return [
        row("", ", real loopback sockets", "s", [run["bootstrap_s"] for run in runs]),
        row("_connections", ": connections a non-root rank", "connections", [r["connections"]["rank"] for r in runs]),
        row("_fan_in", ": fan-in", "connections", [run["fan_in"] for run in runs]),
        row("_bytes", ": bytes a rank", "KB", [run["bytes_received"]["rank"] / 1e3 for run in runs]),
        Measurement(
            "simulator_virtual_4096_ranks",
            f"simulator against real runs of {name}",
            "%",
            [percent_off(run["simulated_s"], run["bootstrap_s"]) for run in runs],
        ),
    ]


def measure_processes(context: Context) -> list[Measurement]:
    simulated_s = plan(*_on_this_machine(NUM_PROCESSES, NUM_PROCESSES), "--processes")[1]["bootstrap_s"]
    runs = [
        run_program("collectives_start_benchmark", NUM_PROCESSES, options=("--ready",))["ready_seconds"]
        for _ in range(5 if context.quick else 11)
    ]
    name = f"simulator against real runs of {NUM_PROCESSES} processes"
    return [Measurement("simulator_64_processes", name, "%", [percent_off(simulated_s, run) for run in runs])]


_VIRTUAL = (
    "virtual_4096_ranks",
    "virtual_4096_ranks_connections",
    "virtual_4096_ranks_fan_in",
    "virtual_4096_ranks_bytes",
    "simulator_virtual_4096_ranks",
)
TASKS = (
    Task(_VIRTUAL, measure_virtual_ranks, cores=_CORES),
    Task(("simulator_64_processes",), measure_processes, cores=_CORES),
    Task(("simulator_100000_ranks",), measure_simulator),
)
