"""Signals while a rank waits: handlers run, and what they raise ends the wait and not the operation."""

import gc
import os
import signal
import threading
import time

import pytest
import torch
import torch.distributed as dist
from mccl.ranks import sum_of_ranks
from quincunx import mccl
from torch.distributed import _functional_collectives as functional


class Turn:
    """The other ranks enter once rank 0 says so, or not at all: nobody ends its waits for it."""

    def __init__(self, path):
        self.path = path

    def give(self):
        self.path.touch()

    def await_it(self, seconds: float = 15):
        deadline = time.monotonic() + seconds
        while not self.path.exists():
            assert time.monotonic() < deadline, "the wait of rank 0 was not interrupted"
            time.sleep(0.01)


@pytest.fixture
def turn(tmp_path):
    return Turn(tmp_path / "turn")


def send_soon(number: int):
    """To this process, as a terminal does: the main thread is in its wait by then."""
    sender = threading.Timer(0.3, os.kill, (os.getpid(), number))
    sender.daemon = True
    sender.start()


def all_reduce():
    x = torch.full((50_000,), dist.get_rank() + 1.0)
    dist.all_reduce(x)
    return x[0].item()


def all_reduce_of_views():
    x = torch.full((300, 300), dist.get_rank() + 1.0).t()[::2]
    dist.all_reduce(x)
    return x[0, 0].item()


def all_reduce_later():
    x = torch.full((50_000,), dist.get_rank() + 1.0)
    dist.all_reduce(x, async_op=True).wait()
    return x[0].item()


def functional_all_reduce():
    x = torch.full((50_000,), dist.get_rank() + 1.0)
    return functional.wait_tensor(functional.all_reduce(x, "sum", dist.group.WORLD))[0].item()


def monitored_barrier():
    dist.monitored_barrier()
    return 3.0


@pytest.mark.parametrize(
    "collective", [all_reduce, all_reduce_of_views, all_reduce_later, functional_all_reduce, monitored_barrier]
)
def test_an_interrupted_operation_goes_on_without_its_caller(run_ranks, turn, collective):
    def body(rank, world):
        if rank == 1:
            turn.await_it()
            return collective(), sum_of_ranks()
        send_soon(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            collective()
        gc.collect()  # Nobody but the operation has its memory.
        turn.give()
        return 3.0, sum_of_ranks()

    assert run_ranks(2, body) == [(3.0, 3.0)] * 2


def test_an_interrupted_work_can_be_waited_for_again(run_ranks, turn):
    def body(rank, world):
        x = torch.full((50_000,), rank + 1.0)
        if rank == 1:
            turn.await_it()
        work = dist.all_reduce(x, async_op=True)
        if rank == 0:
            send_soon(signal.SIGINT)
            with pytest.raises(KeyboardInterrupt):
                work.wait()
            assert not work.is_completed()
            turn.give()
        work.wait()
        return x.unique().tolist()

    assert run_ranks(2, body) == [[3.0]] * 2


@pytest.mark.parametrize("main_waits_first", [False, True])
def test_only_the_main_thread_is_interrupted(run_ranks, turn, main_waits_first):
    def body(rank, world):
        other = dist.new_group()
        sums = []

        def sum_in_other():
            if main_waits_first:
                time.sleep(0.15)
            sums.append(sum_of_ranks(other))

        if rank == 1:
            turn.await_it()
            return sum_of_ranks(other), sum_of_ranks(), sum_of_ranks()
        thread = threading.Thread(target=sum_in_other)
        thread.start()
        if not main_waits_first:
            time.sleep(0.15)
        send_soon(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            sum_of_ranks()
        assert not sums
        turn.give()
        thread.join()
        return sums[0], 3.0, sum_of_ranks()

    assert run_ranks(2, body) == [(3.0, 3.0, 3.0)] * 2


def test_the_wait_for_a_group_is_interrupted(run_ranks, turn, tmp_path):
    def start(rank, world):
        if rank == 1:
            turn.await_it()
        dist.init_process_group("mccl", init_method=f"file://{tmp_path}/store", rank=rank, world_size=world)

    def body(rank, world):
        if rank == 0:
            send_soon(signal.SIGINT)
            with pytest.raises(KeyboardInterrupt):
                mccl.wait_ready(timeout=20)
            assert mccl.progress().ranks_missing == [1]
            turn.give()
        mccl.wait_ready(timeout=20)
        return sum_of_ranks()

    assert run_ranks(2, body, start=start) == [3.0, 3.0]


def test_a_handler_that_raises_nothing_runs_and_the_wait_goes_on(run_ranks, turn):
    def body(rank, world):
        if rank == 1:
            turn.await_it()
            return sum_of_ranks()
        signal.signal(signal.SIGUSR1, lambda *_: turn.give())
        send_soon(signal.SIGUSR1)
        return sum_of_ranks()

    assert run_ranks(2, body) == [3.0, 3.0]


def test_a_handler_may_end_the_group_that_is_waited_for(start_ranks, turn):
    def body(rank, world):
        if rank == 1:
            turn.await_it()
            return

        def end_the_group(*_):
            turn.give()
            dist.distributed_c10d._get_default_group().abort()

        signal.signal(signal.SIGUSR1, end_the_group)
        send_soon(signal.SIGUSR1)
        sum_of_ranks()

    outcome = start_ranks(2, body)[0]
    assert outcome.kind == "raised"
    assert "DistBackendError" in outcome.classes
    assert "abort() was called on rank 0" in outcome.value


def test_a_sparse_all_reduce_keeps_its_descriptions(start_ranks, turn):
    def body(rank, world):
        x = torch.eye(3).to_sparse()
        if rank == 1:
            turn.await_it()
            dist.all_reduce(x)
        send_soon(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            dist.all_reduce(x)
        turn.give()
        gc.collect()
        time.sleep(0.5)  # Rank 1 sends its description now.

    first, second = start_ranks(2, body, timeout_s=5)
    assert first.kind == "returned"
    assert second.kind == "raised"  # The values of rank 0 do not come.
    assert "DistBackendError" in second.classes
