"""One parameter of Muon, its gradient and its saved momentum: what is accepted, and the error that names it."""

from typing import Any

import torch
from torch.distributed.tensor import DTensor

from .placement import local_part

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def check_parameter(name: str, param: torch.Tensor) -> None:
    """Raises ValueError or TypeError where Muon cannot step `param`."""
    if param.is_meta:
        raise ValueError(f"parameter {name}: is on the meta device; give it values before making the optimizer")
    if param.dtype not in _DTYPES:
        raise TypeError(f"parameter {name}: expected float32, bfloat16 or float16, got {param.dtype}")
    if param.ndim < 2:
        raise ValueError(
            f"parameter {name}: Muon needs matrices, got shape {tuple(param.shape)}; "
            "quincunx.muon.build_optimizer gives norms and biases to AdamW"
        )


def check_momentum(name: str, param: torch.Tensor, momentum: Any) -> None:
    """Raises ValueError where a saved momentum is not one of `param`."""
    if not isinstance(momentum, torch.Tensor) or momentum.shape != param.shape:
        got = tuple(momentum.shape) if isinstance(momentum, torch.Tensor) else repr(momentum)
        raise ValueError(
            f"parameter {name}: momentum_buffer of the state_dict: expected a tensor of shape {tuple(param.shape)}, "
            f"got {got}; the order of the parameters must be the one that was saved"
        )
    if isinstance(momentum, DTensor) != isinstance(param, DTensor) or (
        isinstance(param, DTensor)
        and (momentum.placements != param.placements or momentum.device_mesh != param.device_mesh)
    ):
        raise ValueError(
            f"parameter {name}: momentum_buffer of the state_dict: expected the sharding of the parameter; load "
            "through torch.distributed.checkpoint, which shards anew"
        )


def local_grad(name: str, param: torch.Tensor) -> torch.Tensor | None:
    """This rank's part of the gradient; a partial one is reduced. Raises TypeError where it does not fit `param`."""
    grad = param.grad
    if grad is None:
        return None
    if grad.layout is not torch.strided:
        raise TypeError(f"parameter {name}: its gradient is sparse ({grad.layout}), expected a dense one")
    if grad.dtype != param.dtype:
        raise TypeError(f"parameter {name}: expected a gradient of {param.dtype}, got {grad.dtype}")
    if isinstance(grad, DTensor) != isinstance(param, DTensor):
        raise TypeError(f"parameter {name}: gradient and parameter must both be DTensors or both plain tensors")
    if isinstance(grad, DTensor) and grad.placements != param.placements:
        grad = grad.redistribute(placements=param.placements)
    return local_part(grad)
