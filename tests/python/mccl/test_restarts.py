"""Ranks that start again alone, or with another secret: no generation meets another, and the error says what to do."""

import datetime
import os
import time

import pytest
import torch
import torch.distributed as dist
from mccl.ranks import SECONDS, free_port, sum_of_ranks
from quincunx import mccl

_SHORT = datetime.timedelta(seconds=1.5)


def methods(tmp_path):
    port = free_port()
    return {
        "mccl": f"mccl://127.0.0.1:{port}",
        "tcp": f"tcp://127.0.0.1:{port}",
        "file": f"file://{tmp_path}/store",
    }


def error_of_first_operation():
    with pytest.raises(RuntimeError) as raised:
        dist.all_reduce(torch.ones(1))
    return str(raised.value)


def wait_for(path):
    while not path.exists():
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("way", "reason"),
    [
        ("mccl", "all ranks were there before this process came; where one is started again alone, the others"),
        ("tcp", "rank 0 has joined 1 times over this store, this rank 2 times"),
        ("file", "rank 0 has joined 1 times over this store, this rank 2 times"),
    ],
)
def test_a_rank_that_is_started_again_alone_is_told(with_tcp_store, start_ranks, tmp_path, way, reason):
    def start(rank, world):
        # Process 2 is rank 1 once more.
        if rank == 2:
            wait_for(tmp_path / "dead")
        timeout = _SHORT if rank == 2 else SECONDS
        dist.init_process_group("mccl", init_method=url, rank=min(rank, 1), world_size=2, timeout=timeout)

    def body(rank, world):
        if rank == 2:
            error = error_of_first_operation()
            (tmp_path / "told").touch()
            return error
        assert sum_of_ranks() == 3.0
        time.sleep(0.5)  # Rank 0 tells some time after all were there that they are.
        if rank == 1:
            (tmp_path / "dead").touch()
            os._exit(0)
        wait_for(tmp_path / "told")
        return error_of_first_operation()

    url = methods(tmp_path)[way]
    outcomes = start_ranks(3, body, start=start)
    assert outcomes[2].kind == "returned", outcomes
    assert reason in outcomes[2].value
    assert "rank 1 (died" in outcomes[0].value


@pytest.mark.parametrize("way", ["mccl", "file"])
def test_all_that_start_again_meet_whoever_was_replaced(start_ranks, tmp_path, way):
    def start(rank, world):
        if rank == 2:
            wait_for(tmp_path / "dead")
            time.sleep(0.3)
        join(min(rank, 1), "1" if rank == 2 else "0")

    def join(rank, generation):
        # file:// counts in the store; over mccl:// whoever starts again says so.
        options = f"?generation={generation}" if way == "mccl" else ""
        dist.init_process_group("mccl", init_method=url + options, rank=rank, world_size=2, timeout=SECONDS)

    def body(rank, world):
        if rank == 2:
            return sum_of_ranks()
        assert sum_of_ranks() == 3.0
        if rank == 1:
            (tmp_path / "dead").touch()
            os._exit(0)
        try:
            dist.all_reduce(torch.ones(1))
        except RuntimeError:  # The traceback holds the old group while the new one is made.
            dist.destroy_process_group()
            join(0, "1")
        return sum_of_ranks()

    url = methods(tmp_path)[way]
    outcomes = start_ranks(3, body, start=start)
    assert [outcomes[0].value, outcomes[2].value] == [3.0, 3.0], outcomes


def test_another_start_over_mccl_is_refused_by_name(start_ranks, tmp_path):
    def start(rank, world):
        # Rank 0 starts for the second time in its process, rank 1 for the first.
        if rank == 0:
            dist.init_process_group("mccl", init_method=url, rank=rank, world_size=2, timeout=SECONDS)
            dist.destroy_process_group()
            (tmp_path / "second").touch()
        wait_for(tmp_path / "second")
        timeout = _SHORT if rank == 1 else 2 * _SHORT
        dist.init_process_group("mccl", init_method=url, rank=rank, world_size=2, timeout=timeout)

    url = methods(tmp_path)["mccl"]
    outcome = start_ranks(2, lambda rank, world: error_of_first_operation(), start=start)[1]
    assert "it belongs to another job, generation or world size (where ranks start again, all are to" in outcome.value


@pytest.mark.parametrize("way", ["mccl", "tcp", "file"])
def test_another_secret_is_named_on_both_sides(with_tcp_store, run_ranks, tmp_path, way):
    def start(rank, world):
        os.environ["QX_MCCL_SECRET"] = ["0123456789abcdef", "fedcba9876543210"][rank]
        dist.init_process_group("mccl", init_method=url, rank=rank, world_size=world, timeout=_SHORT)

    def body(rank, world):
        error = error_of_first_operation()
        (tmp_path / f"told{rank}").touch()
        wait_for(tmp_path / f"told{1 - rank}")  # Who leaves takes the store with it.
        return error

    url = methods(tmp_path)[way]
    for rank, error in enumerate(run_ranks(2, body, start=start)):
        assert f"rank {1 - rank}" in error
        assert "does not hold the same secret (QX_MCCL_SECRET_FILE, QX_MCCL_SECRET" in error
        assert not any(secret in error for secret in ("0123456789abcdef", "fedcba9876543210"))


def test_a_root_of_mccl_that_is_not_there_is_named_with_the_reason(run_ranks, tmp_path):
    def start(rank, world):
        dist.init_process_group("mccl", init_method=url, rank=1, world_size=2, timeout=_SHORT)

    url = methods(tmp_path)["mccl"]
    error = run_ranks(1, lambda rank, world: error_of_first_operation(), start=start)[0]
    assert f"store of rank 0 at {url.removeprefix('mccl://')}: Connection refused" in error


def test_the_end_of_torchs_store_does_not_flood_the_log(with_tcp_store, start_ranks, tmp_path):
    def start(rank, world):
        log = os.open(tmp_path / f"log{rank}", os.O_CREAT | os.O_WRONLY)
        os.dup2(log, 2)
        dist.init_process_group("mccl", init_method=url, rank=rank, world_size=3, timeout=_SHORT)

    def body(rank, world):
        if rank == 0:
            time.sleep(0.3)
            os._exit(0)
        return error_of_first_operation()

    url = methods(tmp_path)["tcp"]
    outcome = start_ranks(2, body, start=start)[1]
    assert outcome.kind == "returned", outcome
    assert (tmp_path / "log1").read_text().count("[c10d]") < 20
    assert mccl.CollectiveTimeoutError.__name__ not in outcome.value
