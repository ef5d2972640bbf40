"""More than 2 GiB in one tensor: 5 GB of memory and a minute."""

import os

import pytest
import torch
import torch.distributed as dist

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(
        os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") < 6 << 30, reason="needs 6 GB of free memory"
    ),
]
NUM_BYTES = 2**31 + 17


@pytest.mark.timeout(300)
def test_bytes_past_the_31_bit_mark_arrive(run_ranks):
    def body(rank, world):
        x = torch.zeros(NUM_BYTES, dtype=torch.uint8)
        x[-1], x[2**31] = rank + 1, 3
        dist.broadcast(x, 0)
        after_broadcast = int(x[-1]), int(x[2**31])
        x[-1] = rank + 1
        dist.all_reduce(x)
        return after_broadcast, (int(x[-1]), int(x[2**31]))

    assert run_ranks(2, body, timeout_s=200, wall_s=280) == [((1, 3), (3, 6))] * 2
