"""mccl://: init that waits for nobody, a store that all ranks share, and no TCPStore anywhere."""

import datetime
import os
import socket
import threading
import time

import pytest
import torch
import torch.distributed as dist
from mccl.ranks import SECONDS, free_port, num_threads_and_descriptors, sum_of_ranks
from quincunx import mccl


def start_at(url, **options):
    def start(rank, world):
        dist.init_process_group("mccl", init_method=url, rank=rank, world_size=world, timeout=SECONDS, **options)

    return start


@pytest.mark.parametrize("world", [1, 2, 5])
def test_ranks_meet_at_rank_zero(run_ranks, world):
    def body(rank, world):
        dist.barrier()
        return sum_of_ranks()

    expected = world * (world + 1) / 2
    assert run_ranks(world, body, start=start_at(f"mccl://127.0.0.1:{free_port()}")) == [expected] * world


def test_only_leaders_of_hosts_ask_rank_zero(run_ranks):
    def body(rank, world):
        dist.barrier()
        num_keys = dist.distributed_c10d._get_default_store().num_keys()
        dist.barrier()  # rank 0 takes the store with it
        return num_keys

    # The record of rank 0, and nothing of the others: rank 0 would hold a connection for each.
    assert run_ranks(5, body, start=start_at(f"mccl://127.0.0.1:{free_port()}")) == [1] * 5


def test_a_store_serves_one_group_after_another(run_ranks):
    def body(rank, world):
        store = mccl.open_store(f"mccl://127.0.0.1:{port}?rank={rank}&world_size={world}", SECONDS)
        sums = []
        for _ in range(3):
            dist.init_process_group("mccl", store=store, rank=rank, world_size=world, timeout=SECONDS)
            sums.append(sum_of_ranks())
            dist.destroy_process_group()
        return sums

    port = free_port()
    assert run_ranks(3, body, start=lambda rank, world: None) == [[6.0] * 3] * 3


def test_two_devices_meet_too(run_ranks):
    def start(rank, world):
        import torch.testing._internal.distributed.fake_pg  # noqa: F401  Registers the backend "fake".

        dist.init_process_group("cpu:mccl,cuda:fake", init_method=url, rank=rank, world_size=world, timeout=SECONDS)

    url = f"mccl://localhost:{free_port()}"
    assert run_ranks(2, lambda rank, world: sum_of_ranks(), start=start) == [3.0, 3.0]


def test_init_returns_while_the_root_is_not_there(run_ranks):
    def start(rank, world):
        if rank == 0:
            time.sleep(1.0)
        begin = time.monotonic()
        start_at(url)(rank, world)
        os.environ["INIT_SECONDS"] = str(time.monotonic() - begin)

    def body(rank, world):
        phase = mccl.progress().phase
        return float(os.environ["INIT_SECONDS"]), phase, sum_of_ranks()

    url = f"mccl://127.0.0.1:{free_port()}"
    of_root, of_other = run_ranks(2, body, start=start)
    assert of_other[0] < 0.5
    assert of_other[1] == "connecting"
    assert of_root[2] == of_other[2] == 3.0


def test_a_root_that_never_comes_is_named(run_ranks):
    def start(rank, world):
        dist.init_process_group("mccl", init_method=url, rank=1, world_size=2, timeout=SECONDS)

    def body(rank, world):
        with pytest.raises(mccl.CollectiveTimeoutError, match="rank 0"):
            mccl.wait_ready(timeout=0.5)
        return mccl.progress().ranks_missing

    url = f"mccl://127.0.0.1:{free_port()}"
    assert run_ranks(1, body, start=start) == [[0]]


def test_a_taken_port_is_named():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(RuntimeError, match=f"port {port} of 127.0.0.1 is taken by another process"):
            dist.init_process_group("mccl", init_method=f"mccl://127.0.0.1:{port}", rank=0, world_size=2)
    assert not dist.is_initialized()


