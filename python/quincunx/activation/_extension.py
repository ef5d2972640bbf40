"""Loads the compiled part, after checking that it was built for the torch that runs."""

import functools
import pathlib
import types

from quincunx import _library
from quincunx._library import library_directory

check_torch_version = functools.partial(_library.check_torch_version, "quincunx.activation")


class StopReplay(BaseException):
    """Ends a replay once all wanted values are there; no `except Exception` of the user's may catch it."""


def version_file() -> pathlib.Path:
    """Names the torch that the module beside it was built for; readable without loading that module."""
    return library_directory() / "_quincunx_activation.torch_version"


@functools.cache
def load() -> types.ModuleType:
    module = _library.load_extension("quincunx.activation", version_file())
    module.set_stop_class(StopReplay)
    return module
