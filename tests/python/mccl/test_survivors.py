"""After a failure: abort, and a new group of the ranks that are left, in the same processes."""

import os
import signal
import threading
import time

import pytest
import torch
import torch.distributed as dist
from mccl.ranks import SECONDS, free_port, num_threads_and_descriptors, sum_of_ranks
from quincunx import mccl


def test_survivors_start_again_in_the_same_processes(start_ranks):
    def start(rank, world):
        dist.init_process_group("mccl", init_method=urls[0], rank=rank, world_size=world, timeout=SECONDS)

    def body(rank, world):
        before = num_threads_and_descriptors()
        dist.destroy_process_group()
        idle = num_threads_and_descriptors()
        assert idle <= before
        start_again(urls[1], rank, world)
        assert sum_of_ranks() == 6.0
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        with pytest.raises(RuntimeError, match="rank 1"):
            for _ in range(1000):
                dist.all_reduce(torch.ones(1))
        dist.destroy_process_group()
        assert num_threads_and_descriptors() == idle
        start_again(urls[2], [0, None, 1][rank], 2)
        return sum_of_ranks()

    def start_again(url, rank, world):
        dist.init_process_group("mccl", init_method=url, rank=rank, world_size=world, timeout=SECONDS)

    urls = [f"mccl://127.0.0.1:{free_port()}" for _ in range(3)]
    outcomes = start_ranks(3, body, start=start)
    assert [outcome.value for outcome in (outcomes[0], outcomes[2])] == [3.0, 3.0], outcomes
    assert outcomes[1].kind == "crashed"


def test_abort_wakes_every_waiter_and_a_group_can_be_made_after_it(run_ranks):
    def start(rank, world):
        dist.init_process_group("mccl", init_method=urls[0], rank=rank, world_size=world, timeout=SECONDS)

    def body(rank, world):
        assert sum_of_ranks() == 3.0
        errors = []

        def wait():
            try:
                dist.all_reduce(torch.ones(1))
            except RuntimeError as error:
                errors.append(str(error))

        waiters = [threading.Thread(target=wait) for _ in range(3 if rank == 0 else 0)]
        for waiter in waiters:
            waiter.start()
        time.sleep(0.2 if rank == 0 else 0.6)  # Rank 1 enters nothing before rank 0 has given up.
        if rank == 0:
            dist.group.WORLD.abort()
        for waiter in waiters:
            waiter.join(5)
            assert not waiter.is_alive()
        with pytest.raises(RuntimeError):
            for _ in range(1000):
                dist.all_reduce(torch.ones(1))
        dist.destroy_process_group()
        dist.init_process_group("mccl", init_method=urls[1], rank=rank, world_size=world, timeout=SECONDS)
        return len(errors), sum_of_ranks()

    urls = [f"mccl://127.0.0.1:{free_port()}" for _ in range(2)]
    assert run_ranks(2, body, start=start) == [(3, 3.0), (0, 3.0)]


@pytest.mark.parametrize("flags", [0, 1])
def test_shrink_group(start_ranks, flags):
    def body(rank, world):
        assert sum_of_ranks() == 6.0
        if rank == 1:
            time.sleep(2)
            return None
        time.sleep(0.5)  # An abort must not meet the operation before it.
        group = dist.shrink_group([1], shrink_flags=flags)
        assert dist.get_world_size() == 2
        x = torch.tensor([rank + 1.0])
        dist.all_reduce(x, group=group)
        return dist.get_rank(), x.item()

    values = [outcome.value for outcome in start_ranks(3, body)]
    assert values[0] == (0, 4.0)
    assert values[2] == (1, 4.0)


def test_a_group_shrinks_around_a_dead_rank(start_ranks):
    def body(rank, world):
        assert sum_of_ranks() == 10.0
        if rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        with pytest.raises(RuntimeError, match="rank 2"):
            for _ in range(1000):
                dist.all_reduce(torch.ones(1))
        dist.shrink_group([2], shrink_flags=1)
        x = torch.tensor([rank + 1.0])
        dist.all_reduce(x)
        return x.item()

    outcomes = start_ranks(4, body)
    assert [outcomes[rank].value for rank in (0, 1, 3)] == [7.0] * 3, outcomes


def test_a_process_may_exit_without_ado(start_ranks):
    def body(rank, world):
        assert sum_of_ranks() == 3.0
        os._exit(7)

    assert [(outcome.kind, outcome.value) for outcome in start_ranks(2, body)] == [("crashed", 7)] * 2


def test_workers_of_a_data_loader_do_not_disturb_the_group(run_ranks):
    def body(rank, world):
        dist.barrier()
        loader = torch.utils.data.DataLoader(list(range(8)), batch_size=2, num_workers=2)
        totals = []
        for batch in loader:
            x = batch.sum()
            dist.all_reduce(x)
            totals.append(x.item())
        return totals

    assert run_ranks(2, body) == [[2, 10, 18, 26]] * 2


def test_workers_of_a_data_loader_may_make_groups_of_their_own(run_ranks):
    def work(number):
        url = f"mccl://127.0.0.1:{ports[number]}"
        dist.destroy_process_group()
        dist.init_process_group("mccl", init_method=url, rank=0, world_size=1, timeout=SECONDS)
        x = torch.tensor([float(number)])
        dist.all_reduce(x)
        dist.destroy_process_group()
        return x.item()

    class Numbers(torch.utils.data.Dataset):
        def __len__(self):
            return 2

        def __getitem__(self, index):
            return work(index)

    def body(rank, world):
        dist.barrier()
        if rank == 0:
            loader = torch.utils.data.DataLoader(Numbers(), batch_size=1, num_workers=2)
            assert sorted(batch.item() for batch in loader) == [0.0, 1.0]
        return sum_of_ranks()

    ports = [free_port(), free_port()]
    assert run_ranks(2, body) == [3.0, 3.0]


def test_wait_ready_takes_seconds_a_timedelta_or_nothing(run_ranks):
    def body(rank, world):
        mccl.wait_ready(timeout=10)
        mccl.wait_ready(timeout=SECONDS)
        mccl.wait_ready(None, 5.0)
        mccl.wait_ready()
        for bad, error in (("1", TypeError), (True, TypeError), (0, ValueError), (-1.0, ValueError)):
            with pytest.raises(error, match="timeout"):
                mccl.wait_ready(timeout=bad)
        return True

    assert run_ranks(2, body) == [True, True]
