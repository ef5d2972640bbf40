"""How many threads a measurement uses."""

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def num_threads(count: int) -> Iterator[None]:
    """`count` threads of torch inside, which are ours as well."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def one_thread() -> contextlib.AbstractContextManager[None]:
    return num_threads(1)
