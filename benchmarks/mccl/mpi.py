"""MPICH and Open MPI of .venv-peers: a job of some ranks that sleeps between the samples that it is asked for."""

import contextlib
import multiprocessing.connection
import os
import pathlib
import socket
import subprocess
import tempfile

MPIS = {"MPICH": "mpich", "Open MPI": "openmpi"}
_RANK = pathlib.Path(__file__).with_name("mpi_rank.py")
_START_SECONDS, _ANSWER_SECONDS, _END_SECONDS = 60.0, 60.0, 10.0
# Open MPI refuses to start as root, or more ranks than cores, unless told to.
_ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}


class MpiJob:
    """Started when made; `sample` times a call on all ranks, and `close` ends it."""

    def __init__(self, name: str, num_ranks: int, checkout: pathlib.Path) -> None:
        self.name = name
        programs = checkout / ".venv-peers" / MPIS[name] / "bin"
        if not (programs / "mpiexec").exists():
            raise RuntimeError(
                f"the peer {name} is missing: there is no {programs / 'mpiexec'}; run `make bench-peers`"
            )
        self._folder = tempfile.TemporaryDirectory(prefix="quincunx-mpi-")
        address = str(pathlib.Path(self._folder.name) / "orders")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.settimeout(_START_SECONDS)
        self._listener.bind(address)
        self._listener.listen(num_ranks)
        command = [programs / "mpiexec", "-n", str(num_ranks), programs / "python", _RANK, address]
        self._process = subprocess.Popen(
            command, env=os.environ | _ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._pipes = [self._accept() for _ in range(num_ranks)]

    def _accept(self) -> multiprocessing.connection.Connection:
        try:
            connected, _ = self._listener.accept()
        except TimeoutError:
            self._process.kill()
            raise RuntimeError(f"{self.name}: its ranks did not start within {_START_SECONDS:g} s") from None
        pipe = multiprocessing.connection.Connection(connected.detach())
        pipe.recv()
        return pipe

    def sample(self, operation: str, num_bytes: int, num_calls: int) -> float:
        """Seconds a call, those of the slowest rank."""
        for pipe in self._pipes:
            pipe.send((operation, num_bytes, num_calls))
        seconds = []
        for pipe in self._pipes:
            if not pipe.poll(_ANSWER_SECONDS):
                raise RuntimeError(f"{self.name}: no answer within {_ANSWER_SECONDS:g} s")
            seconds.append(pipe.recv())
        return max(seconds)

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        self._listener.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._folder.cleanup()
