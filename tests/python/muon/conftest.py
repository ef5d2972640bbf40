"""run_ranks: a function as several ranks, each in a process forked after the imports, with a hard time limit."""

import datetime
import importlib.util
import multiprocessing
import os
import time
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint
import torch.distributed.fsdp  # noqa: F401  imported before the fork, once
from quincunx._library import library_directory, load_operators

load_operators()
# Forking is safe only where no thread has been started.
torch.set_num_threads(1)

FORK = multiprocessing.get_context("fork")


def _has_mccl() -> bool:
    return (
        importlib.util.find_spec("quincunx.mccl") is not None
        and (library_directory() / "_quincunx_distributed.so").exists()
    )


BACKENDS = ["gloo", pytest.param("mccl", marks=pytest.mark.skipif(not _has_mccl(), reason="mccl was not built"))]


def _rank_main(rank: int, world: int, body: Callable, results: Any, options: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    try:
        if options["backend"] == "mccl":
            import quincunx.mccl  # noqa: F401  registers the backend
        dist.init_process_group(
            options["backend"],
            init_method=f"file://{options['store']}",
            rank=rank,
            world_size=world,
            timeout=datetime.timedelta(seconds=options["timeout_s"]),
        )
        value = body(rank, world)
        dist.destroy_process_group()
        results.put((rank, "returned", value))
    except BaseException as error:  # Whatever it is, the parent reports it.
        text = traceback.format_exc() if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
        results.put((rank, "raised", text))
    os._exit(0)


@pytest.fixture
def start_ranks(tmp_path) -> Callable:
    """start_ranks(world, body, ...) -> (kind, value) of each rank; kind: "returned", "raised", "crashed" or "hung"."""
    calls = []

    def run(world: int, body: Callable, *, backend="gloo", timeout_s: float = 20, wall_s: float = 60) -> list[tuple]:
        calls.append(None)
        options = {"backend": backend, "timeout_s": timeout_s, "store": tmp_path / f"store{len(calls)}"}
        results = FORK.SimpleQueue()
        processes = [FORK.Process(target=_rank_main, args=(r, world, body, results, options)) for r in range(world)]
        for process in processes:
            process.start()
        outcomes: dict[int, tuple] = {}
        deadline = time.monotonic() + wall_s
        while len(outcomes) < world and time.monotonic() < deadline:
            while not results.empty():
                rank, *outcome = results.get()
                outcomes[rank] = tuple(outcome)
            if not any(process.is_alive() for process in processes) and results.empty():
                break
            time.sleep(0.01)
        hung = [process.is_alive() and rank not in outcomes for rank, process in enumerate(processes)]
        for process in processes:
            process.kill()
            process.join()
        return [outcomes.get(rank, ("hung" if hung[rank] else "crashed", None)) for rank in range(world)]

    return run


@pytest.fixture
def run_ranks(start_ranks) -> Callable:
    """run_ranks(world, body, ...) -> what each rank returned; fails where one did not return."""

    def run(world: int, body: Callable, **options: Any) -> list[Any]:
        outcomes = start_ranks(world, body, **options)
        if any(kind != "returned" for kind, _ in outcomes):
            pytest.fail("\n".join(f"rank {rank}: {kind}\n{value}" for rank, (kind, value) in enumerate(outcomes)))
        return [value for _, value in outcomes]

    return run


@pytest.fixture(params=BACKENDS)
def backend(request) -> str:
    return request.param
