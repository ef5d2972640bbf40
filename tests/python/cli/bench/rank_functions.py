"""What the ranks of test_workers.py run."""

import os
import time

import torch
from quincunx._library import load_operators


def identify(rank: int, num_ranks: int, store: str, *, word: str) -> tuple:
    return rank, num_ranks, word, torch.get_num_threads()


def fail_on_rank_1(rank: int, num_ranks: int, store: str) -> None:
    if rank == 1:
        raise ValueError("wrong")


def process_id(rank: int, num_ranks: int, store: str) -> int:
    return os.getpid()


def die(rank: int, num_ranks: int, store: str) -> None:
    os._exit(3)


def sleep(rank: int, num_ranks: int, store: str) -> None:
    time.sleep(100)


def exponentials(rank: int, num_ranks: int, store: str) -> torch.Tensor:
    load_operators()
    return torch.ops.quincunx.unary(torch.linspace(-80, 80, 4001), "exp")
