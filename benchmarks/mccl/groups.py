"""The groups of a rank process: one of mccl and one of gloo over the same ranks, made once."""

import datetime
import functools
from collections.abc import Callable

import torch.distributed as dist
from quincunx.cli.bench.rounds import Rounds

BACKENDS = ("mccl", "gloo")
_TIMEOUT = datetime.timedelta(seconds=60)


@functools.cache
def connect(rank: int, num_ranks: int, store: str) -> dict[str, dist.ProcessGroup]:
    """Backend -> group. The default group is mccl's."""
    import quincunx.mccl  # noqa: F401  Registers the backend, in the processes of the ranks only.

    dist.init_process_group("mccl", init_method=f"file://{store}", rank=rank, world_size=num_ranks, timeout=_TIMEOUT)
    groups = {"mccl": dist.group.WORLD, "gloo": dist.new_group(backend="gloo", timeout=_TIMEOUT)}
    for group in groups.values():
        dist.barrier(group=group)
    return groups


def in_step(
    calls: dict[str, Callable[[], object]], rounds: Rounds, num_calls: int, clock: Callable[[], float]
) -> dict[str, list[float]]:
    """Seconds a call. As rounds.interleave, for calls that all ranks make together: their number is given, since every
    rank must make as many, and each sample starts at a untimed barrier."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    order = list(calls)
    for round_index in range(-1, rounds.count):
        for name in order:
            dist.barrier()
            calls[name]()
            start = clock()
            for _ in range(num_calls):
                calls[name]()
            if round_index >= 0:  # the first round warms up
                seconds[name].append((clock() - start) / num_calls)
        order.reverse()
    return seconds
