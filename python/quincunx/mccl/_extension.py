"""Loads the compiled backend, after checking that it was built for the torch that runs."""

import functools
import pathlib
import types

import torch

from quincunx._library import library_directory, load_distributed


def _minor(version: str) -> tuple[str, ...]:
    return tuple(version.split("+")[0].split(".")[:2])


def check_torch_version(built_for: str, running: str) -> None:
    """RuntimeError unless both are of one minor version: the backend uses torch's C++ interface."""
    if _minor(built_for) != _minor(running):
        raise RuntimeError(
            f"quincunx.mccl was built for torch {built_for}, but torch {running} is running; "
            f"install torch {'.'.join(_minor(built_for))} or build quincunx again with this torch"
        )


def version_file() -> pathlib.Path:
    """Names the torch that the module beside it was built for; readable without loading that module."""
    return library_directory() / "_quincunx_distributed.torch_version"


@functools.cache
def load() -> types.ModuleType:
    if not torch.distributed.is_available():
        raise RuntimeError("quincunx.mccl needs a torch with torch.distributed, and this one was built without it")
    path = version_file()
    if not path.exists():
        raise RuntimeError(f"quincunx.mccl: {path} is missing; build quincunx with QX_BUILD_TORCH=ON")
    check_torch_version(path.read_text().strip(), torch.__version__)
    return load_distributed()
