"""Reductions against float64 and numpy: each operation and dtype, one rounding, the same bits everywhere."""

import numpy as np
import pytest
import torch
import torch.distributed as dist

INTEGERS = [
    torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64, torch.uint64,
]  # fmt: skip
# Relative rounding error of one operation in each format: half a unit in the last place.
UNIT_ROUNDOFF = {torch.float16: 2**-11, torch.bfloat16: 2**-8, torch.float32: 2**-24, torch.float64: 2**-53}
ReduceOp = dist.ReduceOp


def real_values(rank: int, dtype: torch.dtype, count: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(rank).uniform(0.5, 2.0, count)).to(dtype)


def reduce_float64(op, stacked: torch.Tensor) -> torch.Tensor:
    stacked = stacked.double()
    return {
        ReduceOp.SUM: lambda: stacked.sum(0),
        ReduceOp.AVG: lambda: stacked.mean(0),
        ReduceOp.PRODUCT: lambda: stacked.prod(0),
        ReduceOp.MIN: lambda: stacked.amin(0),
        ReduceOp.MAX: lambda: stacked.amax(0),
    }[op]()


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_float_reductions_round_like_float64_once(run_ranks, world):
    def body(rank, world):
        for dtype, unit in UNIT_ROUNDOFF.items():
            stacked = torch.stack([real_values(r, dtype, 37) for r in range(world)])
            # Half formats accumulate in f32: one rounding to the format, world roundings of f32.
            accumulation = UNIT_ROUNDOFF[torch.float32] if unit > 2**-24 else unit
            tolerance = unit + (world + 1) * accumulation
            for op in (ReduceOp.SUM, ReduceOp.AVG, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX):
                want = reduce_float64(op, stacked)
                x = stacked[rank].clone()
                dist.all_reduce(x, op)
                torch.testing.assert_close(x.double(), want, rtol=tolerance, atol=0, msg=f"all_reduce {op} {dtype}")
                x = stacked[rank].clone()
                dist.reduce(x, 0, op)
                want_x = want if rank == 0 else stacked[rank].double()
                torch.testing.assert_close(x.double(), want_x, rtol=tolerance, atol=0, msg=f"reduce {op} {dtype}")
                parts = stacked[:, : 36 // world * world].contiguous()
                size = parts.shape[1] // world
                x = torch.zeros(size, dtype=dtype)
                dist.reduce_scatter_single(x, parts[rank].clone(), op)
                want_x = reduce_float64(op, parts)[rank * size : (rank + 1) * size]
                torch.testing.assert_close(x.double(), want_x, rtol=tolerance, atol=0, msg=f"scatter {op} {dtype}")

    run_ranks(world, body)


@pytest.mark.parametrize("world", [2, 3])
def test_integer_reductions_equal_numpy(run_ranks, world):
    def body(rank, world):
        for dtype in INTEGERS:
            info = torch.iinfo(dtype)
            limit = min(info.max, 2**31)
            random = np.random.default_rng(3)
            stacked = random.integers(max(info.min, -limit), limit, (world, 19)).astype(str(dtype).split(".")[1])
            with np.errstate(over="ignore"):
                wants = {
                    ReduceOp.SUM: np.add.reduce(stacked, 0, dtype=stacked.dtype),
                    ReduceOp.PRODUCT: np.multiply.reduce(stacked, 0, dtype=stacked.dtype),
                    ReduceOp.MIN: stacked.min(0),
                    ReduceOp.MAX: stacked.max(0),
                    ReduceOp.BAND: np.bitwise_and.reduce(stacked, 0),
                    ReduceOp.BOR: np.bitwise_or.reduce(stacked, 0),
                    ReduceOp.BXOR: np.bitwise_xor.reduce(stacked, 0),
                }
            for op, want in wants.items():
                x = torch.from_numpy(stacked[rank].copy())
                dist.all_reduce(x, op)
                np.testing.assert_array_equal(x.numpy(), want, err_msg=f"{op} {dtype}")

    run_ranks(world, body)


def test_complex_sums(run_ranks):
    def body(rank, world):
        for dtype, real in ((torch.complex64, torch.float32), (torch.complex128, torch.float64)):
            terms = [torch.complex(real_values(r, real, 9), real_values(9 + r, real, 9)) for r in range(world)]
            x = terms[rank].clone()
            dist.all_reduce(x)
            assert x.dtype == dtype
            want = sum(t.to(torch.complex128) for t in terms)
            torch.testing.assert_close(x.to(want.dtype), want, rtol=world * UNIT_ROUNDOFF[real], atol=0)

    run_ranks(3, body)


@pytest.mark.parametrize("factor", [0.25, torch.tensor([3.0])])
def test_premul_sum_uses_its_factor(run_ranks, factor):
    def body(rank, world):
        x = torch.full((5,), rank + 1.0)
        dist.all_reduce(x, dist._make_nccl_premul_sum(factor))
        output = torch.zeros(2)
        dist.reduce_scatter_single(output, torch.full((2 * world,), rank + 1.0), dist._make_nccl_premul_sum(factor))
        return x.tolist(), output.tolist()

    want = float(factor) * (1 + 2 + 3)
    assert run_ranks(3, body) == [([want] * 5, [want] * 2)] * 3


@pytest.mark.parametrize(("dtype", "large"), [(torch.bfloat16, 256.0), (torch.float16, 2048.0)])
@pytest.mark.parametrize("world", [2, 3, 4])
def test_reduced_precision_sums_round_once(run_ranks, dtype, large, world):
    """Adding 1 to 256 one by one in bfloat16 stays 256; whichever rank holds the large value."""

    def terms(rank):
        x = torch.ones(4 * world)
        x[rank::world] = large
        return x.to(dtype)

    def body(rank, world):
        x = terms(rank)
        dist.all_reduce(x)
        return x.float().tolist()

    want = sum(terms(rank).double() for rank in range(world)).to(dtype).float().tolist()
    assert run_ranks(world, body) == [want] * world


def test_results_have_the_same_bits_on_every_rank_and_run(run_ranks):
    def body(rank, world):
        x = torch.from_numpy(np.random.default_rng(rank).standard_normal(5003)).float()
        dist.all_reduce(x)
        return x.numpy().tobytes()

    first, second = run_ranks(4, body), run_ranks(4, body)
    assert set(first) == set(second)
    assert len(set(first)) == 1


@pytest.mark.parametrize("world", [2, 4])
def test_reduce_changes_no_other_rank(run_ranks, world):
    def terms(rank):
        return torch.arange(8.0).reshape(2, 4) + 10 * rank

    for destination in (0, world - 1):

        def body(rank, world, destination=destination):
            x = terms(rank)
            dist.reduce(x, destination)
            want = sum(terms(r) for r in range(world)) if rank == destination else terms(rank)
            assert torch.equal(x, want)

        run_ranks(world, body)


def test_float8_sums_beyond_the_largest_value_end_as_torch_converts_them(run_ranks):
    dtypes = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)

    def body(rank, world):
        bits = []
        for dtype in dtypes:
            x = torch.tensor([torch.finfo(dtype).max, -torch.finfo(dtype).max, 1.0]).to(dtype)
            dist.all_reduce(x)
            bits.append(x.view(torch.uint8).tolist())
        return bits

    sums = [torch.tensor([2 * torch.finfo(dtype).max, -2 * torch.finfo(dtype).max, 2.0]) for dtype in dtypes]
    want = [x.to(dtype).view(torch.uint8).tolist() for x, dtype in zip(sums, dtypes, strict=True)]
    assert run_ranks(2, body) == [want] * 2


