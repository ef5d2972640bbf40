"""Groups: how they start, what they tell, how they end; nothing of gloo is ever constructed."""

import datetime
import os
import signal
import time

import pytest
import torch
import torch.distributed as dist
import torch.testing._internal.distributed.fake_pg  # Registers the backend "fake".
from mccl.ranks import SECONDS, free_port, num_threads, sum_of_ranks
from quincunx import mccl


def descriptors() -> set[str]:
    """Open files by what they are; /proc/self/fd itself is read through one that is already closed."""
    names = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            names.add(f"{number} {os.readlink(f'/proc/self/fd/{number}')}")
        except OSError:
            continue
    return names


def start_env(port):
    def start(rank, world):
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
        dist.init_process_group("mccl", timeout=SECONDS)

    return start


def start_tcp(port):
    def start(rank, world):
        dist.init_process_group("mccl", f"tcp://127.0.0.1:{port}", rank=rank, world_size=world, timeout=SECONDS)

    return start


def start_store(port):
    def start(rank, world):
        store = dist.TCPStore("127.0.0.1", port, world, rank == 0, timeout=SECONDS)
        dist.init_process_group("mccl", store=store, rank=rank, world_size=world, timeout=SECONDS)

    return start


def start_device_map(port):
    def start(rank, world):
        store = dist.TCPStore("127.0.0.1", port, world, rank == 0, timeout=SECONDS)
        dist.init_process_group("cpu:mccl", store=store, rank=rank, world_size=world, timeout=SECONDS)

    return start


def start_two_devices(port):
    """As "cpu:mccl,cuda:nccl", also where torch has no nccl."""

    def start(rank, world):
        store = dist.TCPStore("127.0.0.1", port, world, rank == 0, timeout=SECONDS)
        dist.init_process_group("cpu:mccl,cuda:fake", store=store, rank=rank, world_size=world, timeout=SECONDS)

    return start


@pytest.mark.parametrize("start", [start_env, start_tcp, start_store, start_device_map, start_two_devices])
def test_every_way_to_initialise(with_tcp_store, run_ranks, start):
    def body(rank, world):
        return sum_of_ranks()

    assert run_ranks(3, body, start=start(free_port())) == [6.0] * 3


def test_one_rank_alone(run_ranks):
    def body(rank, world):
        x = torch.ones(2)
        dist.all_reduce(x)
        dist.barrier()
        return x.tolist()

    assert run_ranks(1, body) == [[1.0, 1.0]]


def test_initialising_returns_before_the_others_are_there(run_ranks, tmp_path):
    def start(rank, world):
        if rank == 1:
            time.sleep(1.0)
        begin = time.monotonic()
        path = f"file://{tmp_path}/late"
        dist.init_process_group("mccl", path, rank=rank, world_size=world, timeout=SECONDS)
        os.environ["INIT_SECONDS"] = str(time.monotonic() - begin)

    def body(rank, world):
        was_ready, progress = mccl.ready(), mccl.progress()
        mccl.wait_ready(timeout=SECONDS)
        return float(os.environ["INIT_SECONDS"]), was_ready, progress, mccl.progress(), mccl.ready(), sum_of_ranks()

    seconds, was_ready, before, after, ready, total = run_ranks(2, body, start=start)[0]
    assert seconds < 0.5
    assert not was_ready
    assert before.phase == "connecting"
    assert before.ranks_missing == [1]
    assert (after.phase, after.ranks_seen, after.ranks_missing) == ("ready", [0, 1], [])
    assert ready
    assert total == 3.0


def test_wait_ready_names_who_is_missing(run_ranks):
    def start(rank, world):
        if rank == 2:
            return
        dist.init_process_group("mccl", f"file://{path}", rank=rank, world_size=world, timeout=SECONDS)

    def body(rank, world):
        if rank == 2:
            return None
        with pytest.raises(mccl.CollectiveTimeoutError, match="2") as raised:
            mccl.wait_ready(timeout=datetime.timedelta(seconds=1))
        assert isinstance(raised.value, TimeoutError)
        assert isinstance(raised.value, dist.DistBackendError)
        missing = mccl.progress().ranks_missing
        time.sleep(1)  # The other rank must not see this one leave.
        return missing

    path = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"mccl_missing_{os.getpid()}")
    try:
        assert run_ranks(3, body, start=start) == [[2], [2], None]
    finally:
        if os.path.exists(path):
            os.unlink(path)


