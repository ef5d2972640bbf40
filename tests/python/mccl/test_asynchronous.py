"""Works and futures: polled, waited for, chained, coalesced; send and receive."""

import datetime
import threading
import time

import torch
import torch.distributed as dist
from mccl.ranks import num_threads
from torch.distributed import _functional_collectives as functional


def wait_until(condition, seconds: float = 5) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.005)
    return condition()


def test_a_receive_completes_without_wait(run_ranks):
    def body(rank, world):
        if rank == 1:
            dist.send(torch.ones(1), 0)
            time.sleep(0.5)
            return True
        x = torch.zeros(1)
        work = dist.irecv(x, 1)
        return wait_until(work.is_completed) and x.item() == 1

    assert run_ranks(2, body) == [True, True]


def test_an_output_that_is_not_contiguous_arrives_without_wait(run_ranks):
    def body(rank, world):
        x = torch.full((3, 4), rank + 1.0).t()
        work = dist.all_reduce(x, async_op=True)
        dist.barrier()  # Operations of a group run in order, so the sum is there after this.
        done = wait_until(work.is_completed)
        return done and torch.equal(x, torch.full((4, 3), 3.0))

    assert run_ranks(2, body) == [True, True]


def test_many_operations_in_flight_keep_their_order(run_ranks):
    def body(rank, world):
        tensors = [torch.full((size,), float(rank + size)) for size in range(1, 200)]
        works = [dist.all_reduce(x, async_op=True) for x in tensors]
        for work in reversed(works):
            work.wait()
        for size, x in enumerate(tensors, 1):
            assert torch.equal(x, torch.full((size,), float(sum(r + size for r in range(world)))))

    run_ranks(3, body)


def test_futures_carry_results_and_callbacks(run_ranks):
    def body(rank, world):
        x = torch.ones(3)
        future = dist.all_reduce(x, async_op=True).get_future()
        doubled = future.then(lambda done: done.value()[0] * 2)
        assert torch.equal(doubled.wait(), torch.full((3,), 2.0 * world))
        assert future.value()[0] is not None
        # A callback may itself start a collective and wait for it.
        nested = (
            dist.all_reduce(x, async_op=True)
            .get_future()
            .then(lambda done: dist.all_reduce(done.value()[0], async_op=True).get_future().wait()[0])
        )
        assert torch.equal(nested.wait(), torch.full((3,), float(world**3)))
        work = dist.barrier(async_op=True)
        work.wait()
        assert work.get_future().wait() == []

    run_ranks(2, body)


def test_threads_of_futures_end_when_they_are_idle(run_ranks):
    def body(rank, world):
        dist.barrier()  # The group's own threads are there.
        before = num_threads()
        futures = [
            dist.all_reduce(torch.ones(1), async_op=True).get_future().then(lambda f: f.value()) for _ in range(300)
        ]
        for future in futures:
            future.wait()
        assert wait_until(lambda: num_threads() <= before)
        future = dist.all_reduce(torch.ones(1), async_op=True).get_future()  # Works with a new thread.
        return future.then(lambda done: done.value()[0].item()).wait()

    assert run_ranks(2, body) == [2.0, 2.0]


def test_a_failed_operation_fails_its_future(start_ranks):
    def body(rank, world):
        if rank == 1:
            time.sleep(2)
            return None
        dist.group.WORLD.set_timeout(datetime.timedelta(seconds=0.5))
        future = dist.all_reduce(torch.ones(1), async_op=True).get_future()
        try:
            future.wait()
        except Exception as error:
            return str(error)
        return "no error"

    assert "all_reduce" in start_ranks(2, body)[0].value


def test_the_profiler_sees_each_operation(run_ranks):
    def body(rank, world):
        with torch.autograd.profiler.profile(record_shapes=True) as profiler:
            dist.all_reduce(torch.ones(3, 2))
            dist.barrier()
        return {e.name: e.input_shapes for e in profiler.function_events if e.name.startswith("mccl:")}

    assert run_ranks(2, body) == [{"mccl:all_reduce": [[3, 2]], "mccl:barrier": []}] * 2


def test_send_and_receive_by_tag_and_from_anyone(run_ranks):
    def body(rank, world):
        if rank == 0:
            got = {}
            for _ in range(world - 1):
                x = torch.zeros(2)
                source = dist.recv(x)
                got[source] = x.tolist()
            late, early = torch.zeros(1), torch.zeros(1)
            dist.recv(late, 1, tag=2)
            dist.recv(early, 1, tag=1)
            return got, early.item(), late.item()
        dist.send(torch.full((2,), float(rank)), 0)
        if rank == 1:
            works = [dist.isend(torch.full((1,), 10.0 * tag), 0, tag=tag) for tag in (1, 2)]
            for work in works:
                work.wait()
        return None

    assert run_ranks(3, body)[0] == ({1: [1.0, 1.0], 2: [2.0, 2.0]}, 10.0, 20.0)


