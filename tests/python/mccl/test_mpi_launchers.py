"""mpiexec of MPICH and of Open MPI start a job whose ranks find each other by the launcher's variables alone."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

PEERS = pathlib.Path(__file__).resolve().parents[3] / ".venv-peers"
# Who this process is must come from the launcher, whatever started the tests.
OTHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "SLURM_PROCID")
# Open MPI refuses to start as root, or more ranks than cores, unless told to.
OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}
SCRIPT = """
import datetime, os, pathlib, sys
import torch, torch.distributed as dist
from quincunx import mccl

mccl.init_from_environment(timeout=datetime.timedelta(seconds=30))
x = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(x)
launcher = next(name for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK") if name in os.environ)
pathlib.Path(sys.argv[1], f"rank{dist.get_rank()}").write_text(f"{launcher} {dist.get_world_size()} {x.item()}")
dist.destroy_process_group()
"""


def find_mpiexec(name: str, mark: str) -> str:
    """That of the peers' environment, else one on the path that says that it is of this MPI."""
    own = PEERS / name / "bin" / "mpiexec"
    if own.exists():
        return str(own)
    found = shutil.which("mpiexec")
    if found is None:
        pytest.skip(f"no mpiexec on the path and none in {own.parent}; `make bench-peers` installs it")
    version = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=60).stdout
    if mark not in version:
        pytest.skip(f"{found} is not of {mark}, and there is none in {own.parent}; `make bench-peers` installs it")
    return found


@pytest.mark.parametrize(
    ("name", "mark", "variable"),
    [("mpich", "HYDRA", "PMI_RANK"), ("openmpi", "Open MPI", "OMPI_COMM_WORLD_RANK")],
)
def test_mpiexec_starts_a_job(tmp_path, name, mark, variable):
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    environment = {key: value for key, value in os.environ.items() if key not in OTHERS}
    environment |= OPEN_MPI | {"OMP_NUM_THREADS": "1"}
    command = [find_mpiexec(name, mark), "-n", "2", sys.executable, str(script), str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment)
    assert result.returncode == 0, (result.stdout + result.stderr)[-3000:]
    assert [(tmp_path / f"rank{rank}").read_text() for rank in range(2)] == [f"{variable} 2 3.0"] * 2
