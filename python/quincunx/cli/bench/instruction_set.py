"""Restricts our kernels to an instruction set below that of this machine, for figures of other machines."""

import contextlib
import ctypes
import os
from collections.abc import Iterator

from quincunx._library import library_directory, load_operators

# The names of Highway's targets: hwy/detect_targets.h.
LEVELS = {"AVX2": 1 << 9, "portable": 1 << 61}
_LIBRARY = "libquincunx_runtime.so"
_FUNCTION = "_ZN3hwy26SetSupportedTargetsForTestEl"
# What the processes of ranks, which start anew, are to be restricted to.
_VARIABLE = "QX_BENCH_INSTRUCTION_SET"


def restrict_to(level: str | None) -> None:
    """From now on, in this process; None: what the machine has. RuntimeError where the kernels hold a Highway of
    their own, which nothing outside can reach."""
    load_operators()
    try:
        # Looked up through the kernels' library, which finds the Highway that they were linked to. By the name of
        # Highway's library another copy would be loaded where the kernels do not use it, and restricted in vain.
        kernels = ctypes.CDLL(str(library_directory() / _LIBRARY), mode=os.RTLD_NOW | os.RTLD_NOLOAD)
        restrict = getattr(kernels, _FUNCTION)
    except (OSError, AttributeError) as error:
        raise RuntimeError(f"--instruction-set: the kernels' dispatch cannot be restricted: {error}") from error
    restrict.argtypes, restrict.restype = [ctypes.c_int64], None
    restrict(LEVELS[level] if level is not None else 0)


@contextlib.contextmanager
def restricted(level: str | None) -> Iterator[None]:
    """Here and, by `restrict_as_parent`, in processes that are started meanwhile. None leaves everything as it is."""
    if level is None:
        yield
        return
    before = os.environ.get(_VARIABLE)
    restrict_to(level)
    os.environ[_VARIABLE] = level
    try:
        yield
    finally:
        if before is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = before
        restrict_to(before)


def restrict_as_parent() -> None:
    """In a process that was started within `restricted`."""
    if _VARIABLE in os.environ:
        restrict_to(os.environ[_VARIABLE])
