"""The machine's fused multiply-adds a second, read around each row: it shows whether the machine was free."""

import ctypes
import pathlib
import time
from collections.abc import Callable

from quincunx._library import library_directory

_LIBRARY = "libquincunx_fma_peak.so"
# Below this part of the best reading a row counts as disturbed.
LEAST_PART_OF_BEST = 0.9
_READING_SECONDS = 0.01
_CALIBRATION_READINGS = 15
_WAIT_SECONDS = 0.5
_MAX_WAITS = 6

# Threads -> GFLOP/s at this moment.
Reader = Callable[[int], float]


def load_library(checkout: pathlib.Path) -> ctypes.CDLL:
    """The loops of `benchmarks/peak`. RuntimeError where they were not built."""
    places = [library_directory(), checkout / "build" / "release" / "lib"]
    path = next((place / _LIBRARY for place in places if (place / _LIBRARY).exists()), None)
    if path is None:
        searched = " or ".join(str(place) for place in places)
        raise RuntimeError(f"there is no {_LIBRARY} in {searched}; build it with `make build`")
    return ctypes.CDLL(str(path))


def load_reader(checkout: pathlib.Path) -> Reader:
    """The reader of the build tree. RuntimeError where it was not built."""
    function = load_library(checkout).qx_fma_peak_gflops
    function.argtypes = [ctypes.c_int, ctypes.c_double]
    function.restype = ctypes.c_double
    return lambda threads: function(threads, _READING_SECONDS)


class PeakMeter:
    """Remembers the best reading for each number of threads."""

    def __init__(self, read: Reader, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._read = read
        self._sleep = sleep
        self.best: dict[int, float] = {}

    def is_free(self, threads: int) -> bool:
        """One reading; whether it comes near the best one."""
        if threads not in self.best:
            self.best[threads] = max(self._read(threads) for _ in range(_CALIBRATION_READINGS))
        now = self._read(threads)
        self.best[threads] = max(self.best[threads], now)
        return now >= LEAST_PART_OF_BEST * self.best[threads]

    def wait_until_free(self, threads: int) -> bool:
        """Waits a few seconds for a free machine; False where it stays busy."""
        for _ in range(_MAX_WAITS):
            if self.is_free(threads):
                return True
            self._sleep(_WAIT_SECONDS)
        return self.is_free(threads)
