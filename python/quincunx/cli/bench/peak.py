"""The machine's fused multiply-adds a second, read around each row: it shows how fast the machine was just then."""

import ctypes
import pathlib
from collections.abc import Callable

from quincunx._library import library_directory

_LIBRARY = "libquincunx_fma_peak.so"
_READING_SECONDS = 0.01
_CALIBRATION_READINGS = 15

# Threads -> GFLOP/s at this moment.
Reader = Callable[[int], float]


def load_library(checkout: pathlib.Path, name: str = _LIBRARY) -> ctypes.CDLL:
    """A library of `benchmarks/`: the loops of `benchmarks/peak`. RuntimeError where it was not built."""
    places = [library_directory(), checkout / "build" / "release" / "lib"]
    path = next((place / name for place in places if (place / name).exists()), None)
    if path is None:
        searched = " or ".join(str(place) for place in places)
        raise RuntimeError(f"there is no {name} in {searched}; build it with `make build`")
    return ctypes.CDLL(str(path))


def load_reader(checkout: pathlib.Path) -> Reader:
    """The reader of the build tree. RuntimeError where it was not built."""
    function = load_library(checkout).qx_fma_peak_gflops
    function.argtypes = [ctypes.c_int, ctypes.c_double]
    function.restype = ctypes.c_double
    return lambda threads: function(threads, _READING_SECONDS)


class PeakMeter:
    """Remembers the best reading for each number of threads."""

    def __init__(self, read: Reader) -> None:
        self._read = read
        self.best: dict[int, float] = {}

    def part_of_best(self, threads: int) -> float:
        """One reading, as a part of the best one so far."""
        if threads not in self.best:
            self.best[threads] = max(self._read(threads) for _ in range(_CALIBRATION_READINGS))
        now = self._read(threads)
        self.best[threads] = max(self.best[threads], now)
        return now / self.best[threads]
