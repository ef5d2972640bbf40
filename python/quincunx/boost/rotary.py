"""Rotary position embedding on a grid of frames, height and width, in real numbers."""

import functools
import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .._errors import core_errors
from ._arguments import check_tensors, choice, flag, integers, may_use_cache
from ._operators import operators

_LAYOUTS = ("BSND", "BNSD")


def _tables(theta: float, dims: tuple[int, ...], grid: tuple[int, ...], length: int) -> tuple[Tensor, Tensor]:
    """float32 cos and sin [length, pairs] of angles in double precision; positions beyond the grid stand still."""
    angles = []
    for axis, (dim, size) in enumerate(zip(dims, grid, strict=True)):
        frequencies = theta ** (-torch.arange(0, dim, 2, dtype=torch.float64, device="cpu") / dim)
        shape = [size if i == axis else 1 for i in range(3)] + [dim // 2]
        along = torch.outer(torch.arange(size, dtype=torch.float64, device="cpu"), frequencies).view(shape)
        angles.append(along.expand(*grid, dim // 2))
    angles = torch.cat(angles, dim=-1).flatten(0, 2)
    angles = torch.nn.functional.pad(angles, (0, 0, 0, length - angles.shape[0]))
    return angles.cos().float(), angles.sin().float()


# Bounded: a pair of tables for 75,600 tokens and a head size of 128 takes 39 MB.
@functools.lru_cache(maxsize=8)
def _cached_tables(*key) -> tuple[Tensor, Tensor]:
    # Tensors made in inference mode could not be saved for a later backward pass.
    with torch.inference_mode(False):
        return _tables(*key)


def rotary_tables(
    x: Tensor, theta: float, dims: tuple[int, ...], grid: tuple[int, ...], length: int
) -> tuple[Tensor, Tensor]:
    """cos and sin [length, sum(dims) / 2] for the tensor x; the last few are kept where that is possible."""
    make = _cached_tables if may_use_cache(x) else _tables
    return make(float(theta), dims, grid, length)


class Rotation(torch.autograd.Function):
    """apply(x, cos, sin, interleaved, sequence_dim): a rotation; its derivative turns back."""

    @staticmethod
    def forward(ctx, x, cos, sin, interleaved, sequence_dim):
        ctx.save_for_backward(cos, sin)
        ctx.options = interleaved, sequence_dim
        with core_errors():
            return operators.rope(x, cos, sin, interleaved, sequence_dim)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        cos, sin = ctx.saved_tensors
        return operators.rope(grad, cos, -sin, *ctx.options), None, None, None, None


def axis_dims(dims: Sequence[int] | None, head_dim: int) -> tuple[int, ...]:
    if dims is None:
        if head_dim % 2 or head_dim < 6:
            raise ValueError(f"x: expected an even head size of at least 6, got {head_dim}")
        third = 2 * (head_dim // 6)
        return head_dim - 2 * third, third, third
    values = integers("dims", dims, 3, 0, "rotary dimensions of frames, height, width")
    if any(dim % 2 for dim in values) or not 2 <= sum(values) <= head_dim:
        raise ValueError(f"dims: expected even numbers with a sum of 2 to the head size {head_dim}, got {dims!r}")
    return values


def _grids(grid: Sequence, batch: int, length: int) -> list[tuple[int, ...]]:
    """One grid a batch item."""
    if not isinstance(grid, (tuple, list)):
        raise ValueError(f"grid: expected frames, height and width, or such a triple a batch item, got {grid!r}")
    items = [grid] * batch if grid and not isinstance(grid[0], (tuple, list)) else list(grid)
    if len(items) != batch:
        raise ValueError(f"grid: expected one grid or one for each of the {batch} batch items, got {len(items)}")
    checked = [integers("grid", item, 3, 1, "frames, height, width") for item in items]
    for item in checked:
        if math.prod(item) > length:
            raise ValueError(f"grid: expected at most the {length} positions of x, got {item}")
    return checked


def rope(
    x: Tensor,
    grid: Sequence[int] | Sequence[Sequence[int]],
    *,
    theta: float = 10000.0,
    dims: Sequence[int] | None = None,
    interleaved: bool = True,
    layout: str = "BSND",
) -> Tensor:
    """x with the pairs of its head elements turned by angles that grow with frame, row and column, as Wan does.

    x: float32, bfloat16 or float16 on the CPU, [B, S, H, D] (layout "BSND") or [B, H, S, D] ("BNSD"); the result has
    its dtype. grid: frames, height, width, one for all or one for each batch item; positions beyond it are copied.
    dims: how many elements belong to frames, height and width; elements after them are copied. Absent: D without the
    other two, and twice 2 (D // 6). interleaved: pairs (2i, 2i + 1), else (i, i + R / 2) with R the sum of dims.
    Pair i of an axis of d elements turns by position * theta^(-2i / d). Tables come from angles in double precision and
    the last few are kept. Differentiable once.
    """
    sequence_dim = 1 if choice("layout", layout, _LAYOUTS) == "BSND" else 2
    check_tensors("batch, length, heads, head size in the order of layout", x=x)
    if isinstance(theta, bool) or not isinstance(theta, (int, float)) or not 0 < theta < math.inf:
        raise ValueError(f"theta: expected a positive, finite number, got {theta!r}")
    flag("interleaved", interleaved)
    dims_of_axes = axis_dims(dims, x.shape[3])
    length = x.shape[sequence_dim]
    grids = _grids(grid, x.shape[0], length)

    def turned(part: Tensor, of_grid: tuple[int, ...]) -> Tensor:
        cos, sin = rotary_tables(x, theta, dims_of_axes, of_grid, length)
        return Rotation.apply(part, cos, sin, interleaved, sequence_dim)

    if len(set(grids)) <= 1:
        return turned(x, grids[0]) if grids else x.clone()
    return torch.cat([turned(x[i : i + 1], of_grid) for i, of_grid in enumerate(grids)])