def test_two_jobs_run_beside_each_other(run_ranks):
    def start(rank, world):
        start_at(urls[rank % 2])(rank // 2, 2)

    def body(rank, world):
        x = torch.tensor([float(rank)])
        dist.all_reduce(x)
        return x.item()

    urls = [f"mccl://127.0.0.1:{free_port()}" for _ in range(2)]
    assert run_ranks(4, body, start=start) == [2.0, 4.0, 2.0, 4.0]


def test_a_job_starts_again_at_the_same_place(run_ranks):
    def body(rank, world):
        totals = []
        for _ in range(4):
            start_at(url)(rank, world)
            totals.append(sum_of_ranks())
            dist.destroy_process_group()
        return totals

    url = f"mccl://127.0.0.1:{free_port()}"
    assert run_ranks(3, body, start=lambda rank, world: None) == [[6.0] * 4] * 3


def test_destroying_leaves_no_thread_and_no_descriptor(run_ranks):
    def body(rank, world):
        before = num_threads_and_descriptors()
        for _ in range(3):
            start_at(url)(rank, world)
            group = dist.new_group([0, 1])
            sum_of_ranks()
            dist.barrier(group)
            dist.destroy_process_group()
            del group
            assert num_threads_and_descriptors() == before

    url = f"mccl://127.0.0.1:{free_port()}"
    run_ranks(2, body, start=lambda rank, world: None)


def test_rank_and_size_come_from_the_environment(run_ranks):
    def start(rank, world):
        os.environ.update(OMPI_COMM_WORLD_RANK=str(rank), OMPI_COMM_WORLD_SIZE=str(world))
        dist.init_process_group("mccl", init_method=url, timeout=SECONDS)

    url = f"mccl://127.0.0.1:{free_port()}"
    assert run_ranks(2, lambda rank, world: sum_of_ranks(), start=start) == [3.0, 3.0]


def test_a_whole_job_from_the_environment_alone(run_ranks):
    def start(rank, world):
        names = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")
        for name in names:
            os.environ.pop(name, None)
        os.environ.update(PMI_RANK=str(rank), PMI_SIZE=str(world), MPI_LOCALNRANKS=str(world), PMI_JOBID=job)
        mccl.init_from_environment(timeout=SECONDS)

    job = f"job{os.getpid()}"
    assert run_ranks(3, lambda rank, world: sum_of_ranks(), start=start) == [6.0] * 3


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("mccl://127.0.0.1", "expected mccl://host:port"),
        ("mccl://127.0.0.1:70000", "expected mccl://host:port"),
        ("mccl://127.0.0.1:x", "expected mccl://host:port"),
        ("mccl://127.0.0.1:29500/path", "expected mccl://host:port"),
        ("mccl://127.0.0.1:29500?speed=9", "got speed"),
        ("mccl://127.0.0.1:29500?rank=x", "rank: expected a number, got 'x'"),
        ("mccl://0.0.0.0:29500?rank=0&world_size=2", "host: expected an address"),
        ("mccl://127.0.0.1:29500?rank=3&world_size=2", "rank: expected 0 to 1, got 3"),
    ],
)
def test_bad_urls_are_refused(url, complaint):
    with pytest.raises(ValueError, match=complaint):
        mccl.open_store(url)


def test_a_store_is_not_opened_with_other_things():
    with pytest.raises(TypeError, match="url: expected a str, got int"):
        mccl.open_store(5)
    with pytest.raises(TypeError, match=r"options: expected quincunx\.mccl\.Options, got dict"):
        mccl.open_store("mccl://127.0.0.1:29500?rank=0&world_size=1", options={})


class TestStore:
    @pytest.fixture
    def stores(self):
        port = free_port()
        return [mccl.open_store(f"mccl://127.0.0.1:{port}?rank={rank}&world_size=2", SECONDS) for rank in (0, 1)]

    def test_it_is_a_store_of_torch(self, stores):
        root, other = stores
        root.set("a", "1")
        assert other.get("a") == b"1"
        assert other.add("n", 5) == 5
        assert root.add("n", -2) == 3
        assert other.check(["a", "n"])
        assert not other.check(["a", "b"])
        assert other.compare_set("c", "", "x") == b"x"
        assert other.compare_set("c", "y", "z") == b"x"
        root.append("c", "+")
        assert other.multi_get(["c", "n"]) == [b"x+", b"3"]
        root.multi_set(["d", "e"], ["4", "5"])
        assert other.num_keys() == 5
        assert root.delete_key("d")
        assert not root.delete_key("d")
        assert sorted(other.list_keys()) == ["a", "c", "e", "n"]
        assert root.has_extended_api()
        root.queue_push("q", "first")
        root.queue_push("q", "second")
        assert other.queue_len("q") == 2
        assert other.queue_pop("q") == b"first"

    def test_a_wait_ends_when_the_key_comes(self, stores):
        root, other = stores
        thread = threading.Timer(0.1, lambda: root.set("late", "value"))
        thread.start()
        other.wait(["late"], SECONDS)
        assert dist.PrefixStore("", other).num_keys() == 1
        thread.join()

    def test_a_wait_that_is_too_long_names_the_keys(self, stores):
        with pytest.raises(dist.DistStoreError, match="not set: x, y"):
            stores[1].wait(["x", "y"], datetime.timedelta(milliseconds=50))

    def test_it_serves_behind_prefixes_and_clones(self, stores):
        dist.PrefixStore("p", stores[0]).set("a", "1")
        assert dist.PrefixStore("p", stores[1].clone()).get("a") == b"1"

    def test_a_group_may_be_given_one(self, run_ranks):
        def start(rank, world):
            store = mccl.open_store(f"{url}?rank={rank}&world_size={world}", SECONDS)
            dist.init_process_group("mccl", store=store, rank=rank, world_size=world, timeout=SECONDS)

        url = f"mccl://127.0.0.1:{free_port()}"
        assert run_ranks(2, lambda rank, world: sum_of_ranks(), start=start) == [3.0, 3.0]


def test_ranks_without_the_secret_do_not_get_in(run_ranks):
    def start(rank, world):
        os.environ["QX_MCCL_SECRET"] = "0123456789abcdef" if rank < 2 else "fedcba9876543210"
        # Rank 2 takes the place of rank 1, which comes later.
        if rank == 1:
            time.sleep(0.5)
        start_at(url)(min(rank, 1), 2)

    def body(rank, world):
        if rank == 2:
            with pytest.raises(mccl.CollectiveTimeoutError):
                mccl.wait_ready(timeout=1.0)
            return None
        return sum_of_ranks()

    url = f"mccl://127.0.0.1:{free_port()}"
    assert run_ranks(3, body, start=start) == [3.0, 3.0, None]
