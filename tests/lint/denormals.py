"""Loading a library must leave the caller's arithmetic alone: one linked with -ffast-math can make denormals zero."""

import pathlib
import subprocess
import sys

# Runs in a process of its own: the mode that a library sets would stay.
_PROBE = """
import ctypes, sys
for needed in sys.argv[2:]:
    __import__(needed)
smallest_normal, smallest = 2.0 ** -1022, 2.0 ** -1074
assert smallest_normal * 0.5 != 0.0 and smallest * 2.0 != 0.0, "denormals were zero before"
ctypes.CDLL(sys.argv[1])
produced, consumed = smallest_normal * float("0.5"), smallest * float("2")
print(f"produced {produced!r} consumed {consumed!r}")
sys.exit(produced == 0.0 or consumed == 0.0)
"""


def violations(library: pathlib.Path, *modules_before: str) -> list[str]:
    """What is wrong after loading `library` into a process that has imported `modules_before`."""
    done = subprocess.run(
        [sys.executable, "-c", _PROBE, library, *modules_before], capture_output=True, text=True, timeout=60
    )
    if done.returncode == 0:
        return []
    return [f"{library.name}: denormals do not survive its loading: {done.stdout}{done.stderr}"]
