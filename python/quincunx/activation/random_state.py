"""The state of every random source that a function can reach without being given it, taken and put back."""

import ctypes
import functools
import random
import struct
import sys
from typing import Any

import torch

# As numpy's MT19937 lays it out: 624 words of 32 bits and the position in them.
_WORDS_BYTES = 624 * 4
_GENERATOR_BYTES = _WORDS_BYTES + 4
# As RandomState keeps the second of two normal numbers: whether there is one, four bytes of padding, and the number.
_NORMAL = struct.Struct("=i4xd")


def _memory_of(value: object) -> bytes:
    return ctypes.string_at(id(value), type(value).__basicsize__)


@functools.cache
def _offset_of_normal(kind: type) -> int | None:
    """Where a numpy RandomState keeps its second normal number, found by looking for known ones; None if not found."""
    offsets = set()
    for seed in (1, 2):
        state = kind(seed)
        state.standard_normal()
        number = struct.pack("=d", state.get_state()[4])
        memory = _memory_of(state)
        offsets.add(memory.find(number) - 8 if memory.count(number) == 1 else None)
    offset = offsets.pop()
    if offsets or offset is None or _NORMAL.unpack_from(_memory_of(kind(3)), offset)[0] != 0:
        return None
    return offset


class NumpyState:
    """The state of numpy's global generator.

    Read from memory: numpy's own get_state() and set_state() copy the words one by one and take longer than all else
    that a region costs. Written only where it has changed, and by set_state().
    """

    def __init__(self) -> None:
        self._state = self._read()

    @staticmethod
    def _read() -> Any:
        numpy_random = sys.modules["numpy"].random
        # Bound to the generator that the module's functions share.
        shared = numpy_random.get_state.__self__
        offset = _offset_of_normal(type(shared))
        generator = shared._bit_generator
        if offset is None or type(generator) is not numpy_random.MT19937:
            return numpy_random.get_state(legacy=False)
        words_and_position = ctypes.string_at(generator.ctypes.state_address, _GENERATOR_BYTES)
        return words_and_position + ctypes.string_at(id(shared) + offset, _NORMAL.size)

    def restore(self) -> None:
        numpy = sys.modules["numpy"]
        if not isinstance(self._state, bytes):
            numpy.random.set_state(self._state)
        elif self._read() != self._state:
            words = numpy.frombuffer(self._state[:_WORDS_BYTES], numpy.uint32)
            (position,) = struct.unpack("=i", self._state[_WORDS_BYTES:_GENERATOR_BYTES])
            has_normal, normal = _NORMAL.unpack(self._state[_GENERATOR_BYTES:])
            numpy.random.set_state(("MT19937", words, position, has_normal, normal))


class RandomState:
    """The state of torch's generators, Python's and numpy's, as it was when this was made."""

    def __init__(self) -> None:
        self._torch = torch.get_rng_state()
        self._devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
        self._python = random.getstate()
        self._numpy = NumpyState() if "numpy" in sys.modules else None

    def restore(self) -> None:
        torch.set_rng_state(self._torch)
        if self._devices is not None:
            torch.cuda.set_rng_state_all(self._devices)
        random.setstate(self._python)
        if self._numpy is not None:
            self._numpy.restore()
