"""Every collective against numpy: worlds 1 to 4, all dtypes, ragged and empty sizes, views that are not contiguous."""

import numpy as np
import pytest
import torch
import torch.distributed as dist

WORLDS = [1, 2, 3, 4]
DTYPES = [
    torch.bool, torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64,
    torch.uint64,
    torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu,
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
]  # fmt: skip
# One element, less than a vector, exactly one of 64 bytes, ragged, and none at all.
SHAPES = [(1,), (3,), (16,), (5, 7), (2, 0, 3), (33, 65), ()]


def values(rank: int, shape: tuple[int, ...], seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(1000 * seed + rank).integers(-50, 50, shape)).float().reshape(shape)


def assert_equal(got: torch.Tensor, want: torch.Tensor, what: object) -> None:
    assert got.shape == want.shape, f"{what}: shape {tuple(got.shape)}, want {tuple(want.shape)}"
    assert torch.equal(got, want), f"{what}: {got}, want {want}"


def check_shape(rank: int, world: int, shape: tuple[int, ...]) -> None:
    all_values = [values(r, shape) for r in range(world)]
    mine, total = all_values[rank], sum(all_values)
    last = world - 1

    x = mine.clone()
    dist.all_reduce(x)
    assert_equal(x, total, ("all_reduce", shape))
    x = mine.clone()
    dist.broadcast(x, last)
    assert_equal(x, all_values[last], ("broadcast", shape))
    x = mine.clone()
    dist.reduce(x, last)
    assert_equal(x, total if rank == last else mine, ("reduce", shape))

    received = [torch.zeros(shape) for _ in range(world)]
    dist.all_gather(received, mine)
    for r in range(world):
        assert_equal(received[r], all_values[r], ("all_gather", shape))
    received = [torch.zeros(shape) for _ in range(world)]
    dist.gather(mine, received if rank == last else None, last)
    for r in range(world):
        assert_equal(received[r], all_values[r] if rank == last else torch.zeros(shape), ("gather", shape))
    x = torch.zeros(shape)
    dist.scatter(x, [v + 1 for v in all_values] if rank == last else None, last)
    assert_equal(x, mine + 1, ("scatter", shape))

    parts = [[values(r, shape, seed=1 + part) for part in range(world)] for r in range(world)]
    x = torch.zeros(shape)
    dist.reduce_scatter(x, parts[rank])
    assert_equal(x, sum(parts[r][rank] for r in range(world)), ("reduce_scatter", shape))
    received = [torch.zeros(shape) for _ in range(world)]
    dist.all_to_all(received, parts[rank])
    for r in range(world):
        assert_equal(received[r], parts[r][rank], ("all_to_all", shape))


@pytest.mark.parametrize("world", WORLDS)
def test_collectives_equal_numpy(run_ranks, world):
    def body(rank, world):
        for shape in SHAPES:
            check_shape(rank, world, shape)

    run_ranks(world, body)


@pytest.mark.parametrize("world", WORLDS)
def test_single_tensor_forms_equal_numpy(run_ranks, world):
    def body(rank, world):
        for rows, columns in [(1, 1), (3, 5), (0, 4), (64, 33)]:
            everything = [values(r, (rows, columns)) for r in range(world)]
            output = torch.zeros(world * rows, columns)
            dist.all_gather_single(output, everything[rank])
            assert_equal(output, torch.cat(everything), "all_gather_single")
            stacked = torch.zeros(world, rows, columns)
            dist.all_gather_single(stacked, everything[rank])
            assert_equal(stacked, torch.stack(everything), "all_gather_single, stacked")

            whole = [values(r, (world * rows, columns)) for r in range(world)]
            output = torch.zeros(rows, columns)
            dist.reduce_scatter_single(output, whole[rank])
            assert_equal(output, sum(whole)[rank * rows : (rank + 1) * rows], "reduce_scatter_single")
            output = torch.zeros(world * rows, columns)
            dist.all_to_all_single(output, whole[rank])
            want = torch.cat([w[rank * rows : (rank + 1) * rows] for w in whole])
            assert_equal(output, want, "all_to_all_single")

    run_ranks(world, body)


@pytest.mark.parametrize("world", [2, 3, 4])
def test_uneven_parts(run_ranks, world):
    def body(rank, world):
        shapes = [(r, 3) for r in range(world)]  # Rank 0 contributes nothing.
        received = [torch.zeros(shape) for shape in shapes]
        dist.all_gather(received, values(rank, shapes[rank]))
        for r in range(world):
            assert_equal(received[r], values(r, shapes[r]), "all_gather")

        parts = [[values(r, shape, seed=1 + i) for i, shape in enumerate(shapes)] for r in range(world)]
        output = torch.zeros(shapes[rank])
        dist.reduce_scatter(output, parts[rank])
        assert_equal(output, sum(parts[r][rank] for r in range(world)), "reduce_scatter")

        counts = np.random.default_rng(7).integers(0, 4, (world, world))  # counts[sender, receiver]
        sent = [[values(s, (counts[s, r], 2), seed=9 + r) for r in range(world)] for s in range(world)]
        output = torch.zeros(int(counts[:, rank].sum()), 2)
        dist.all_to_all_single(output, torch.cat(sent[rank]), counts[:, rank].tolist(), counts[rank].tolist())
        assert_equal(output, torch.cat([sent[s][rank] for s in range(world)]), "all_to_all_single")
        received = [torch.zeros(counts[s, rank], 2) for s in range(world)]
        dist.all_to_all(received, sent[rank])
        for s in range(world):
            assert_equal(received[s], sent[s][rank], "all_to_all")

    run_ranks(world, body)


