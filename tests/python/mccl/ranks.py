"""What the ranks of several tests do alike."""

import datetime
import os
import socket

import torch
import torch.distributed as dist

SECONDS = datetime.timedelta(seconds=20)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def sum_of_ranks(group: dist.ProcessGroup | None = None) -> float:
    """The sum of global rank + 1 over the members."""
    x = torch.tensor([dist.get_rank() + 1.0])
    dist.all_reduce(x, group=group)
    return x.item()


def num_threads() -> int:
    """Of this process."""
    return len(os.listdir("/proc/self/task"))


def num_threads_and_descriptors() -> tuple[int, int]:
    return num_threads(), len(os.listdir("/proc/self/fd"))


def num_descriptor_slots() -> int:
    """Of the table of this process. The system enlarges it when none is left, and never reduces it."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("FDSize:"))


def fill_descriptors(left: int) -> int:
    """Leaves so many slots of the table free, and returns their number in all: a larger one later tells that more than
    `left` were open at once."""
    num_open = len(os.listdir("/proc/self/fd")) - 1
    # Fewer may be free already: a forked rank holds what its parent held, in a table that fits.
    while num_descriptor_slots() - num_open != left:
        os.dup(2)
        num_open += 1
    return num_descriptor_slots()
