"""mccl against gloo: two processes of one thread that hold a group of each."""

import pathlib

from quincunx._library import library_directory
from quincunx.cli.bench.capability import Capability

from . import collective_rows, init_rows, simulation_rows, training_rows

_NO_SIMULATION = "no measurement connects virtual ranks over real sockets"
_NO_LARGE_JOB = "no measurement starts 64 ranks"
_NO_FAULTS = "no measurement seeds faults; the tests do"


def check_ready(checkout: pathlib.Path) -> None:
    """RuntimeError where the backend was not built."""
    path = library_directory() / "_quincunx_distributed.so"
    if not path.exists():
        raise RuntimeError(f"there is no {path.name} in {path.parent}; build it with `make build` in {checkout}")


CAPABILITY = Capability(
    name="mccl",
    # The processes of two ranks serve all rows but the first, which needs fresh ones, and the last of another size.
    tasks=(*init_rows.TASKS, *simulation_rows.TASKS, *training_rows.TASKS, *collective_rows.TASKS),
    unmeasured={
        "overlap": "no measurement injects work into the connecting thread",
        "start_64_ranks": _NO_LARGE_JOB,
        "start_64_ranks_dead_name_server": _NO_LARGE_JOB,
        "new_group_64": _NO_LARGE_JOB,
        "new_group_64_descriptors": _NO_LARGE_JOB,
        "descriptors_64_ranks": _NO_LARGE_JOB,
        "virtual_4096_ranks": _NO_SIMULATION,
        "virtual_4096_ranks_connections": _NO_SIMULATION,
        "virtual_4096_ranks_fan_in": _NO_SIMULATION,
        "virtual_4096_ranks_bytes": _NO_SIMULATION,
        "all_reduce_8_bytes_cpp": "no measurement runs two ranks in C++",
        "each_op_1_mib_mpi": "the peers MPICH and Open MPI are not among those of `make bench-peers`",
        "all_reduce_64_mib_direct": "the backend allocates no tensors",
        "faults_rank_sets": _NO_FAULTS,
        "faults_delay": _NO_FAULTS,
    },
    check_ready=check_ready,
)
