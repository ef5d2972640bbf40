"""Loads the compiled parts: the importer of fx graphs, the compiler, and the operator that runs a region."""

import functools
import importlib
import importlib.util
import sys
import types

from quincunx._graph import load_core
from quincunx._library import library_directory, load_operators

_NAME = "_quincunx_fusion"


@functools.cache
def load() -> types.ModuleType:
    """The compiler inside PyTorch, with torch.ops.quincunx.fused_region ready to be called."""
    path = library_directory() / f"{_NAME}.so"
    if not path.exists():
        raise RuntimeError(
            f"quincunx.fusion: {path} is missing; build quincunx with QX_BUILD_TORCH=ON and QX_BUILD_COMPILER=ON"
        )
    load_operators()
    load_core()
    spec = importlib.util.spec_from_file_location(_NAME, path)
    try:
        module = importlib.util.module_from_spec(spec)
    except ImportError as error:
        raise RuntimeError(
            f"quincunx.fusion: {path} cannot be loaded ({error}); its compiler needs the Debian package libmlir-22"
        ) from error
    spec.loader.exec_module(module)
    sys.modules[_NAME] = module
    importlib.import_module("quincunx.fusion._operators")
    module.set_region_loader(importlib.import_module("quincunx.fusion.fuser").load_region)
    return module