def bits_of(rank: int, dtype: torch.dtype, count: int) -> torch.Tensor:
    """Random bits, so that NaN payloads and denormals are among them; bool has only two values."""
    random = np.random.default_rng(rank)
    if dtype == torch.bool:
        return torch.from_numpy(random.integers(0, 2, count)).bool()
    return torch.from_numpy(random.integers(0, 256, count * dtype.itemsize, dtype=np.uint8)).view(dtype)


def assert_same_bits(got: torch.Tensor, want: torch.Tensor, what: object) -> None:
    assert torch.equal(got.view(torch.uint8), want.view(torch.uint8)), what


@pytest.mark.parametrize("world", [2, 3])
def test_every_dtype_is_moved_bit_for_bit(run_ranks, world):
    def body(rank, world):
        for dtype in DTYPES:
            bits = [bits_of(r, dtype, 6 * world) for r in range(world)]
            x = bits[rank].clone()
            dist.broadcast(x, 1)
            assert_same_bits(x, bits[1], ("broadcast", dtype))
            received = [torch.empty_like(x) for _ in range(world)]
            dist.all_gather(received, bits[rank])
            assert_same_bits(torch.stack(received), torch.stack(bits), ("all_gather", dtype))
            x = torch.empty_like(bits[0])
            dist.all_to_all_single(x, bits[rank])
            want = torch.cat([b.view(world, 6)[rank] for b in bits])
            assert_same_bits(x, want, ("all_to_all_single", dtype))
            x = torch.empty_like(bits[0])
            dist.scatter(x, bits if rank == 0 else None, 0)
            assert_same_bits(x, bits[rank], ("scatter", dtype))
            received = [torch.empty_like(x) for _ in range(world)] if rank == 0 else None
            dist.gather(bits[rank], received, 0)
            if rank == 0:
                assert_same_bits(torch.stack(received), torch.stack(bits), ("gather", dtype))
            if rank == 0:
                dist.send(bits[0], 1)
            elif rank == 1:
                dist.recv(x, 0)
                assert_same_bits(x, bits[0], ("recv", dtype))

    run_ranks(world, body)


def test_views_that_are_not_contiguous(run_ranks):
    def body(rank, world):
        everything = [values(r, (4, 6)) for r in range(world)]
        for name, view_of in {
            "transposed": lambda x: x.t().contiguous().t(),
            "every second column": lambda x: torch.stack([x, x * 0], -1).flatten(1)[:, ::2],
        }.items():
            mine = view_of(everything[rank])
            assert not mine.is_contiguous()
            x = mine.clone(memory_format=torch.preserve_format) if name == "transposed" else mine
            dist.all_reduce(x)
            assert_equal(x, sum(everything), ("all_reduce", name))
            received = [view_of(torch.zeros(4, 6)) for _ in range(world)]
            dist.all_gather(received, view_of(everything[rank]))
            for r in range(world):
                assert_equal(received[r], everything[r], ("all_gather", name))
            x = view_of(everything[rank])
            dist.broadcast(x, 1)
            assert_equal(x, everything[1], ("broadcast", name))
            output = view_of(torch.zeros(4 * world, 6))
            dist.all_gather_single(output, view_of(everything[rank]))
            assert_equal(output, torch.cat(everything), ("all_gather_single", name))
            x = view_of(torch.zeros(4, 6))
            if rank == 0:
                dist.send(view_of(everything[0]), 1)
            else:
                dist.recv(x, 0)
                assert_equal(x, everything[0], ("recv", name))

    run_ranks(2, body)


def test_conjugate_views_show_what_was_sent(run_ranks):
    def body(rank, world):
        x = torch.complex(values(rank, (5,)), values(rank, (5,), seed=1))
        received = [torch.zeros(5, dtype=torch.complex64).conj() for _ in range(world)]
        dist.group.WORLD.allgather([received], [x.conj()]).wait()
        assert_equal(received[rank].resolve_conj(), x.conj().resolve_conj(), "allgather")

    run_ranks(2, body)


def test_nothing_to_send_in_any_collective(run_ranks):
    def body(rank, world):
        x = torch.ones(1, 0, 2)
        received = [torch.zeros(1, 0, 2) for _ in range(world)]
        dist.all_gather(received, x)
        for operation in (dist.all_reduce, lambda t: dist.broadcast(t, 0), lambda t: dist.reduce(t, 0)):
            operation(torch.ones(0))
        output = torch.ones(0, 3)
        dist.all_gather_single(output, torch.ones(0, 3))
        dist.reduce_scatter_single(output, torch.ones(0, 3))
        dist.all_to_all_single(torch.ones(0), torch.ones(0), [0] * world, [0] * world)
        dist.gather(torch.zeros(0), [torch.zeros(0) for _ in range(world)] if rank == 0 else None, 0)
        # Only one rank sends, and only one receives.
        sent = torch.arange(3.0) if rank == 0 else torch.ones(0)
        got = torch.zeros(3 if rank == 1 else 0)
        out_sizes = [3 if rank == 1 and r == 0 else 0 for r in range(world)]
        in_sizes = [3 if rank == 0 and r == 1 else 0 for r in range(world)]
        dist.all_to_all_single(got, sent, out_sizes, in_sizes)
        return [tuple(t.shape) for t in received], tuple(output.shape), got.tolist()

    for world in (2, 3):
        for rank, (shapes, shape, got) in enumerate(run_ranks(world, body)):
            assert shapes == [(1, 0, 2)] * world
            assert shape == (0, 3)
            assert got == ([0.0, 1.0, 2.0] if rank == 1 else [])
