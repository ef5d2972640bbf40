"""Loads the compiled backend, after checking that it was built for the torch that runs."""

import functools
import pathlib
import types

import torch

from quincunx import _library
from quincunx._library import library_directory

check_torch_version = functools.partial(_library.check_torch_version, "quincunx.mccl")


def version_file() -> pathlib.Path:
    """Names the torch that the module beside it was built for; readable without loading that module."""
    return library_directory() / "_quincunx_distributed.torch_version"


@functools.cache
def load() -> types.ModuleType:
    if not torch.distributed.is_available():
        raise RuntimeError("quincunx.mccl needs a torch with torch.distributed, and this one was built without it")
    return _library.load_extension("quincunx.mccl", version_file())
