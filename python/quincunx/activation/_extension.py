"""Loads the compiled part, after checking that it was built for the torch that runs."""

import functools
import importlib.util
import pathlib
import types

import torch

from quincunx._library import library_directory


class StopReplay(BaseException):
    """Ends a replay once all wanted values are there; no `except Exception` of the user's may catch it."""


def _minor(version: str) -> tuple[str, ...]:
    return tuple(version.split("+")[0].split(".")[:2])


def check_torch_version(built_for: str, running: str) -> None:
    """RuntimeError unless both are of one minor version: the compiled part uses torch's C++ interface."""
    if _minor(built_for) != _minor(running):
        raise RuntimeError(
            f"quincunx.activation was built for torch {built_for}, but torch {running} is running; "
            f"install torch {'.'.join(_minor(built_for))} or build quincunx again with this torch"
        )


def version_file() -> pathlib.Path:
    """Names the torch that the module beside it was built for; readable without loading that module."""
    return library_directory() / "_quincunx_activation.torch_version"


@functools.cache
def load() -> types.ModuleType:
    path = version_file()
    if not path.exists():
        raise RuntimeError(f"quincunx.activation: {path} is missing; build quincunx with QX_BUILD_TORCH=ON")
    check_torch_version(path.read_text().strip(), torch.__version__)
    spec = importlib.util.spec_from_file_location("_quincunx_activation", path.with_name("_quincunx_activation.so"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.set_stop_class(StopReplay)
    return module
