"""Late, missing and dead ranks: within the deadline, every other rank is told who and what."""

import datetime
import os
import signal
import time

import pytest
import torch
import torch.distributed as dist

ONE_SECOND = datetime.timedelta(seconds=1)


def seconds_until_error(call) -> tuple[float, str]:
    begin = time.monotonic()
    with pytest.raises(RuntimeError) as raised:
        call()
    return time.monotonic() - begin, str(raised.value)


@pytest.mark.parametrize("how", ["wait", "group", "world"])
def test_timeouts_are_obeyed(start_ranks, how):
    def body(rank, world):
        if how == "group":
            dist.distributed_c10d._set_pg_timeout(ONE_SECOND, dist.group.WORLD)
        if how == "world":
            dist.group.WORLD.set_timeout(ONE_SECOND)
        if rank == 1:
            time.sleep(3)
            return None
        if how == "wait":
            return seconds_until_error(lambda: dist.all_reduce(torch.ones(1), async_op=True).wait(ONE_SECOND))
        return seconds_until_error(lambda: dist.all_reduce(torch.ones(1)))

    outcome = start_ranks(2, body)[0]
    assert outcome.kind == "returned", outcome
    seconds, text = outcome.value
    assert 0.8 < seconds < 2.0
    assert "all_reduce" in text
    assert "1" in text


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_rank_that_never_starts_is_named(start_ranks, tmp_path, missing):
    def start(rank, world):
        if rank != missing:
            path = f"file://{tmp_path}/missing"
            dist.init_process_group("mccl", path, rank=rank, world_size=world, timeout=ONE_SECOND)

    def body(rank, world):
        if rank != missing:
            return seconds_until_error(lambda: dist.barrier())
        return None

    outcomes = start_ranks(3, body, start=start)
    for rank in set(range(3)) - {missing}:
        assert outcomes[rank].kind == "returned", outcomes[rank]
        seconds, text = outcomes[rank].value
        assert seconds < 2.5
        assert f"rank {missing}" in text or f"ranks {missing}" in text or f"[{missing}]" in text, text


@pytest.mark.parametrize("late", [0, 2])
def test_a_rank_that_does_not_enter_is_named(start_ranks, late):
    def body(rank, world):
        dist.barrier()
        if rank == late:
            time.sleep(3)
            return None
        return seconds_until_error(lambda: dist.all_reduce(torch.ones(5)))

    outcomes = start_ranks(3, body, timeout_s=1)
    for rank in set(range(3)) - {late}:
        assert outcomes[rank].kind == "returned", outcomes[rank]
        seconds, text = outcomes[rank].value
        assert seconds < 2.5
        assert f"rank {late}" in text or f"ranks {late}" in text or f"[{late}]" in text, text


@pytest.mark.parametrize("dead", [0, 1])
def test_a_dead_rank_is_named_on_all_survivors(start_ranks, dead):
    def body(rank, world):
        dist.barrier()
        if rank == dead:
            os.kill(os.getpid(), signal.SIGKILL)
        return seconds_until_error(lambda: dist.all_reduce(torch.ones(1000)))

    outcomes = start_ranks(3, body, timeout_s=20)
    assert outcomes[dead].kind == "crashed"
    for rank in set(range(3)) - {dead}:
        assert outcomes[rank].kind == "returned", outcomes[rank]
        seconds, text = outcomes[rank].value
        assert seconds < 2.0, "a dead rank is noticed at once, not at the deadline"
        assert f"rank {dead}" in text or f"[{dead}]" in text, text


def test_survivors_can_make_a_new_group(start_ranks, tmp_path):
    def body(rank, world):
        dist.barrier()
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        seconds_until_error(lambda: dist.all_reduce(torch.ones(1)))
        dist.destroy_process_group()
        path = f"file://{tmp_path}/survivors"
        timeout = datetime.timedelta(seconds=10)
        dist.init_process_group("mccl", path, rank={0: 0, 2: 1}[rank], world_size=2, timeout=timeout)
        x = torch.ones(1)
        dist.all_reduce(x)
        return x.item()

    outcomes = start_ranks(3, body)
    assert [outcomes[0].value, outcomes[2].value] == [2.0, 2.0]


def test_monitored_barrier_names_who_is_missing(start_ranks):
    def body(rank, world):
        dist.monitored_barrier()
        if rank == 2:
            time.sleep(3)
            return None
        return seconds_until_error(lambda: dist.monitored_barrier(timeout=ONE_SECOND, wait_all_ranks=True))

    for outcome in start_ranks(3, body)[:2]:
        assert outcome.kind == "returned", outcome
        seconds, text = outcome.value
        assert 0.8 < seconds < 2.5
        assert "2" in text


def test_abort_wakes_a_waiting_thread(start_ranks):
    def body(rank, world):
        import threading

        dist.barrier()
        if rank == 1:
            time.sleep(2)
            return None
        timer = threading.Timer(0.5, dist.group.WORLD.abort)
        timer.start()
        return seconds_until_error(lambda: dist.all_reduce(torch.ones(1)))

    outcome = start_ranks(2, body)[0]
    assert outcome.kind == "returned", outcome
    seconds, text = outcome.value
    assert 0.3 < seconds < 1.5
    assert "abort" in text


def test_an_operation_after_an_error_fails_at_once(start_ranks):
    def body(rank, world):
        if rank == 1:
            time.sleep(3)
            return None
        seconds_until_error(lambda: dist.all_reduce(torch.ones(1)))
        return seconds_until_error(lambda: dist.all_reduce(torch.ones(1)))

    outcome = start_ranks(2, body, timeout_s=1)[0]
    assert outcome.kind == "returned", outcome
    assert outcome.value[0] < 0.5
