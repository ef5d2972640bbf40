"""Where and from what a table of figures was taken."""

import datetime
import os
import pathlib
import platform
import subprocess

_CPU_INFO = pathlib.Path("/proc/cpuinfo")
# From the widest on; the first that a CPU has is the one that it is described by.
_INSTRUCTION_SETS = (
    ("amx_tile", "AMX"),
    ("avx512_bf16", "AVX-512 with bf16"),
    ("avx512f", "AVX-512"),
    ("avx2", "AVX2"),
    ("asimd", "NEON"),
)


def _field(*names: str, text: str | None = None) -> str:
    text = _CPU_INFO.read_text() if text is None else text
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in names:
            return value.strip()
    return ""


def cpu_flags(text: str | None = None) -> list[str]:
    """The features of the CPU in the words of /proc/cpuinfo."""
    return _field("flags", "Features", text=text).split()


def instruction_set(flags: list[str]) -> str:
    return next((name for flag, name in _INSTRUCTION_SETS if flag in flags), "baseline")


def _git(checkout: pathlib.Path, *arguments: str) -> str:
    command = ["git", "-C", str(checkout), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.strip()


def commit(checkout: pathlib.Path) -> str:
    try:
        changed = " with local changes" if _git(checkout, "status", "--porcelain", "--untracked-files=no") else ""
        return _git(checkout, "rev-parse", "--short=12", "HEAD") + changed
    except (OSError, subprocess.SubprocessError):
        return "not a git checkout"


def describe(checkout: pathlib.Path) -> dict[str, str]:
    import torch

    flags = cpu_flags()
    return {
        "processor": _field("model name", "Model") or platform.machine(),
        "instruction set": instruction_set(flags),
        "cores": str(len(os.sched_getaffinity(0))),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit(checkout),
        "versions": f"Python {platform.python_version()}, torch {torch.__version__}",
    }
