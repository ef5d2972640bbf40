"""Tensors that the backend allocates: FSDP2 takes its buffers from it, and they outlive whoever made them."""

import gc

import pytest
import torch
import torch.distributed as dist
from quincunx import mccl
from torch import nn
from torch.distributed.fsdp import fully_shard

CPU = torch.device("cpu")


def backend():
    return dist.group.WORLD._get_backend(CPU)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.float8_e4m3fn, torch.bool])
def test_allocated_tensors_are_tensors(run_ranks, dtype):
    def body(rank, world):
        assert backend().supports_tensor_alloc(CPU)
        sizes = [0, 1, 7, 5000]
        tensors = [backend().allocate_tensor(size, dtype=dtype, device=CPU) for size in sizes]
        for size, tensor in zip(sizes, tensors, strict=True):
            assert (tensor.shape, tensor.dtype, tensor.device) == ((size,), dtype, CPU)
            tensor.zero_()
        return mccl.statistics()["shared_bytes_allocated"]

    assert all(num_bytes > 0 for num_bytes in run_ranks(2, body))


def test_collectives_read_them_and_freeing_them_is_safe(run_ranks):
    def body(rank, world):
        totals = []
        for size in (1, 1000, 300000):
            for _ in range(5):
                x = backend().allocate_tensor(size, dtype=torch.float32, device=CPU).fill_(rank + 1)
                whole = backend().allocate_tensor(world * size, dtype=torch.float32, device=CPU)
                gathered = dist.all_gather_into_tensor(whole, x, async_op=True)
                reduced = dist.all_reduce(x, async_op=True)
                # The next tensors may lie where these do, as soon as nobody needs them.
                result = x.sum, whole
                del x
                gathered.wait()
                reduced.wait()
                totals.append((result[0]().item() / size, result[1].view(world, size).mean(1).tolist()))
        return totals

    assert run_ranks(3, body) == [[(6.0, [1.0, 2.0, 3.0])] * 15] * 3


def test_a_tensor_freed_by_its_owner_is_still_read_right(run_ranks):
    def body(rank, world):
        sums = []
        for step in range(20):
            x = backend().allocate_tensor(100000, dtype=torch.float32, device=CPU).fill_(rank + step)
            work = dist.reduce(x, 0, async_op=True)
            result = x if rank == 0 else None
            del x  # The work alone keeps it.
            work.wait()
            if rank == 0:
                sums.append((result.min().item(), result.max().item()))
        return sums

    assert run_ranks(2, body)[0] == [(2.0 * step + 1, 2.0 * step + 1) for step in range(20)]


def test_they_outlive_the_group(run_ranks):
    def body(rank, world):
        x = backend().allocate_tensor(5000, dtype=torch.float32, device=CPU).fill_(3)
        dist.all_reduce(x)
        dist.destroy_process_group()
        gc.collect()
        total = x.sum().item()
        del x
        return total

    assert run_ranks(2, body) == [30000.0] * 2


def test_bad_sizes_are_refused(run_ranks):
    def body(rank, world):
        with pytest.raises(ValueError, match="size: must not be negative, got -1"):
            backend().allocate_tensor(-1, dtype=torch.float32, device=CPU)
        with pytest.raises(ValueError, match="more than can be allocated"):
            backend().allocate_tensor(2**62, dtype=torch.float32, device=CPU)
        with pytest.raises(TypeError, match="device: expected the CPU, got meta"):
            backend().allocate_tensor(1, dtype=torch.float32, device=torch.device("meta"))

    run_ranks(1, body)


def _losses(rank: int, *, from_group: bool) -> list[float]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 8))
    fully_shard(model[0])
    fully_shard(model)
    if from_group:
        for module in (model[0], model):
            module.set_allocate_memory_from_process_group_for_comm(True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.randn(4, 64, generator=torch.Generator().manual_seed(rank))
    losses = []
    for _ in range(4):
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def test_fsdp_takes_its_buffers_from_the_backend(run_ranks):
    def body(rank, world):
        before = mccl.statistics()["shared_bytes_allocated"]
        ordinary = _losses(rank, from_group=False)
        between = mccl.statistics()["shared_bytes_allocated"]
        shared = _losses(rank, from_group=True)
        return ordinary == shared, between - before, mccl.statistics()["shared_bytes_allocated"] - between

    for equal, without, taken in run_ranks(2, body):
        assert equal
        assert without == 0
        # Four steps gather and scatter each of the two parameter groups.
        assert taken >= 4 * 64 * 64 * 4
