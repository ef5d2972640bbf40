"""Debian's oneDNN in .venv-peers, called through ctypes: a linear layer with the weight in the layout it prefers."""

import ctypes
import functools
import os
import pathlib
from collections.abc import Callable

import torch

# Values of dnnl_types.h of oneDNN 2.
_CPU, _FORWARD_INFERENCE, _F32 = 1, 96, 3
_ANY, _ROW_MAJOR = 1, 3
_QUERY_WEIGHTS = 131
_SOURCE, _DESTINATION, _WEIGHTS = 1, 17, 33
# Room for a descriptor of any kind: the largest of version 2.6 takes less than half of it.
_DESCRIPTOR_BYTES = 8192


class _Argument(ctypes.Structure):
    _fields_ = (("index", ctypes.c_int), ("memory", ctypes.c_void_p))


def library_path(checkout: pathlib.Path) -> pathlib.Path | None:
    return next(iter(sorted((checkout / ".venv-peers" / "debian").glob("usr/lib/*/libdnnl.so.2"))), None)


class OneDnn:
    """`name` tells the version."""

    def __init__(self, path: pathlib.Path) -> None:
        ctypes.CDLL(str(path.with_name("libOpenCL.so.1")), mode=ctypes.RTLD_GLOBAL)
        # PyTorch holds another version under the same names.
        self._library = ctypes.CDLL(str(path), mode=os.RTLD_LOCAL | os.RTLD_DEEPBIND)
        self._library.dnnl_version.restype = ctypes.POINTER(ctypes.c_int * 3)
        self.name = "oneDNN " + ".".join(str(part) for part in self._library.dnnl_version().contents)
        self._openmp = ctypes.CDLL("libgomp.so.1")
        self._engine = self._created("dnnl_engine_create", _CPU, ctypes.c_size_t(0))
        self._stream = self._created("dnnl_stream_create", self._engine, 1)

    def set_num_threads(self, count: int) -> None:
        self._openmp.omp_set_num_threads(ctypes.c_int(count))

    def _call(self, function: str, *arguments: object) -> None:
        status = getattr(self._library, function)(*arguments)
        if status != 0:
            raise RuntimeError(f"oneDNN: {function} failed with status {status}")

    def _created(self, function: str, *arguments: object) -> ctypes.c_void_p:
        result = ctypes.c_void_p()
        self._call(function, ctypes.byref(result), *arguments)
        return result

    def _descriptor(self, tensor: torch.Tensor, layout: int) -> ctypes.Array:
        descriptor = ctypes.create_string_buffer(_DESCRIPTOR_BYTES)
        sizes = (ctypes.c_int64 * tensor.dim())(*tensor.shape)
        self._call("dnnl_memory_desc_init_by_tag", descriptor, tensor.dim(), sizes, _F32, layout)
        return descriptor

    def _memory(self, descriptor: object, tensor: torch.Tensor) -> ctypes.c_void_p:
        return self._created("dnnl_memory_create", descriptor, self._engine, ctypes.c_void_p(tensor.data_ptr()))

    def _runner(self, primitive: ctypes.c_void_p, memories: dict[int, ctypes.c_void_p]) -> Callable[[], None]:
        arguments = (_Argument * len(memories))(*((index, memory.value) for index, memory in memories.items()))
        execute, stream, count = self._library.dnnl_primitive_execute, self._stream, len(memories)
        return lambda: execute(primitive, stream, count, arguments)

    def linear(self, a: torch.Tensor, weight: torch.Tensor, output: torch.Tensor) -> Callable[[], torch.Tensor]:
        """What computes output = a weight^T each time it is called; all contiguous f32 matrices."""
        source, destination = self._descriptor(a, _ROW_MAJOR), self._descriptor(output, _ROW_MAJOR)
        operation = ctypes.create_string_buffer(_DESCRIPTOR_BYTES)
        wanted = self._descriptor(weight, _ANY)
        self._call(
            "dnnl_inner_product_forward_desc_init", operation, _FORWARD_INFERENCE, source, wanted, None, destination
        )
        descriptor = self._created("dnnl_primitive_desc_create", operation, None, self._engine, None)
        query = self._library.dnnl_primitive_desc_query_md
        query.restype = ctypes.c_void_p
        layout = ctypes.c_void_p(query(descriptor, _QUERY_WEIGHTS, 0))
        self._library.dnnl_memory_desc_get_size.restype = ctypes.c_size_t
        packed = torch.empty(self._library.dnnl_memory_desc_get_size(layout) // 4)
        weights = self._memory(layout, packed)

        plain = self._descriptor(weight, _ROW_MAJOR)
        pair = (plain, self._engine, layout, self._engine, None)
        reorder = self._created("dnnl_primitive_create", self._created("dnnl_reorder_primitive_desc_create", *pair))
        self._runner(reorder, {_SOURCE: self._memory(plain, weight), _DESTINATION: weights})()

        memories = {
            _SOURCE: self._memory(source, a),
            _WEIGHTS: weights,
            _DESTINATION: self._memory(destination, output),
        }
        run = self._runner(self._created("dnnl_primitive_create", descriptor), memories)

        def call(_keep: object = (a, packed)) -> torch.Tensor:
            run()
            return output

        return call


def check_installed(checkout: pathlib.Path) -> None:
    """RuntimeError where the peer is missing."""
    if library_path(checkout) is None:
        raise RuntimeError(f"the peer oneDNN is missing from {checkout / '.venv-peers'}; run `make bench-peers`")


@functools.cache
def load(checkout: pathlib.Path) -> OneDnn:
    check_installed(checkout)
    return OneDnn(library_path(checkout))
