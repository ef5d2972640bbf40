"""A rank of a group of 64 opens 16 descriptors at most, whatever way it starts by: counted from before
init_process_group, what torch and Python open meanwhile included, but for the TCPStore that somebody has to serve."""

import os
import signal
import time

import pytest
import torch.distributed as dist
from mccl.conftest import FORK
from mccl.ranks import SECONDS, fill_descriptors, free_port, num_descriptor_slots

WORLD = 64
MOST = 16


@pytest.mark.parametrize("free", [40, MOST, MOST - 1, 1])
def test_one_more_is_seen(run_ranks, free):
    def start(rank, world):
        fill_descriptors(free)
        slots = fill_descriptors(MOST)
        held = [os.dup(2) for _ in range(MOST - 1)]
        assert num_descriptor_slots() == slots  # the look at it takes one
        held.append(os.dup(2))
        assert num_descriptor_slots() > slots

    run_ranks(1, lambda rank, world: None, start=start)


@pytest.fixture
def tcp_port(with_tcp_store):
    """Of a store that another process serves, as torchrun's agent does: rank 0 would hold a connection for each."""

    def serve():
        store = dist.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
        signal.pause()
        del store

    port = free_port()
    server = FORK.Process(target=serve)
    server.start()
    yield port
    server.kill()
    server.join()


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def opened_by_a_group(rank: int) -> set[str]:
    time.sleep(0.2)  # until rank 0 has closed the connections of those who have asked its store
    before = descriptors()
    evens = dist.new_group(range(0, WORLD, 2))
    if rank % 2 == 0:
        dist.barrier(evens)
    return descriptors() - before


def test_a_rank_of_64_opens_16_descriptors(run_ranks, tmp_path, tcp_port):
    """One start of the processes for all ways: it takes longer than everything else."""
    mccl_port = free_port()

    def options_of(way, rank):
        if way == "store=":
            return {"store": dist.FileStore(str(tmp_path / "store"), WORLD)}
        methods = {
            "file://": f"file://{tmp_path}/file",
            "mccl://": f"mccl://127.0.0.1:{mccl_port}",
            "tcp://": f"tcp://127.0.0.1:{tcp_port}",
        }
        return {"init_method": methods[way]}

    def start(rank, world):
        os.environ |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}

    def body(rank, world):
        slots = fill_descriptors(MOST)
        faults = []
        for way in ("store=", "file://", "mccl://", "tcp://"):
            dist.init_process_group("mccl", rank=rank, world_size=world, timeout=SECONDS, **options_of(way, rank))
            dist.barrier()
            if num_descriptor_slots() > slots:
                faults.append(f"{way} opened more than {MOST}")
            if opened := opened_by_a_group(rank):
                faults.append(f"{way} a group opened {len(opened)}")
            dist.barrier()
            dist.destroy_process_group()
        return faults

    assert run_ranks(WORLD, body, start=start) == [[]] * WORLD
