"""Restricts our kernels to an instruction set below that of this machine, for figures of other machines."""

import ctypes

from quincunx._library import load_operators

# The names of Highway's targets: hwy/detect_targets.h.
LEVELS = {"AVX2": 1 << 9, "portable": 1 << 61}
_LIBRARY = "libhwy.so.1"
_FUNCTION = "_ZN3hwy26SetSupportedTargetsForTestEl"


def restrict_to(level: str | None) -> None:
    """From now on, in this process; None: what the machine has. RuntimeError where the kernels hold a Highway of
    their own, which nothing outside can reach."""
    load_operators()
    try:
        restrict = getattr(ctypes.CDLL(_LIBRARY), _FUNCTION)
    except (OSError, AttributeError) as error:
        raise RuntimeError(f"--instruction-set: the kernels' dispatch cannot be restricted: {error}") from error
    restrict.argtypes, restrict.restype = [ctypes.c_int64], None
    restrict(LEVELS[level] if level is not None else 0)
