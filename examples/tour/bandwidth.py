"""Measures mccl's collectives against gloo's, interleaved in the same processes. Start it with torchrun:

    torchrun --nproc-per-node 2 examples/tour/bandwidth.py RUN_DIRECTORY

The only program of the tour that makes a gloo group: as the peer that mccl is measured against.
"""

import datetime
import os
import pathlib
import statistics
import sys
import time
from collections.abc import Callable

import quincunx.mccl  # noqa: F401 (registers the backend)
import settings as tour_settings
import torch
import torch.distributed as dist
from records import Recorder

BACKENDS = ("mccl", "gloo")
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter")


def collective(operation: str, num_bytes: int, group: dist.ProcessGroup) -> Callable[[], None]:
    """A call of the operation on a whole tensor of num_bytes: the sum's, the gathered or the scattered one."""
    world_size = dist.get_world_size(group)
    num_elements = max(1, num_bytes // 4 // world_size) * world_size
    whole = torch.ones(num_elements)
    part = torch.ones(num_elements // world_size)
    if operation == "all_reduce":
        # MAX leaves equal values alone, however often it runs.
        return lambda: dist.all_reduce(whole, op=dist.ReduceOp.MAX, group=group)
    if operation == "all_gather":
        return lambda: dist.all_gather_into_tensor(whole, part, group=group)
    return lambda: dist.reduce_scatter_tensor(part, whole, op=dist.ReduceOp.MAX, group=group)


def median_seconds(calls: dict[str, Callable[[], None]], repeats: int) -> dict[str, float]:
    """Every round runs each backend once, so that both see the same state of the machine."""
    samples: dict[str, list[float]] = {backend: [] for backend in calls}
    for round_index in range(repeats + 1):
        for backend, call in calls.items():
            dist.barrier()
            start = time.perf_counter()
            call()
            if round_index > 0:  # the first one warms up
                samples[backend].append(time.perf_counter() - start)
    return {backend: statistics.median(values) for backend, values in samples.items()}


def main(run_directory: pathlib.Path) -> None:
    torch.set_num_threads(1)
    settings = tour_settings.read(run_directory / "settings.json")
    timeout = datetime.timedelta(seconds=settings.collective_timeout_s)
    dist.init_process_group("mccl", timeout=timeout)
    groups = {"mccl": dist.group.WORLD, "gloo": dist.new_group(backend="gloo", timeout=timeout)}
    recorder = Recorder(run_directory / "bandwidth", attempt=0, rank=dist.get_rank())
    recorder.write("start", pid=os.getpid())
    for operation in OPERATIONS:
        for num_bytes in settings.bandwidth_bytes:
            calls = {backend: collective(operation, num_bytes, groups[backend]) for backend in BACKENDS}
            seconds = median_seconds(calls, settings.bandwidth_repeats)
            for backend, value in seconds.items():
                recorder.write("bandwidth", operation=operation, backend=backend, bytes=num_bytes, seconds=value)
    recorder.write("done", pid=os.getpid())
    dist.destroy_process_group()


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
