"""Runs a function as several ranks, each in a process forked after the imports, with a hard time limit."""

import dataclasses
import datetime
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import quincunx.mccl
import torch
import torch._dynamo  # Functional collectives and fully_shard import it: once, before the ranks are forked.
import torch.distributed as dist

# Forking is safe only where no thread has been started.
torch.set_num_threads(1)

FORK = multiprocessing.get_context("fork")


@dataclasses.dataclass
class Outcome:
    """What became of one rank. `kind`: "returned", "raised", "crashed" or "hung"; `classes`: of what it raised."""

    kind: str
    value: Any = None
    classes: tuple[str, ...] = ()


def _rank_main(rank: int, world: int, start: Callable, body: Callable, results: Any) -> None:
    torch.set_num_threads(1)
    # torch names groups by this count, in which starts that failed in the parent are left: a rank that starts again
    # begins at 0, and would not meet one that is new.
    dist.distributed_c10d._world.group_count = 0
    try:
        start(rank, world)
        value = body(rank, world)
        if dist.is_initialized():
            dist.destroy_process_group()
        results.put((rank, Outcome("returned", value)))
    except BaseException as error:  # Whatever it is, the parent reports it.
        classes = tuple(cls.__name__ for cls in type(error).__mro__)
        text = "".join(traceback.format_exception(error)) if isinstance(error, AssertionError) else str(error)
        results.put((rank, Outcome("raised", text, classes)))
    os._exit(0)


def _collect(processes: list, results: Any, wall_s: float) -> list[Outcome]:
    outcomes: dict[int, Outcome] = {}

    def drain() -> None:
        while not results.empty():
            rank, outcome = results.get()
            outcomes[rank] = outcome

    deadline = time.monotonic() + wall_s
    while any(process.is_alive() for process in processes) and time.monotonic() < deadline:
        drain()
        time.sleep(0.01)
    hung = [process.is_alive() for process in processes]
    for process in processes:
        process.kill()
        process.join()
    drain()
    for rank, process in enumerate(processes):
        if rank not in outcomes:
            outcomes[rank] = Outcome("hung") if hung[rank] else Outcome("crashed", process.exitcode)
    return [outcomes[rank] for rank in range(len(processes))]


@pytest.fixture
def start_ranks(tmp_path) -> Callable:
    """start_ranks(world, body, ...) -> one Outcome a rank; the test judges them."""
    num_calls = 0

    def run(
        world: int,
        body: Callable[[int, int], Any],
        *,
        backend: str = "mccl",
        timeout_s: float = 20,
        wall_s: float = 60,
        start: Callable[[int, int], None] | None = None,
    ) -> list[Outcome]:
        nonlocal num_calls
        num_calls += 1
        path = tmp_path / f"store{num_calls}"

        def initialise(rank: int, world: int) -> None:
            timeout = datetime.timedelta(seconds=timeout_s)
            dist.init_process_group(backend, init_method=f"file://{path}", rank=rank, world_size=world, timeout=timeout)

        results = FORK.SimpleQueue()
        arguments = (world, start or initialise, body, results)
        processes = [FORK.Process(target=_rank_main, args=(rank, *arguments)) for rank in range(world)]
        for process in processes:
            process.start()
        return _collect(processes, results, wall_s)

    return run


@pytest.fixture
def run_ranks(start_ranks) -> Callable:
    """run_ranks(world, body, ...) -> what each rank returned; fails where one did not return."""

    def run(world: int, body: Callable[[int, int], Any], **options: Any) -> list[Any]:
        outcomes = start_ranks(world, body, **options)
        if any(outcome.kind != "returned" for outcome in outcomes):
            pytest.fail("\n".join(f"rank {rank}: {outcome}" for rank, outcome in enumerate(outcomes)))
        return [outcome.value for outcome in outcomes]

    return run


@pytest.fixture(autouse=True)
def _forbid_gloo(monkeypatch) -> None:
    """mccl delegates nothing: no test of it may construct gloo, unless it asks for a reference."""

    def refuse(*_args: Any, **_kwargs: Any) -> None:
        raise AssertionError("gloo was constructed")

    monkeypatch.setattr(dist.distributed_c10d, "ProcessGroupGloo", type("ProcessGroupGloo", (), {"__init__": refuse}))


@pytest.fixture
def with_tcp_store() -> None:
    """Asked for by tests of env://, tcp:// and torch's own store."""


@pytest.fixture(autouse=True)
def _forbid_tcp_store(request, monkeypatch) -> None:
    """Nor may any other test construct torch's TCPStore."""

    def refuse(*_args: Any, **_kwargs: Any) -> None:
        raise AssertionError("a TCPStore was constructed")

    if "with_tcp_store" in request.fixturenames:
        return
    for module in (dist, sys.modules["torch.distributed.rendezvous"], dist.distributed_c10d):
        if hasattr(module, "TCPStore"):
            monkeypatch.setattr(module, "TCPStore", refuse)


assert quincunx.mccl  # Importing it registered the backend that init_process_group is asked for.