def test_special_values(run_ranks):
    infinity, nan, denormal = float("inf"), float("nan"), 2.0**-149

    def body(rank, world):
        terms = [[1.0, infinity, infinity, nan, denormal], [2.0, 1.0, -infinity, 1.0, denormal]]
        x = torch.tensor(terms[rank])
        dist.all_reduce(x)
        return [repr(value) for value in x.tolist()]

    want = [repr(value) for value in (3.0, infinity, nan, nan, 2 * denormal)]
    assert run_ranks(2, body) == [want, want]


def test_sparse_sums(run_ranks):
    def body(rank, world):
        indices = torch.tensor([[0, rank, world], [1, 1, 0]])
        x = torch.sparse_coo_tensor(indices, torch.tensor([1.0, 2.0, 4.0]) * (rank + 1), (world + 1, 2))
        dense = x.to_dense()
        dist.all_reduce(dense)
        work = dist.all_reduce(x, async_op=True)
        work.wait()
        empty = torch.sparse_coo_tensor(size=(3,))
        dist.all_reduce(empty)
        with pytest.raises(ValueError, match="sparse tensors must have the same shape"):
            dist.all_reduce(torch.ones(2 + rank % 2).to_sparse())
        return torch.equal(x.to_dense(), dense), empty._nnz()

    assert run_ranks(3, body) == [(True, 0)] * 3
