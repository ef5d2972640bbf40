"""Where a run took place: machine, versions and commit, for the report's table."""

import datetime
import os
import pathlib
import platform
import subprocess

import torch


def _cpu_name() -> str:
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("model name", "Model")):
            return line.partition(":")[2].strip()
    return platform.machine()


def _commit() -> str:
    def git(*arguments: str) -> str:
        command = ["git", "-C", str(pathlib.Path(__file__).parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.strip()

    try:
        return git("rev-parse", "--short=12", "HEAD") + (" with local changes" if git("status", "--porcelain") else "")
    except (OSError, subprocess.SubprocessError):
        return "not a git checkout"


def rows() -> list[tuple[str, str]]:
    return [
        ("date", datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")),
        ("commit", _commit()),
        ("processor", f"{_cpu_name()}, {len(os.sched_getaffinity(0))} cores for this process"),
        ("instruction set that PyTorch uses", torch.backends.cpu.get_cpu_capability()),
        ("system", f"{platform.system()} {platform.release()}"),
        ("versions", f"Python {platform.python_version()}, torch {torch.__version__}"),
    ]
