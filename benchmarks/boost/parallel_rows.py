"""Attention over a sequence in two parts, on two ranks, against one process that has it whole."""

import time

import torch
from quincunx.boost import attention, sequence_parallel_attention
from quincunx.cli.bench.capability import Context, Task
from quincunx.cli.bench.rounds import Rounds, slowest
from quincunx.cli.bench.row import Measurement

from ..mccl.groups import connect, in_step

_RANKS = 2
TOKENS, HEADS, HEAD_DIM = 4095, 11, 64  # odd on purpose
_LARGEST_DIFFERENCE = 1e-6  # the same kernel over the same keys; queries stand in other tiles


def time_parts(rank: int, num_ranks: int, store: str, *, rounds: int) -> dict[str, list[float]]:
    """Runs on each rank; the first one also does the whole, while the others wait."""
    group = connect(rank, num_ranks, store)["gloo"]
    generator = torch.Generator().manual_seed(0)
    whole = [torch.randn(1, TOKENS, HEADS, HEAD_DIM, generator=generator) for _ in range(3)]
    parts = [tensor.chunk(num_ranks, dim=1)[rank].contiguous() for tensor in whole]
    result = sequence_parallel_attention(*parts, group=group)
    expected = attention(*whole, layout="BSND").chunk(num_ranks, dim=1)[rank]
    difference = (result - expected).abs().max().item()
    if not difference <= _LARGEST_DIFFERENCE:
        raise RuntimeError(f"the parts of rank {rank} differ from the whole by {difference:.3g}")
    calls = {
        "ours": lambda: sequence_parallel_attention(*parts, group=group),
        "one process": lambda: attention(*whole, layout="BSND") if rank == 0 else None,
    }
    return in_step(calls, Rounds(rounds), 1, time.perf_counter)


def measure(context: Context) -> list[Measurement]:
    of_ranks = context.workers(_RANKS).run(__name__, "time_parts", rounds=context.num_steps)
    seconds = {name: slowest([values[name] for values in of_ranks]) for name in of_ranks[0]}
    name = f"attention over parts of {TOKENS} tokens, {HEADS} heads of {HEAD_DIM}, {_RANKS} processes over gloo"
    return [Measurement("usp", name, "s", seconds["ours"], {"one process": seconds["one process"]})]


TASKS = (Task(("usp",), measure, cores=_RANKS),)
