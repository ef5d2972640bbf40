"""torch.ops.quincunx with this package's operators, their fake kernels and derivatives registered."""

import functools
import importlib

import torch

from .._library import load_operators


@functools.cache
def _load() -> None:
    load_operators()
    importlib.import_module("._fake_kernels", __package__)
    importlib.import_module("._gradients", __package__)


_load()
operators = torch.ops.quincunx
