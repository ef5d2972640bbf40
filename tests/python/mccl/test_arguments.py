"""Bad input is refused on the calling rank, names the argument, and leaves the group usable."""

import pytest
import torch
import torch.distributed as dist

# (call, exception, part of the message). World size 2; the rank that calls is alone in doing so.
CASES = {
    "sparse with another reduction": (
        lambda: dist.all_reduce(torch.ones(2, 2).to_sparse(), dist.ReduceOp.MAX),
        NotImplementedError,
        "op: sparse tensors can only be summed",
    ),
    "quantized": (
        lambda: dist.all_reduce(torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)),
        (TypeError, NotImplementedError),
        "",
    ),
    "complex32": (
        lambda: dist.reduce(torch.zeros(2, dtype=torch.complex32), 0),
        TypeError,
        "cannot be communicated; expected bool, integers",
    ),
    "source": (lambda: dist.broadcast(torch.ones(2), 2), ValueError, "0 to 1, got 2"),
    "destination": (lambda: dist.send(torch.ones(2), 7), ValueError, ""),
    "gathered sizes": (
        lambda: dist.all_gather([torch.zeros(5), torch.zeros(5)], torch.ones(4)),
        ValueError,
        "which receives tensor: expected 4 elements, got 5",
    ),
    "list length": (
        lambda: dist.all_gather([torch.zeros(4)], torch.ones(4)),
        ValueError,
        "tensor_list: expected a list of 2, got 1",
    ),
    "gathered dtype": (
        lambda: dist.all_gather_single(torch.zeros(8, dtype=torch.int32), torch.ones(4)),
        TypeError,
        "output_tensor: expected dtype float32 of input_tensor, got int32",
    ),
    "output size": (
        lambda: dist.all_gather_single(torch.zeros(7), torch.ones(4)),
        ValueError,
        "expected 8 elements, got 7",
    ),
    "scattered size": (
        lambda: dist.reduce_scatter_single(torch.zeros(4), torch.ones(9)),
        ValueError,
        "input, which holds output of every rank: expected 8 elements, got 9",
    ),
    "uneven rows": (
        lambda: dist.all_to_all_single(torch.zeros(3), torch.ones(3)),
        ValueError,
        "input: dimension 0 of size 3 cannot be divided among 2 ranks",
    ),
    "split sum": (
        lambda: dist.all_to_all_single(torch.zeros(4), torch.ones(4), [2, 2], [1, 2]),
        ValueError,
        "input_split_sizes: expected a sum of 4",
    ),
    "split length": (
        lambda: dist.all_to_all_single(torch.zeros(4), torch.ones(4), [4], [2, 2]),
        ValueError,
        "output_split_sizes: expected a list of 2, got 1",
    ),
    "negative split": (
        lambda: dist.all_to_all_single(torch.zeros(4), torch.ones(4), [2, 2], [5, -1]),
        ValueError,
        "must not be negative, got -1",
    ),
    "overlapping output": (
        lambda: dist.all_reduce(torch.zeros(1).expand(4)),
        ValueError,
        "tensor: its elements share memory",
    ),
    "in place": (
        lambda: (lambda x: dist.all_to_all_single(x, x))(torch.ones(4)),
        ValueError,
        "all_to_all: outputs[1]: expected memory apart from inputs[1], got an overlap",
    ),
    "bits of floats": (
        lambda: dist.all_reduce(torch.ones(2), dist.ReduceOp.BAND),
        NotImplementedError,
        "BAND is not defined for float32",
    ),
    "order of complex": (
        lambda: dist.all_reduce(torch.ones(2, dtype=torch.complex64), dist.ReduceOp.MAX),
        ValueError,
        "does not support RedOpType.MAX on complex tensors",
    ),
    "timeout": (
        lambda: dist.group.WORLD._get_backend(torch.device("cpu")).set_timeout(-dist.default_pg_timeout),
        ValueError,
        "timeout: must be positive",
    ),
}


def test_bad_input_names_the_argument(run_ranks):
    def body(rank, world):
        for name, (call, expected, text) in CASES.items():
            if rank == 0:
                with pytest.raises(expected) as raised:
                    call()
                assert text in str(raised.value), f"{name}: {raised.value}"
        x = torch.ones(3)
        dist.all_reduce(x)  # The group is in step and works.
        return x.tolist()

    assert run_ranks(2, body) == [[2.0] * 3] * 2


def test_a_coalesced_call_with_one_bad_tensor_queues_nothing(run_ranks):
    def body(rank, world):
        group = dist.group.WORLD
        if rank == 0:
            with pytest.raises(ValueError, match=r"outputs\[1\] against inputs\[1\]"):
                group.allgather_into_tensor_coalesced(
                    [torch.zeros(4), torch.zeros(5)], [torch.ones(2), torch.ones(2)]
                ).wait()
            with pytest.raises(ValueError, match=r"tensors\[1\]: its elements share memory"):
                group.allreduce_coalesced([torch.ones(2), torch.ones(1).expand(2)]).wait()
        x = torch.ones(3)
        dist.all_reduce(x)
        return x.tolist()

    assert run_ranks(2, body) == [[2.0] * 3] * 2


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda rank: dist.all_reduce(torch.ones(3 + rank)), ("3", "4")),
        (
            lambda rank: dist.all_reduce(torch.ones(3, dtype=(torch.float32, torch.int32)[rank % 2])),
            ("float32", "int32"),
        ),
        (lambda rank: dist.all_reduce(torch.ones(3), (dist.ReduceOp.SUM, dist.ReduceOp.MAX)[rank % 2]), ("sum", "max")),
        (lambda rank: dist.broadcast(torch.ones(3), rank % 2), ("root",)),
        (lambda rank: dist.barrier() if rank % 2 else dist.all_reduce(torch.ones(3)), ("barrier", "all_reduce")),
    ],
    ids=["size", "dtype", "reduction", "root", "operation"],
)
def test_a_mismatch_is_an_error_on_all_ranks(start_ranks, call, text):
    def body(rank, world):
        call(rank)

    for world in (2, 3):
        for rank, outcome in enumerate(start_ranks(world, body, timeout_s=5, wall_s=20)):
            assert outcome.kind == "raised", f"rank {rank}: {outcome}"
            assert set(outcome.classes) & {"ValueError", "TypeError", "RuntimeError"}, outcome
            for part in text:
                assert part in outcome.value.lower(), f"rank {rank}: {outcome.value}"
