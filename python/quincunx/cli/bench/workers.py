"""Processes of one thread that run the ranks of a measurement, with a time limit on each answer."""

import importlib
import multiprocessing
import os
import pathlib
import sys
import tempfile
import time
import traceback
from multiprocessing.connection import Connection
from typing import Any

from .instruction_set import restrict_as_parent

# Importing torch takes seconds, so the processes are started once. Forking is not safe once torch has threads.
_SPAWN = multiprocessing.get_context("spawn")
ANSWER_SECONDS = 300.0
_END_SECONDS = 5.0


def _answer(module: str, function: str, rank: int, num_ranks: int, store: str, options: dict[str, Any]) -> tuple:
    """(True, the result) or (False, what was raised)."""
    try:
        return True, getattr(importlib.import_module(module), function)(rank, num_ranks, store, **options)
    except BaseException as error:  # Whatever it is, the parent reports it.
        return False, f"{type(error).__name__}: {error}\n{traceback.format_exc(limit=-2)}"


def _run_commands(pipe: Connection, rank: int, num_ranks: int, checkout: str, store: str) -> None:
    """Calls module.function(rank, num_ranks, store, **options) for each command, until the pipe is closed."""
    sys.path.insert(0, checkout)
    import torch

    torch.set_num_threads(1)
    restrict_as_parent()
    try:
        while True:
            module, function, options = pipe.recv()
            pipe.send(_answer(module, function, rank, num_ranks, store, options))
    except (EOFError, ConnectionError):
        os._exit(0)  # Groups of a failed row may have threads that would hold up a usual exit.


class Workers:
    """`run` calls a function on all ranks at once and returns their results."""

    def __init__(self, num_ranks: int, checkout: pathlib.Path) -> None:
        self.num_ranks = num_ranks
        self._folder = tempfile.TemporaryDirectory(prefix="quincunx-bench-")
        self._processes = []
        self._pipes: list[Connection] = []
        store = str(pathlib.Path(self._folder.name) / "store")
        for rank in range(num_ranks):
            ours, theirs = _SPAWN.Pipe()
            arguments = (theirs, rank, num_ranks, str(checkout), store)
            process = _SPAWN.Process(target=_run_commands, args=arguments, daemon=True)
            process.start()
            theirs.close()
            self._processes.append(process)
            self._pipes.append(ours)

    def run(self, module: str, function: str, *, limit_s: float = ANSWER_SECONDS, **options: Any) -> list[Any]:
        """What function(rank, num_ranks, store_path, **options) returned on each rank. RuntimeError names the rank
        that raised, ended or gave no answer in time; the workers are of no further use then."""
        for pipe in self._pipes:
            pipe.send((module, function, options))
        deadline = time.monotonic() + limit_s
        results = []
        for rank, pipe in enumerate(self._pipes):
            if not pipe.poll(max(0.0, deadline - time.monotonic())):
                raise RuntimeError(f"{module}.{function}: rank {rank} gave no answer within {limit_s:g} s")
            try:
                succeeded, result = pipe.recv()
            except EOFError:
                raise RuntimeError(f"{module}.{function}: rank {rank} ended") from None
            if not succeeded:
                raise RuntimeError(f"{module}.{function}: rank {rank}: {result}")
            results.append(result)
        return results

    def close(self) -> None:
        """Ends the processes, by force where they do not end by themselves."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(_END_SECONDS)
            if process.is_alive():
                process.kill()
                process.join()
        self._folder.cleanup()
