"""OpenBLAS of the wheel scipy-openblas32 in .venv-peers, called through ctypes."""

import ctypes
import functools
import os
import pathlib

import torch

# Each of these makes OpenBLAS run another kernel, or block for another cache, than it chooses for this CPU itself.
_CHOICES = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
_ROW_MAJOR, _NO_TRANSPOSE = 101, 111


def library_path(checkout: pathlib.Path) -> pathlib.Path | None:
    pattern = "lib/python*/site-packages/scipy_openblas32/lib/libscipy_openblas.so"
    return next(iter(sorted((checkout / ".venv-peers").glob(pattern))), None)


def check_installed(checkout: pathlib.Path) -> None:
    """RuntimeError where the peer is missing."""
    if library_path(checkout) is None:
        raise RuntimeError(
            f"the peer OpenBLAS is missing: there is no scipy-openblas32 in {checkout / '.venv-peers'}; "
            "run `make bench-peers`"
        )


class OpenBlas:
    """`name` tells the version and the kernel that the library chose."""

    def __init__(self, path: pathlib.Path) -> None:
        for variable in _CHOICES:
            os.environ.pop(variable, None)
        self._library = ctypes.CDLL(str(path))
        self._library.scipy_openblas_get_corename.restype = ctypes.c_char_p
        self._library.scipy_openblas_get_config.restype = ctypes.c_char_p
        version = self._library.scipy_openblas_get_config().decode().split()[1]
        self.name = f"OpenBLAS {version} {self._library.scipy_openblas_get_corename().decode()}"
        self._sgemm = self._library.scipy_cblas_sgemm
        self._sgemm.restype = None
        sizes, pointer, real = [ctypes.c_int] * 3, ctypes.c_void_p, ctypes.c_float
        matrix = [pointer, ctypes.c_int]
        self._sgemm.argtypes = [*[ctypes.c_int] * 3, *sizes, real, *matrix, *matrix, real, *matrix]

    def set_num_threads(self, count: int) -> None:
        self._library.scipy_openblas_set_num_threads(ctypes.c_int(count))

    def matmul(self, a: torch.Tensor, b: torch.Tensor, output: torch.Tensor) -> None:
        """output = a b, all contiguous f32 matrices."""
        rows, inner = a.shape
        columns = b.shape[1]
        self._sgemm(
            *(_ROW_MAJOR, _NO_TRANSPOSE, _NO_TRANSPOSE, rows, columns, inner),
            *(1.0, a.data_ptr(), inner, b.data_ptr(), columns, 0.0, output.data_ptr(), columns),
        )


@functools.cache
def load(checkout: pathlib.Path) -> OpenBlas:
    check_installed(checkout)
    return OpenBlas(library_path(checkout))
