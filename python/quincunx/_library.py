"""Finds and loads the C++ libraries of this package, once."""

import functools
import importlib
import importlib.util
import os
import pathlib
import types


def library_directory() -> pathlib.Path:
    """The folder of the shared libraries: QUINCUNX_LIBRARY_DIR (a build tree's `lib`), else `lib` beside this file."""
    override = os.environ.get("QUINCUNX_LIBRARY_DIR")
    directory = pathlib.Path(override) if override else pathlib.Path(__file__).parent / "lib"
    if not (directory / "libquincunx_runtime.so").exists():
        raise RuntimeError(
            f"quincunx: no libquincunx_runtime.so in {directory}; install the package with `pip install .`, "
            "or set QUINCUNX_LIBRARY_DIR to the `lib` folder of a build tree"
        )
    return directory


@functools.cache
def load_operators() -> None:
    """Registers torch.ops.quincunx.* (LibTorch stable ABI) and what torch.compile needs of them."""
    import torch

    torch.ops.load_library(str(library_directory() / "libquincunx_torch.so"))
    importlib.import_module("._fake_kernels", __package__)


@functools.cache
def load_distributed() -> types.ModuleType:
    """The extension module with the c10d backend. It is built for one torch minor version and refuses another."""
    path = library_directory() / "_quincunx_distributed.so"
    spec = importlib.util.spec_from_file_location("_quincunx_distributed", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
