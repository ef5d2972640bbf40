"""Attention over parts of a sequence on several ranks against attention over the whole."""

import datetime
import multiprocessing
import time

import pytest
import torch
import torch.distributed as dist
from boost.reference import masked_attention
from quincunx.boost import sequence_parallel_attention

WALL_S = 40
FORK = multiprocessing.get_context("fork")
# As in test_dense.
ATOL = 2 * 6 * 30 * 5 * 2**-24


def _rank(rank, world, store, body, results):
    torch.set_num_threads(1)  # The threads of the parent are not in this process.
    timeout = datetime.timedelta(seconds=20)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world, timeout=timeout)
    try:
        results.put((rank, body(rank, world)))
    except Exception as error:  # The parent compares what was raised.
        results.put((rank, error))


def on_ranks(world, store, body):
    """What body(rank, world) returned or raised on each rank."""
    results = FORK.SimpleQueue()
    processes = [FORK.Process(target=_rank, args=(r, world, store, body, results)) for r in range(world)]
    for process in processes:
        process.start()
    outcomes, deadline = {}, time.monotonic() + WALL_S
    while len(outcomes) < world and time.monotonic() < deadline:
        while not results.empty():
            rank, outcome = results.get()
            outcomes[rank] = outcome
        time.sleep(0.01)
    for process in processes:
        process.kill()
        process.join()
    assert len(outcomes) == world, f"ranks {sorted(set(range(world)) - set(outcomes))} hung"
    return [outcomes[rank] for rank in range(world)]


def whole(heads, key_heads, length, dtype):
    torch.manual_seed(heads)
    query = torch.randn(2, length, heads, 8).to(dtype)
    return query, torch.randn(2, length, key_heads, 8).to(dtype), torch.randn(2, length, key_heads, 5).to(dtype)


@pytest.mark.parametrize(
    ("heads", "key_heads", "lengths", "dtype"),
    [
        (3, 3, (5, 4), torch.float32),  # heads that the ranks do not divide
        (4, 1, (1, 8), torch.float32),
        (6, 3, (0, 7), torch.float32),  # a rank without tokens
        (1, 1, (3, 0, 4), torch.float32),
        (2, 2, (0, 0), torch.float32),
        (2, 1, (9, 2), torch.bfloat16),
    ],
    ids=str,
)
def test_equals_attention_over_the_whole_sequence(tmp_path, heads, key_heads, lengths, dtype):
    tensors = whole(heads, key_heads, sum(lengths), dtype)

    def body(rank, world):
        output = sequence_parallel_attention(*(t.split(lengths, dim=1)[rank] for t in tensors))
        assert output.dtype == dtype
        return output.tolist()  # A tensor would be shared with a process that ends.

    outputs = on_ranks(len(lengths), tmp_path / "store", body)
    query, key, value = (t.transpose(1, 2) for t in tensors)
    expected, _ = masked_attention(query, key, value, torch.ones(sum(lengths), sum(lengths), dtype=torch.bool))
    for output, reference in zip(outputs, expected.transpose(1, 2).split(lengths, dim=1), strict=True):
        atol = ATOL if dtype == torch.float32 else 5 * torch.finfo(dtype).eps
        torch.testing.assert_close(torch.tensor(output).double().view_as(reference), reference, rtol=0, atol=atol)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda q, k, v: (q, k[:, :, :2], v[:, :, :2]), "key: expected a number of heads that divides the 3 of query"),
        (lambda q, k, v: (q, k, v[:, :1]), "value: expected the batch, length and heads of key"),
        (lambda q, k, v: (q.double(), k, v), "query: expected a float32, bfloat16 or float16 tensor"),
        (lambda q, k, v: (q[..., :4], k, v), "key: expected the batch and head size of query"),
    ],
    ids=["heads", "value", "dtype", "head size"],
)
def test_bad_arguments_on_one_rank_raise_on_all(tmp_path, change, message):
    tensors = whole(3, 3, 4, torch.float32)

    def body(rank, world):
        return sequence_parallel_attention(*(change(*tensors) if rank == 1 else tensors))

    other, bad = on_ranks(2, tmp_path / "store", body)
    assert isinstance(other, ValueError) and "rank 1 of the group has arguments that do not fit" in str(other)
    assert isinstance(bad, ValueError) and str(bad).startswith(message)


def test_ranks_that_differ_raise_on_all(tmp_path):
    def body(rank, world):
        return sequence_parallel_attention(*whole(2 + rank, 1, 4, torch.float32))

    for outcome in on_ranks(2, tmp_path / "store", body):
        assert isinstance(outcome, ValueError) and "expected the same batch, heads, head sizes" in str(outcome)
