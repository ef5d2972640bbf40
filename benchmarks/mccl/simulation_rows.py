"""How long `qx plan comm` takes to simulate the start of 100,000 ranks, and that it comes up within its bounds."""

import json
import pathlib
import subprocess
import time

from quincunx._library import library_directory
from quincunx.cli.bench.capability import Context, Task
from quincunx.cli.bench.row import Measurement

NUM_RANKS = 100_000
_MOST_LEVELS = 4
_LIMIT_S = 300


def simulate(program: pathlib.Path, num_ranks: int) -> tuple[float, dict]:
    """Seconds of the whole command, and its plan. RuntimeError unless every rank came up, at most 4 levels deep."""
    command = [program, "plan", "comm", "--ranks", str(num_ranks), "--json"]
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S)
    elapsed = time.perf_counter() - start
    if done.returncode != 0:
        raise RuntimeError(f"{program.name} plan comm ended with {done.returncode}: {done.stderr[-2000:]}")
    plan = json.loads(done.stdout)
    if plan["ready_ranks"] != num_ranks or plan["depth"] > _MOST_LEVELS:
        raise RuntimeError(f"{plan['ready_ranks']} of {num_ranks} ranks came up, {plan['depth']} levels deep")
    return elapsed, plan


def measure_simulator(context: Context) -> list[Measurement]:
    program = library_directory().parent / "bin" / "qx"
    seconds = [simulate(program, NUM_RANKS)[0] for _ in range(1 if context.quick else 3)]
    return [Measurement("simulator_100000_ranks", f"simulator, {NUM_RANKS:,} ranks", "s", seconds)]


TASKS = (Task(("simulator_100000_ranks",), measure_simulator),)
