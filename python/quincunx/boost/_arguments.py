"""Checks that the functions of this package share. Each error names the argument, its value and what was expected."""

from collections.abc import Sequence

import torch
from torch import Tensor


def check_tensors(layout_dims: str, **tensors: Tensor) -> None:
    """Each a Tensor of four dimensions."""
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name}: expected a torch.Tensor, got {type(tensor).__name__}")
        if tensor.dim() != 4:
            raise ValueError(f"{name}: expected 4 dimensions ({layout_dims}), got shape {list(tensor.shape)}")


def is_int(value: object) -> bool:
    """An integer of 64 bits, which is what the operators take."""
    return isinstance(value, int) and not isinstance(value, bool) and -(1 << 63) <= value < 1 << 63


def integers(name: str, value: Sequence[int], count: int, least: int, meaning: str) -> tuple[int, ...]:
    """`count` integers of at least `least`."""
    values = tuple(value) if isinstance(value, (tuple, list, torch.Size)) else (value,)
    if len(values) != count or not all(is_int(v) and v >= least for v in values):
        raise ValueError(f"{name}: expected {count} integers ({meaning}), each at least {least}, got {value!r}")
    return values


def integer(name: str, value: int, least: int) -> int:
    if not is_int(value) or value < least:
        raise ValueError(f"{name}: expected an integer of at least {least}, got {value!r}")
    return value


def choice(name: str, value: str, choices: Sequence[str]) -> str:
    if value not in choices:
        raise ValueError(f"{name}: expected one of {', '.join(choices)}, got {value!r}")
    return value


def flag(name: str, value: bool) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name}: expected True or False, got {value!r}")
    return value


def may_use_cache(tensor: Tensor) -> bool:
    """Not in a compiled graph, which would keep a cached tensor as a constant, nor for fake tensors and subclasses."""
    return type(tensor) in (Tensor, torch.nn.Parameter) and not torch.compiler.is_compiling()


def common_float_dtype(**tensors: Tensor) -> torch.dtype:
    """The one dtype of all: float32, bfloat16 or float16."""
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name}: expected a torch.Tensor, got {type(tensor).__name__}")
    first = next(iter(tensors.values())).dtype
    for name, tensor in tensors.items():
        if tensor.dtype not in (torch.float32, torch.bfloat16, torch.float16) or tensor.device.type != "cpu":
            raise TypeError(
                f"{name}: expected a float32, bfloat16 or float16 tensor on the CPU, "
                f"got {tensor.dtype} on {tensor.device}"
            )
        if tensor.dtype != first:
            raise TypeError(f"{name}: expected the dtype of {next(iter(tensors))}, {first}, got {tensor.dtype}")
    return first
