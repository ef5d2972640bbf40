"""One rank of an MPI job, run by the Python of the peer's own environment: times what it is told to, over a socket.
While it waits for an order it sleeps there and does not spin within MPI."""

import multiprocessing.connection
import sys
import time
from collections.abc import Callable

import numpy as np
from mpi4py import MPI


def _call(operation: str, num_bytes: int) -> Callable[[], object]:
    """The same tensors and reductions as collective_rows, in place where MPI allows it."""
    world = MPI.COMM_WORLD
    size, rank = world.Get_size(), world.Get_rank()
    whole = np.ones(max(size, num_bytes // 4 // size * size), np.float32)
    part = np.ones(whole.size // size, np.float32)
    received = np.empty_like(whole)
    is_root = rank == 0
    calls: dict[str, Callable[[], object]] = {
        "all_reduce": lambda: world.Allreduce(MPI.IN_PLACE, whole, op=MPI.MAX),
        "all_gather": lambda: world.Allgather(part, whole),
        "reduce_scatter": lambda: world.Reduce_scatter_block(whole, part, op=MPI.MAX),
        "all_to_all": lambda: world.Alltoall(whole, received),
        "broadcast": lambda: world.Bcast(whole, 0),
        "reduce": lambda: world.Reduce(
            MPI.IN_PLACE if is_root else whole, whole if is_root else None, op=MPI.MAX, root=0
        ),
        "gather": lambda: world.Gather(part, received if is_root else None, 0),
        "scatter": lambda: world.Scatter(received if is_root else None, part, 0),
    }
    return calls[operation]


def main(address: str) -> None:
    """Answers (operation, bytes, calls) with seconds a call, until the connection is closed."""
    with multiprocessing.connection.Client(address, "AF_UNIX") as pipe:
        pipe.send(MPI.COMM_WORLD.Get_rank())
        while True:
            try:
                operation, num_bytes, num_calls = pipe.recv()
            except EOFError:
                return
            call = _call(operation, num_bytes)
            call()
            MPI.COMM_WORLD.Barrier()
            call()
            start = time.perf_counter()
            for _ in range(num_calls):
                call()
            pipe.send((time.perf_counter() - start) / num_calls)


if __name__ == "__main__":
    main(sys.argv[1])