def test_statistics_count_calls_and_bytes(run_ranks):
    def body(rank, world):
        for _ in range(3):
            dist.all_reduce(torch.ones(4))
        dist.barrier()
        return mccl.statistics()

    for statistics in run_ranks(2, body):
        assert statistics["operations"]["all_reduce"] == {"calls": 3, "bytes": 48}
        assert statistics["operations"]["barrier"]["calls"] == 1


def test_new_groups_of_members(run_ranks):
    def body(rank, world):
        pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        odd_even = [dist.new_group([0, 2]), dist.new_group([1, 3])]
        x, y = torch.tensor([rank + 1.0]), torch.tensor([rank + 1.0])
        first = dist.all_reduce(x, group=pairs[rank // 2], async_op=True)
        second = dist.all_reduce(y, group=odd_even[rank % 2], async_op=True)
        second.wait()
        first.wait()
        z = torch.tensor([float(rank)])
        dist.broadcast(z, src=2 * (rank // 2) + 1, group=pairs[rank // 2])
        assert mccl.ready(pairs[rank // 2])
        return x.item(), y.item(), z.item(), sum_of_ranks()

    assert run_ranks(4, body) == [
        (3.0, 4.0, 1.0, 10.0),
        (3.0, 6.0, 1.0, 10.0),
        (7.0, 4.0, 3.0, 10.0),
        (7.0, 6.0, 3.0, 10.0),
    ]


def test_a_group_of_all_needs_no_new_sockets(run_ranks):
    def body(rank, world):
        sum_of_ranks()
        before = descriptors()
        group = dist.new_group()
        x = torch.ones(1)
        dist.all_reduce(x, group=group)
        return x.item(), sorted(descriptors() - before)

    assert run_ranks(3, body) == [(3.0, [])] * 3


def test_split_group(run_ranks):
    def body(rank, world):
        group = dist.split_group(split_ranks=[[2, 0], [1]])
        x = torch.tensor([rank + 1.0])
        dist.all_reduce(x, group=group)
        with pytest.raises(ValueError, match="split_ranks"):
            dist.split_group(split_ranks=[])
        again = dist.split_group(group, split_ranks=[[0]])
        if dist.get_rank(group) != 0:
            assert again is None
        else:
            dist.barrier(again)
        return x.item()

    assert run_ranks(3, body) == [4.0, 2.0, 4.0]


def test_a_group_is_made_again_after_it_was_destroyed(run_ranks):
    def body(rank, world):
        for _ in range(3):
            group = dist.new_group([0, 1], use_local_synchronization=True)
            x = torch.ones(2)
            dist.all_reduce(x, group=group)
            assert x.tolist() == [2.0, 2.0]
            dist.destroy_process_group(group)

    run_ranks(2, body)


def test_split_group_of_the_process_group_itself(run_ranks):
    def body(rank, world):
        dist.barrier()
        group = dist.group.WORLD.split_group([0, 2], group_name="even")
        if rank == 1:
            assert group is None
            return None
        x = torch.tensor([rank + 1.0])
        group.allreduce([x]).wait()
        return x.item()

    assert run_ranks(3, body) == [4.0, None, 4.0]


def test_destroying_leaves_no_thread_and_no_descriptor(with_tcp_store, run_ranks):
    def start(rank, world):
        pass

    def body(rank, world):
        store = dist.TCPStore("127.0.0.1", port, world, rank == 0, timeout=SECONDS)
        threads, files = num_threads(), descriptors()
        for cycle in range(3):  # Three times on one store: no stale address may be read.
            dist.init_process_group("mccl", store=store, rank=rank, world_size=world, timeout=SECONDS)
            group = dist.new_group([0, 1])
            work = dist.all_reduce(torch.ones(1), async_op=True)
            work.get_future().then(lambda done: done.value()).wait()
            assert sum_of_ranks() == 3.0
            dist.barrier(group)
            dist.destroy_process_group()
            del group, work
            assert num_threads() == threads, f"cycle {cycle}"
            assert descriptors() - files == set(), f"cycle {cycle}"

    port = free_port()
    run_ranks(2, body, start=start)


def test_an_undestroyed_group_lets_the_interpreter_end(run_ranks, tmp_path):
    def body(rank, world):
        child = os.fork()
        if child == 0:
            dist.init_process_group("mccl", f"file://{tmp_path}/exit", rank=rank, world_size=world, timeout=SECONDS)
            sum_of_ranks()
            import atexit

            atexit._run_exitfuncs()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status)

    assert run_ranks(2, body, start=lambda rank, world: None) == [0, 0]


def test_a_forked_child_is_refused_and_may_make_its_own_group(run_ranks, tmp_path):
    def body(rank, world):
        sum_of_ranks()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with pytest.raises(RuntimeError, match="forked child"):
                    dist.all_reduce(torch.ones(1))
                dist.destroy_process_group()
                path = f"file://{tmp_path}/child"
                dist.init_process_group("mccl", path, rank=rank, world_size=world, timeout=SECONDS)
                code = 0 if sum_of_ranks() == 3.0 else 2
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status), sum_of_ranks()

    assert run_ranks(2, body) == [(0, 3.0)] * 2


@pytest.mark.parametrize("num_nodes", ["1", "2"])
def test_a_restarted_job_is_not_misled_by_the_records_of_its_last_start(with_tcp_store, run_ranks, num_nodes):
    """torchrun keeps one store over restarts; each node of several counts its own."""

    def start(rank, world):
        store = dist.TCPStore("127.0.0.1", port, world, rank == 0, timeout=SECONDS)
        os.environ.update(GROUP_WORLD_SIZE=num_nodes, TORCHELASTIC_RESTART_COUNT="0")
        # Rank 1 of the first start of one node ended before it joined.
        if rank == 0 or num_nodes == "2":
            dist.init_process_group("mccl", store=store, rank=rank, world_size=world, timeout=SECONDS)
            time.sleep(0.5)  # Its record is published in the background.
            dist.destroy_process_group()
        os.environ["TORCHELASTIC_RESTART_COUNT"] = "1" if num_nodes == "1" else str(rank)
        dist.init_process_group("mccl", store=store, rank=rank, world_size=world, timeout=SECONDS)

    def body(rank, world):
        return sum_of_ranks()

    port = free_port()
    assert run_ranks(2, body, start=start) == [3.0, 3.0]


def test_another_group_than_mccl_is_refused():
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        with pytest.raises(ValueError, match='expected one that uses "mccl"'):
            mccl.ready()
    finally:
        dist.destroy_process_group()
    with pytest.raises(ValueError, match="there is no default group"):
        mccl.progress()
    with pytest.raises(TypeError, match="group: expected a ProcessGroup of which this rank is a member, got int"):
        mccl.ready(5)


def test_extended_functions_can_be_restored():
    extended = dist.monitored_barrier
    mccl.restore_torch_functions()
    try:
        assert dist.monitored_barrier is dist.distributed_c10d.monitored_barrier
        assert dist.monitored_barrier is not extended
        assert dist.monitored_barrier is extended.__wrapped__
    finally:
        mccl.extend_torch_functions()
    assert dist.monitored_barrier.__wrapped__ is extended.__wrapped__


def test_options_are_checked():
    with pytest.raises(TypeError, match=r"pg_options: expected quincunx\.mccl\.Options, got dict"):
        dist.init_process_group("mccl", store=dist.HashStore(), rank=0, world_size=1, pg_options={})
    assert not dist.is_initialized()


def test_a_stopped_rank_does_not_hang_the_harness(start_ranks):
    def body(rank, world):
        if rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        dist.barrier()

    outcomes = start_ranks(2, body, timeout_s=1, wall_s=4)
    assert outcomes[0].kind == "raised"
    assert "CollectiveTimeoutError" in outcomes[0].classes
    assert "1" in outcomes[0].value
    assert outcomes[1].kind == "hung"
