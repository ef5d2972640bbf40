"""Debian's libxsmm in .venv-peers, called through ctypes: kernels that it generates for one size."""

import ctypes
import functools
import pathlib
from collections.abc import Callable

import torch

# libxsmm does not block for caches: above this many multiply-adds it is no rival (its own default is 64^3).
_MAX_WORK = 256**3


def library_path(checkout: pathlib.Path) -> pathlib.Path | None:
    path = checkout / ".venv-peers" / "debian" / "libxsmm.so"
    return path if path.exists() else None


class Libxsmm:
    name = "libxsmm"

    def __init__(self, path: pathlib.Path) -> None:
        self._library = ctypes.CDLL(str(path))
        self._library.libxsmm_init()
        self._dispatch = self._library.libxsmm_smmdispatch
        self._dispatch.restype = ctypes.c_void_p

    def set_num_threads(self, count: int) -> None:
        """Its kernels run on the thread that calls them."""

    def matmul(self, a: torch.Tensor, b: torch.Tensor, output: torch.Tensor) -> Callable[[], torch.Tensor] | None:
        """What computes output = a b each time it is called, all contiguous f32 matrices; None where it has no
        kernel."""
        rows, inner = a.shape
        columns = b.shape[1]
        if rows * columns * inner > _MAX_WORK:
            return None
        integer, real = ctypes.c_int, ctypes.c_float
        # Column-major: output^T = b^T a^T.
        leading = [ctypes.byref(integer(size)) for size in (columns, inner, columns)]
        options = [ctypes.byref(value) for value in (real(1.0), real(0.0), integer(0), integer(0))]
        address = self._dispatch(columns, rows, inner, *leading, *options)
        if not address:
            return None
        kernel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(address)
        pointers = b.data_ptr(), a.data_ptr(), output.data_ptr()

        def call(_keep: object = (a, b)) -> torch.Tensor:
            kernel(*pointers)
            return output

        return call


def check_installed(checkout: pathlib.Path) -> None:
    """RuntimeError where the peer is missing."""
    if library_path(checkout) is None:
        raise RuntimeError(f"the peer libxsmm is missing from {checkout / '.venv-peers'}; run `make bench-peers`")


@functools.cache
def load(checkout: pathlib.Path) -> Libxsmm:
    check_installed(checkout)
    return Libxsmm(library_path(checkout))