def test_batched_sends_and_receives_form_a_ring(run_ranks):
    def body(rank, world):
        x, y = torch.full((4,), float(rank)), torch.zeros(4)
        following, preceding = (rank + 1) % world, (rank - 1) % world
        operations = [dist.P2POp(dist.isend, x, following), dist.P2POp(dist.irecv, y, preceding)]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        return y.tolist()

    assert run_ranks(3, body) == [[2.0] * 4, [0.0] * 4, [1.0] * 4]


def test_coalesced_forms(run_ranks):
    def body(rank, world):
        group = dist.group.WORLD
        sizes = (1, 5, 0, 7)
        sums = [torch.full((n,), rank + 1.0) for n in sizes]
        with dist._coalescing_manager(async_ops=True) as manager:
            for x in sums:
                dist.all_reduce(x)
        manager.wait()
        total = world * (world + 1) / 2
        assert all(torch.equal(x, torch.full((n,), total)) for n, x in zip(sizes, sums, strict=True))

        gathered = [torch.zeros(world * n) for n in sizes]
        with dist._coalescing_manager():
            for n, output in zip(sizes, gathered, strict=True):
                dist.all_gather_single(output, torch.full((n,), float(rank)))
        for n, output in zip(sizes, gathered, strict=True):
            assert torch.equal(output, torch.arange(float(world)).repeat_interleave(n))

        scattered = [torch.zeros(n) for n in sizes]
        with dist._coalescing_manager():
            for n, output in zip(sizes, scattered, strict=True):
                dist.reduce_scatter_single(output, torch.full((world * n,), rank + 1.0))
        assert all(torch.equal(x, torch.full((n,), total)) for n, x in zip(sizes, scattered, strict=True))

        lists = [[torch.zeros(n) for n in sizes] for _ in range(world)]
        group.allgather_coalesced(lists, [torch.full((n,), float(rank)) for n in sizes]).wait()
        for r in range(world):
            assert all(torch.equal(x, torch.full((n,), float(r))) for n, x in zip(sizes, lists[r], strict=True))

        x, y = torch.full((2,), float(rank)), torch.full((2,), float(rank))
        with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
            dist.broadcast(x, 0)
            dist.broadcast(y, 1)
        manager.wait()
        assert x.tolist() == [0.0, 0.0]
        assert y.tolist() == [1.0, 1.0]

    for world in (2, 3):
        run_ranks(world, body)


def test_functional_collectives(run_ranks):
    def body(rank, world):
        group = dist.group.WORLD
        x = torch.full((4, 2), rank + 1.0)
        total = world * (world + 1) / 2
        assert torch.equal(functional.all_reduce(x, "sum", group) + 0, torch.full((4, 2), total))
        assert functional.all_gather_tensor(x, 0, group).shape == (4 * world, 2)
        assert torch.equal(functional.reduce_scatter_tensor(x, "sum", 0, group) + 0, torch.full((4 // world, 2), total))
        output = functional.all_to_all_single(x, None, None, group)
        want = torch.arange(1.0, world + 1).repeat_interleave(4 // world)
        assert torch.equal(output[:, 0], want)
        assert torch.equal(functional.broadcast(x, 1, group) + 0, torch.full((4, 2), 2.0))

    run_ranks(2, body)
    run_ranks(4, body)


def test_object_collectives(run_ranks):
    def body(rank, world):
        mine = {"rank": rank, "text": "x" * (rank * 50)}
        everything = [{"rank": r, "text": "x" * (r * 50)} for r in range(world)]
        gathered = [None] * world
        dist.all_gather_object(gathered, mine)
        assert gathered == everything
        at_root = [None] * world if rank == 1 else None
        dist.gather_object(mine, at_root, dst=1)
        assert at_root == (everything if rank == 1 else None)
        shared = [mine, rank] if rank == 0 else [None, None]
        dist.broadcast_object_list(shared, src=0)
        assert shared == [everything[0], 0]
        part = [None]
        dist.scatter_object_list(part, everything if rank == 0 else None, src=0)
        assert part == [mine]
        if rank == 0:
            dist.send_object_list([mine], dst=1)
        elif rank == 1:
            got = [None]
            assert dist.recv_object_list(got, src=0) == 0
            assert got == [everything[0]]

    run_ranks(3, body)


def test_threads_and_groups_at_once(run_ranks):
    """Each thread of a rank has a group of its own; the orders between groups differ from rank to rank."""

    def body(rank, world):
        groups = [dist.new_group() for _ in range(4)]
        totals = [0.0] * len(groups)
        errors = []

        def work(index):
            try:
                for step in range(30):
                    x = torch.full((1 + 700 * index,), float(rank + step))
                    dist.all_reduce(x, group=groups[index])
                    totals[index] += x[-1].item()
            except Exception as error:  # pytest does not see what a thread raises.
                errors.append(error)

        order = range(len(groups)) if rank % 2 == 0 else reversed(range(len(groups)))
        threads = [threading.Thread(target=work, args=(index,)) for index in order]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
        return errors, totals

    expected = float(sum(0 + 1 + 2 + 3 * step for step in range(30)))
    assert run_ranks(3, body) == [([], [expected] * 4)] * 3
