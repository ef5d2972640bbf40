"""200 seeded faults: whether every survivor names exactly the ranks that are to blame, and how long after its deadline.

The cases are those of tests/collectives/fault_cases_test.cpp, with one process a rank and without PyTorch."""

import collections
import json
import os
import pathlib
import subprocess
import tempfile

from quincunx.cli.bench.capability import Context, Task
from quincunx.cli.bench.row import Measurement

from .programs import find_program

NUM_CASES = 200
_PROGRAM = "collectives_fault_cases_test"
_LIMIT_S = 900


def run_cases(program: pathlib.Path, num_cases: int) -> list[dict]:
    """What each survivor was told: `seed`, `rank`, `problem` (empty where all is right), `delay_s`, `message`."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        chosen = {"QX_FAULT_CASES": f"0-{num_cases - 1}", "QX_FAULT_REPORT": str(report)}
        command = [program, "--gtest_filter=FaultCases.EverySurvivor*"]
        done = subprocess.run(command, env=os.environ | chosen, capture_output=True, text=True, timeout=_LIMIT_S)
        if done.returncode != 0:
            said = done.stdout[-2000:] + done.stderr[-2000:]
            raise RuntimeError(f"{program.name} ended with {done.returncode}: {said}")
        return json.loads(report.read_text())


def summarise(reports: list[dict]) -> tuple[int, int, float]:
    """Cases in which every survivor was right, all cases, and the longest delay after a deadline in seconds."""
    of_case: dict[int, list[dict]] = collections.defaultdict(list)
    for report in reports:
        of_case[report["seed"]].append(report)
    num_right = sum(all(report["problem"] == "" for report in case) for case in of_case.values())
    return num_right, len(of_case), max(report["delay_s"] for report in reports)


def measure_faults(context: Context) -> list[Measurement]:
    reports = run_cases(find_program(_PROGRAM), NUM_CASES)
    num_right, num_cases, delay_s = summarise(reports)
    rank_sets = Measurement(
        "faults_rank_sets",
        f"faults: exact rank set in all of {NUM_CASES} seeded cases",
        "cases",
        [float(num_right)],
        {"all": [float(num_cases)]},
    )
    return [rank_sets, Measurement("faults_delay", "faults: raised after the deadline", "s", [max(delay_s, 0.0)])]


TASKS = (Task(("faults_rank_sets", "faults_delay"), measure_faults, cores=0),)
