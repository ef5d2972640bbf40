"""Runs a program and notes which files were mapped into its process while it ran."""

import dataclasses
import pathlib
import subprocess
import tempfile
import time
from collections.abc import Iterable

_POLL_S = 0.001


class ProgramError(RuntimeError):
    """A program ended with an error or took too long."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """`mapped`: paths of files that any look at the process found. `num_looks`: how often it was looked at."""

    output: str
    mapped: frozenset[str]
    num_looks: int
    seconds: float


def of_python(paths: Iterable[str]) -> list[str]:
    """Those of an interpreter, its library, its modules or its packages; our own package's libraries are none."""
    return sorted(path for path in paths if "python" in path.rsplit("/quincunx/", 1)[-1].lower())


def _mapped_files(pid: int) -> set[str]:
    try:
        lines = pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return set()
    fields = [line.split(maxsplit=5) for line in lines]
    return {entry[5] for entry in fields if len(entry) == 6 and entry[5].startswith("/")}


def run(command: list[str], *, timeout_s: float) -> Outcome:
    start = time.monotonic()
    mapped: set[str] = set()
    num_looks = 0
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, text=True)
        try:
            while process.poll() is None:
                if time.monotonic() - start > timeout_s:
                    raise ProgramError(f"{command[0]} did not end within {timeout_s:.0f} s")
                found = _mapped_files(process.pid)
                # Between fork and exec the process still is this one, with its Python.
                if str(pathlib.Path(command[0]).resolve()) in found:
                    mapped |= found
                    num_looks += 1
                time.sleep(_POLL_S)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        output.seek(0)
        errors.seek(0)
        if process.returncode != 0:
            raise ProgramError(f"{' '.join(command)} ended with code {process.returncode}:\n{errors.read()[-2000:]}")
        return Outcome(output.read(), frozenset(mapped), num_looks, time.monotonic() - start)
