"""The time that reading an array takes at least: a loop of `benchmarks/peak`, called through ctypes."""

import ctypes
import pathlib
from collections.abc import Callable

import torch
from quincunx._library import library_directory

NAME = "read bandwidth"


def reader(checkout: pathlib.Path, array: torch.Tensor, threads: int) -> Callable[[], int]:
    """What reads the contiguous `array` once each time it is called."""
    places = [library_directory(), checkout / "build" / "release" / "lib"]
    path = next((place for place in (p / "libquincunx_fma_peak.so" for p in places) if place.exists()), None)
    if path is None:
        raise RuntimeError(f"there is no libquincunx_fma_peak.so in {places[0]} or {places[1]}; build it")
    function = ctypes.CDLL(str(path)).qx_read_words
    function.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int]
    function.restype = ctypes.c_uint32
    address, words = array.data_ptr(), array.numel() * array.element_size() // 4
    return lambda: function(address, words, threads)
