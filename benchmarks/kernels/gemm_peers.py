"""One product by ours and by each peer: MKL through torch, OpenBLAS, oneDNN, libxsmm.

Ours is called as OpenBLAS, oneDNN and libxsmm are, as a C function through ctypes. What its operator of PyTorch takes
more, 2 us, is a row of its own.
"""

import contextlib
import ctypes
import functools
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import torch
from quincunx._library import load_operators
from quincunx.cli.bench.peak import load_library

from . import libxsmm, onednn, openblas
from .gemm_shapes import Shape

Call = Callable[[], torch.Tensor]


class Peer(Protocol):
    name: str

    def set_num_threads(self, count: int) -> None: ...

    def product(self, a: torch.Tensor, b: torch.Tensor, weight: torch.Tensor) -> Call | None:
        """What computes a b = a weight^T each time it is called; None for sizes that the peer does not serve."""


class Mkl:
    name = "MKL"

    def set_num_threads(self, count: int) -> None:
        torch.set_num_threads(count)

    def product(self, a: torch.Tensor, b: torch.Tensor, weight: torch.Tensor) -> Call | None:
        output = torch.empty(a.shape[0], b.shape[1])
        return lambda: torch.mm(a, b, out=output)


class MklPacked(Mkl):
    """torch's linear with the weight in MKL's own packing, where this torch has MKL."""

    name = "MKL, packed"

    def product(self, a: torch.Tensor, b: torch.Tensor, weight: torch.Tensor) -> Call | None:
        if not torch.backends.mkl.is_available():
            return None
        packed = torch.ops.mkl._mkl_reorder_linear_weight(weight, a.shape[0])
        return lambda: torch.ops.mkl._mkl_linear(a, packed, weight, None, a.shape[0])


class OpenBlas:
    def __init__(self, library: openblas.OpenBlas) -> None:
        self.name = library.name
        self.set_num_threads = library.set_num_threads
        self._library = library

    def product(self, a: torch.Tensor, b: torch.Tensor, weight: torch.Tensor) -> Call | None:
        output = torch.empty(a.shape[0], b.shape[1])

        def call() -> torch.Tensor:
            self._library.matmul(a, b, output)
            return output

        return call


class OneDnn:
    def __init__(self, library: onednn.OneDnn) -> None:
        self.name = library.name
        self.set_num_threads = library.set_num_threads
        self._library = library

    def product(self, a: torch.Tensor, b: torch.Tensor, weight: torch.Tensor) -> Call | None:
        return self._library.linear(a, weight, torch.empty(a.shape[0], b.shape[1]))


class Libxsmm:
    def __init__(self, library: libxsmm.Libxsmm) -> None:
        self.name = library.name
        self.set_num_threads = library.set_num_threads
        self._library = library

    def product(self, a: torch.Tensor, b: torch.Tensor, weight: torch.Tensor) -> Call | None:
        return self._library.matmul(a, b, torch.empty(a.shape[0], b.shape[1]))


def check_installed(checkout: pathlib.Path) -> None:
    """RuntimeError where a peer is missing."""
    openblas.check_installed(checkout)
    onednn.check_installed(checkout)
    libxsmm.check_installed(checkout)


def load_peers(checkout: pathlib.Path) -> tuple[Peer, ...]:
    return (
        Mkl(),
        MklPacked(),
        OpenBlas(openblas.load(checkout)),
        OneDnn(onednn.load(checkout)),
        Libxsmm(libxsmm.load(checkout)),
    )


@contextlib.contextmanager
def threads_of(peers: Sequence[Peer], count: int) -> Iterator[None]:
    """Ours and every peer on `count` threads inside, as before (peers: one thread) after."""
    before = torch.get_num_threads()
    for peer in peers:
        peer.set_num_threads(count)
    torch.set_num_threads(count)
    try:
        yield
    finally:
        for peer in peers:
            peer.set_num_threads(1)
        torch.set_num_threads(before)


def _check(calls: dict[str, Call], expected: torch.Tensor, inner: int) -> None:
    """A wrong product is not worth timing. Bound: `inner` roundings of sums of normal numbers, far from tight."""
    for name, call in calls.items():
        difference = (call().double() - expected).abs().max().item()
        if not difference <= inner * 2.0**-20:
            raise RuntimeError(f"{name} computes another product: it differs by {difference:.3g}")


@functools.cache
def _packed_product(checkout: pathlib.Path) -> Callable[..., bool]:
    function = load_library(checkout, "libquincunx_packed_product.so").qx_packed_product
    function.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int64] * 3
    function.restype = ctypes.c_bool
    return function


def ours(checkout: pathlib.Path, a: torch.Tensor, packed: torch.Tensor, columns: int) -> Call:
    """What computes a b, of which `pack_linear_weight` made `packed`, each time it is called."""
    output = torch.empty(a.shape[0], columns)
    function = _packed_product(checkout)
    arguments = a.data_ptr(), packed.data_ptr(), output.data_ptr(), a.shape[0], columns, a.shape[1]

    def call(_keep: object = (a, packed)) -> torch.Tensor:
        if not function(*arguments):
            raise RuntimeError("the product was refused")
        return output

    return call


def calls_for(shape: Shape, peers: Sequence[Peer], checkout: pathlib.Path) -> dict[str, Call]:
    """The same product by ours ("ours", with a packed weight) and by each peer that serves its sizes."""
    load_operators()
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(shape.rows, shape.inner, generator=generator)
    b = torch.randn(shape.inner, shape.columns, generator=generator)
    weight = b.t().contiguous()
    packed = torch.ops.quincunx.pack_linear_weight(weight)
    calls: dict[str, Call] = {"ours": ours(checkout, a, packed, shape.columns)}
    for peer in peers:
        if (call := peer.product(a, b, weight)) is not None:
            calls[peer.name] = call
    _check(calls, a.double() @ b.double(), shape.inner)
    return calls
