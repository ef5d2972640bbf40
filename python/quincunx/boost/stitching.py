"""Puts tiles that overlap along one axis together again, as a decoder that works tile by tile needs it."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ._arguments import integer, is_int


def _check(tiles: Sequence[Tensor], starts: Sequence[int], total: int) -> None:
    if len(tiles) == 0 or len(starts) != len(tiles):
        raise ValueError(f"starts: expected one for each of the {len(tiles)} tiles, one at least, got {len(starts)}")
    covered = 0
    for i, (tile, start) in enumerate(zip(tiles, starts, strict=True)):
        if not isinstance(tile, Tensor) or not tile.is_floating_point():
            raise TypeError(f"tiles[{i}]: expected a floating-point tensor, got {getattr(tile, 'dtype', type(tile))}")
        if tile.dim() == 0 or tile.shape[:-1] != tiles[0].shape[:-1] or tile.dtype != tiles[0].dtype:
            raise ValueError(
                f"tiles[{i}]: expected the dtype and leading dimensions of tiles[0], {tiles[0].dtype} "
                f"{list(tiles[0].shape[:-1])}, got {tile.dtype} {list(tile.shape)}"
            )
        if not is_int(start) or start < (starts[i - 1] if i else 0) or start > covered:
            expected = f"{starts[i - 1]} to {covered}, without a gap" if i else "0"
            raise ValueError(f"starts[{i}]: expected {expected}, got {start!r}")
        if start + tile.shape[-1] < covered:
            raise ValueError(f"tiles[{i}]: expected an end at or after {covered}, got {start + tile.shape[-1]}")
        covered = start + tile.shape[-1]
    if covered != total:
        raise ValueError(f"total: expected {covered}, where the last tile ends, got {total}")


def stitch(tiles: Sequence[Tensor], starts: Sequence[int], total: int, blend: int) -> Tensor:
    """One tensor of `total` elements along the last axis; tile i begins at starts[i], all in the same unit.

    Where a tile overlaps what comes before it, its first min(blend, overlap) elements are mixed with that in a linear
    ramp, and it counts alone after them; elsewhere elements are copied. So tiles that were cut from one tensor give it
    back exactly, and every element lies between those of the tiles that cover it. Starts rise, without gaps.
    """
    integer("blend", blend, 0)
    _check(tiles, starts, integer("total", total, 0))
    result = tiles[0].new_empty((*tiles[0].shape[:-1], total))
    covered = 0
    for tile, start in zip(tiles, starts, strict=True):
        ramp = min(blend, covered - start)
        result[..., start + ramp : start + tile.shape[-1]] = tile[..., ramp:]
        if ramp > 0:
            weights = torch.arange(1, ramp + 1, dtype=tile.dtype, device=tile.device) / (ramp + 1)
            mixed = slice(start, start + ramp)
            result[..., mixed] = torch.lerp(result[..., mixed], tile[..., :ramp], weights)
        covered = start + tile.shape[-1]
    return result
