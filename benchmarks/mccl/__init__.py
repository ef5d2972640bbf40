"""mccl against gloo, MPICH and Open MPI: two processes of one thread that hold a group of each."""

import pathlib

from quincunx._library import library_directory
from quincunx.cli.bench.capability import Capability

from . import collective_rows, fault_rows, init_rows, mpi_rows, simulation_rows, start_rows, training_rows


def check_ready(checkout: pathlib.Path) -> None:
    """RuntimeError where the backend was not built."""
    path = library_directory() / "_quincunx_distributed.so"
    if not path.exists():
        raise RuntimeError(f"there is no {path.name} in {path.parent}; build it with `make build` in {checkout}")


CAPABILITY = Capability(
    name="mccl",
    # The processes of two ranks serve all rows but the first, which needs fresh ones, and the last of another size.
    tasks=(
        *init_rows.TASKS,
        *start_rows.TASKS,
        *simulation_rows.TASKS,
        *training_rows.TASKS,
        *mpi_rows.TASKS,
        *collective_rows.TASKS,
        *fault_rows.TASKS,
    ),
    unmeasured={},
    check_ready=check_ready,
)
