"""PyTorch's own cases for backends, `_DistTestBase`, run unmodified on mccl: a program that reports as JSON lines.

    python dist_test_cases.py --report FILE [--case NAME ...]

A case says by name which backends it is for. mccl is entered where torch lists what its backends can do. A case that
is still closed to it is taken as the one for gloo, then as the one for MPI: the name is read when the module is
loaded, so each is a copy of the module that was loaded under that name, and only runs with "mccl".
"""

import argparse
import importlib.util
import json
import os
import sys
import tempfile
import time
import types
import unittest

os.environ.setdefault("WORLD_SIZE", "3")
os.environ.setdefault("TEMP_DIR", tempfile.gettempdir())
os.environ["BACKEND"] = "mccl"
os.environ["MASTER_PORT"] = "0"
os.environ["INIT_METHOD"] = f"file://{os.environ['TEMP_DIR']}/mccl_dist_test_{os.getpid()}"

import quincunx.mccl
import torch
import torch.distributed as dist
from torch.testing._internal.common_distributed import DistTestCases

GATES = ("mccl", "gloo", "mpi")
_MODULE = "torch.testing._internal.distributed.distributed_test"

assert quincunx.mccl  # Importing it registered the backend.
torch.set_num_threads(1)  # The ranks are forked, which is safe only where no thread was started.
for feature in ("ddp", "subgroup", "plugin"):
    DistTestCases.backend_feature[feature].add("mccl")


class _BackendName(str):
    """ "mccl", which is also equal to the name of the gate: cases ask for that while they run, too."""

    def __new__(cls, gate: str) -> "_BackendName":
        name = super().__new__(cls, "mccl")
        name.gate = gate
        return name

    def __eq__(self, other: object) -> bool:
        return other in ("mccl", self.gate)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash("mccl")


def _load(gate: str) -> types.ModuleType:
    """The module as it is for the backend `gate`, made to run mccl."""
    spec = importlib.util.find_spec(_MODULE)
    name = f"{_MODULE}_{gate}"
    spec = importlib.util.spec_from_file_location(name, spec.origin)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # Objects that are sent between ranks are found by it.
    os.environ["BACKEND"] = gate
    spec.loader.exec_module(module)
    os.environ["BACKEND"], module.BACKEND = "mccl", _BackendName(gate)
    for backends in (module.PROFILING_SUPPORTED_BACKENDS, module.SEND_RECV_PROFILING_SUPPORTED_BACKENDS):
        backends.append("mccl")
    return module


def _test_class(module: types.ModuleType) -> type[unittest.TestCase]:
    class ForkedCase(module.TestDistBackend, module.DistributedTest._DistTestBase):
        def setUp(self) -> None:
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    return ForkedCase


def _is_closed(case: type[unittest.TestCase], name: str) -> bool:
    return getattr(getattr(case, name), "__unittest_skip__", False)


class _Report(unittest.TestResult):
    """Writes what became of each case as soon as it has ended."""

    def __init__(self, path: str, gate_of: dict[str, str]) -> None:
        super().__init__()
        self._path, self._gate_of = path, gate_of

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self._start = time.monotonic()

    def _write(self, test: unittest.TestCase, outcome: str, detail: str = "") -> None:
        name = test.id().rsplit(".", 1)[-1]
        seconds = round(time.monotonic() - self._start, 2)
        row = {"case": name, "gate": self._gate_of[name], "outcome": outcome, "seconds": seconds, "detail": detail}
        with open(self._path, "a") as report:
            report.write(json.dumps(row) + "\n")

    def addSuccess(self, test: unittest.TestCase) -> None:
        self._write(test, "passed")

    def addFailure(self, test: unittest.TestCase, err: tuple) -> None:
        self._write(test, "failed", str(err[1]))

    addError = addFailure

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self._write(test, "skipped", reason)


_gloo = dist.distributed_c10d.ProcessGroupGloo


def _refuse(*_args: object, **_kwargs: object) -> object:
    # torch's own checker of calls, which this level asks for, is made of gloo.
    if dist.get_debug_level() != dist.DebugLevel.DETAIL:
        raise AssertionError("gloo was constructed")
    return _gloo(*_args, **_kwargs)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--report", required=True)
    parser.add_argument("--case", action="append")
    arguments = parser.parse_args()
    classes = {gate: _test_class(_load(gate)) for gate in GATES}
    cases = arguments.case or unittest.TestLoader().getTestCaseNames(classes["mccl"])
    open_gates = {name: [gate for gate in GATES if not _is_closed(classes[gate], name)] for name in cases}
    gate_of = {name: gates[0] if gates else GATES[0] for name, gates in open_gates.items()}
    dist.distributed_c10d.ProcessGroupGloo = _refuse
    suite = unittest.TestSuite(classes[gate_of[name]](name) for name in cases)
    suite.run(_Report(arguments.report, gate_of))


if __name__ == "__main__":
    main()
