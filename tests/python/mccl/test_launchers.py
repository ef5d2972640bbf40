"""A job under torchrun that fails once and is started again: the second start meets the second start."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.nightly

SCRIPT = """
import datetime, os, sys
import torch, torch.distributed as dist
from quincunx import mccl

assert "TORCHELASTIC_RUN_ID" in os.environ
mccl.init_from_environment(timeout=datetime.timedelta(seconds=30))
restart = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
x = torch.tensor([dist.get_rank() + 1.0])
if restart == 0 and dist.get_rank() == 1:
    sys.exit(3)  # before the first collective
if restart > 0:
    dist.all_reduce(x)
    open(os.path.join(sys.argv[1], f"rank{dist.get_rank()}"), "w").write(f"{restart} {x.item()}")
    dist.destroy_process_group()
else:
    dist.all_reduce(x)
"""


@pytest.mark.timeout(300)
def test_torchrun_starts_a_failed_job_again(tmp_path):
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["--max-restarts", "1", str(script), str(tmp_path)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, capture_output=True, text=True, timeout=280, env=environment)
    assert result.returncode == 0, result.stderr[-3000:]
    assert [(tmp_path / f"rank{rank}").read_text() for rank in range(2)] == ["1 3.0"] * 2
