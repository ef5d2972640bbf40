"""Masks of attention as users give them: bool or floating point, of any shape that broadcasts."""

import torch
from torch import Tensor


def broadcast_mask(name: str, mask: Tensor, shape: tuple[int, int, int, int]) -> Tensor:
    """The mask as bool or float32 [B, H, S_q, S_kv], repeated by strides of 0 where it was broadcast."""
    if not isinstance(mask, Tensor):
        raise TypeError(f"{name}: expected a torch.Tensor, got {type(mask).__name__}")
    if mask.dtype != torch.bool and mask.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise TypeError(f"{name}: expected bool, float32, bfloat16 or float16, got {mask.dtype}")
    if mask.device.type != "cpu":
        raise TypeError(f"{name}: expected a tensor on the CPU, got one on {mask.device}")
    if mask.requires_grad:
        raise NotImplementedError(f"{name}: expected a mask without requires_grad; attention has no gradient for it")
    if mask.dim() > 4 or any(m not in (1, s) for m, s in zip(reversed(mask.shape), reversed(shape), strict=False)):
        raise ValueError(
            f"{name}: expected a shape that broadcasts to {list(shape)} (batch, heads, queries, keys), "
            f"got {list(mask.shape)}"
        )
    if mask.dtype != torch.bool:
        mask = mask.float()
    return mask.expand(shape)
