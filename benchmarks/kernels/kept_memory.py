"""Memory that the C library keeps, so that neither side of a comparison pays for pages that the kernel has to clear."""

import contextlib
import ctypes
from collections.abc import Iterator

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # names of glibc's mallopt
_DEFAULT_TRIM_THRESHOLD, _DEFAULT_MMAP_MAX = 128 * 1024, 65536
_NEVER = 2**31 - 1


@contextlib.contextmanager
def kept_memory() -> Iterator[None]:
    """Within it freed memory is used again and not given back; where there is no mallopt, nothing changes."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        yield
        return
    mallopt(_MMAP_MAX, 0)
    mallopt(_TRIM_THRESHOLD, _NEVER)
    try:
        yield
    finally:
        mallopt(_MMAP_MAX, _DEFAULT_MMAP_MAX)
        mallopt(_TRIM_THRESHOLD, _DEFAULT_TRIM_THRESHOLD)
