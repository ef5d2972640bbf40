"""Sources are formatted by clang-format (.clang-format) and ruff (pyproject.toml). `make format` formats them."""

import pathlib
import shutil
import subprocess
import sys

from repository import files


def _lines(command: list, root: pathlib.Path) -> list[str]:
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120)
    return [] if done.returncode == 0 else (done.stdout + done.stderr).splitlines()


def cpp_violations(root: pathlib.Path) -> list[str]:
    program = shutil.which("clang-format-22")
    sources = [str(path) for path in files(root, ".cpp", ".h")]
    if program is None or not sources:
        return []
    lines = _lines([program, "--dry-run", "--Werror", "--ferror-limit=1", *sources], root)
    return [line for line in lines if "error:" in line]


def python_violations(root: pathlib.Path) -> list[str]:
    ruff = [sys.executable, "-m", "ruff"]
    return _lines([*ruff, "check", "--quiet", "--output-format=concise", "."], root) + _lines(
        [*ruff, "format", "--check", "--quiet", "."], root
    )
