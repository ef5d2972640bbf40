"""Regions under policies against torch's checkpoint and against no checkpoint at all; one process, one thread."""

import pathlib

from quincunx._library import library_directory
from quincunx.cli.bench.capability import Capability

from . import model_rows, region_rows

_NO_SOLVER = "no policy is searched for a budget"


def check_ready(checkout: pathlib.Path) -> None:
    """RuntimeError where the compiled part was not built."""
    path = library_directory() / "_quincunx_activation.so"
    if not path.exists():
        raise RuntimeError(f"there is no {path.name} in {path.parent}; build it with `make build` in {checkout}")


CAPABILITY = Capability(
    name="activation",
    tasks=(*region_rows.TASKS, *model_rows.TASKS),
    unmeasured={
        "exclude_region": "no region is excluded from inspection",
        "auto_policy": _NO_SOLVER,
        "auto_budget": _NO_SOLVER,
        "swap_hidden": "no measurement tells the hidden part of the copy",
    },
    check_ready=check_ready,
)
