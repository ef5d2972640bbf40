"""Steps of Muon on DTensors of two ranks, over gloo and over mccl, against what a user would write in torch."""

import functools

from quincunx.cli.bench.capability import Capability, Task

from ..kernels import newton_schulz_rows
from ..mccl import check_ready
from . import share_rows, step_rows

_NO_MEMORY = "no measurement reads the peak memory of a step; the tests hold the planned bytes to the cap"


def _newton_schulz_tasks() -> tuple[Task, ...]:
    """The rows of the kernel that are demanded here too, on one thread."""
    return tuple(
        Task((row_id,), functools.partial(newton_schulz_rows.measure, row_id, 1))
        for row_id in newton_schulz_rows.BATCHES
    )


CAPABILITY = Capability(
    name="muon",
    tasks=(*step_rows.TASKS, *_newton_schulz_tasks(), *share_rows.TASKS),
    unmeasured={
        "dion": "the peer dion is not among those of `make bench-peers`",
        "peak_memory_cap": _NO_MEMORY,
        "peak_memory_gathered": _NO_MEMORY,
    },
    check_ready=check_ready,
)
