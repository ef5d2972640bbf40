"""What compiling costs: CPU seconds of one network from empty caches, the kernels' part of it, and a compiled call."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import torch
from quincunx.cli.bench.capability import Context, Task
from quincunx.cli.bench.rounds import interleave
from quincunx.cli.bench.row import Measurement

from .threads import one_thread

NETWORK = "bert"
_TIMEOUT_S = 300


def _cold(how: str, checkout: pathlib.Path) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        path = os.pathsep.join(filter(None, [str(checkout), os.environ.get("PYTHONPATH")]))
        environment = os.environ | {
            "PYTHONPATH": path,
            "OMP_NUM_THREADS": "1",
            "QX_CACHE_DIR": f"{folder}/kernels",
            "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
            # In this process: seconds of workers would be those of no one's children.
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
        }
        result = subprocess.run(
            [sys.executable, "-m", "benchmarks.fusion.cold_compile", how, NETWORK],
            env=environment,
            cwd=checkout,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
        )
    if result.returncode != 0:
        raise RuntimeError(f"compiling {NETWORK} by {how} failed: {result.stderr[-500:]}")
    return json.loads(result.stdout.splitlines()[-1])


def measure_cold(context: Context) -> list[Measurement]:
    ways = ("Inductor", "ours", "alone")
    taken: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    for _ in range(1 if context.quick else 3):
        for way in ways:
            taken[way].append(_cold(way, context.checkout))
    rows = []
    for row_id, part, what in (("kernel_compile", "kernels", "kernels' part"), ("cold_compile", "whole", "whole")):
        name = f"cold compile of {NETWORK}, {what}, CPU seconds"
        seconds = {way: [round_[part] for round_ in rounds] for way, rounds in taken.items()}
        peers = {"Inductor": seconds["Inductor"]}
        rows.append(Measurement(row_id, name, "s", seconds["alone"], peers))
        rows.append(Measurement(f"{row_id}_inside", name, "s", seconds["ours"], peers, variant="inside Inductor"))
    return rows


def measure_call(context: Context) -> list[Measurement]:
    """A graph of next to no work: guards, the wrapper, one region."""
    torch._dynamo.reset()
    x = torch.randn(8)

    def small(tensor: torch.Tensor) -> torch.Tensor:
        return tensor * 2 + tensor.abs()

    stock = torch.compile(lambda tensor: small(tensor))
    ours = torch.compile(lambda tensor: small(tensor), backend="quincunx")
    with one_thread(), torch.no_grad():
        seconds = interleave({"ours": lambda: ours(x), "Inductor": lambda: stock(x)}, context.rounds())
    return [
        Measurement(
            "call_cost",
            "one compiled call of 8 elements",
            "us",
            seconds["ours"],
            {"Inductor": seconds["Inductor"]},
            value_of=lambda cost: cost * 1e6,
        )
    ]


TASKS = (
    Task(("call_cost",), measure_call),
    Task(("kernel_compile", "cold_compile"), measure_cold),
)
