"""Sparse attention over the tokens of a video: tiles, scores of their means, lists of blocks, the kernel."""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .._errors import core_errors
from ._arguments import check_tensors, choice, common_float_dtype, flag, integer, integers, may_use_cache
from ._operators import operators
from ._rules import rule_amount

_LAYOUTS = ("BNSD", "BSND")


class SparseAttention(NamedTuple):
    """What sparse_attention returns. density: float64 scalar tensor, the part of all pairs of tokens that was used."""

    output: Tensor
    density: Tensor


def _tiles(latent: tuple, tile: tuple, text_len: int, text_first: bool, first_frame_apart: bool) -> tuple[Tensor, ...]:
    return operators.tile_order(latent, tile, text_len, text_first, first_frame_apart)


# An order of 75,600 tokens takes 0.6 MB.
@functools.lru_cache(maxsize=64)
def _cached_tiles(*key) -> tuple[Tensor, ...]:
    # Tensors made in inference mode could not be saved for a later backward pass.
    with torch.inference_mode(False):
        return _tiles(*key)


def _text_flags(text_len: int, text_first: bool | None, keep_text: bool | None) -> tuple[bool, bool]:
    for name, value in (("text_first", text_first), ("keep_text", keep_text)):
        if value is not None and text_len == 0:
            raise ValueError(f"{name}: expected none without text (text_len 0), got {value!r}")
    first = True if text_first is None else flag("text_first", text_first)
    return first, text_len > 0 if keep_text is None else flag("keep_text", keep_text)


def _masks(token_mask: Tensor | None, q: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """The mask [B, S] for the choice of blocks, and as [B, H, S, S] for the kernel."""
    if token_mask is None:
        return None, None
    batch, heads, length = q.shape[:3]
    if not isinstance(token_mask, Tensor) or token_mask.dtype != torch.bool:
        kind = token_mask.dtype if isinstance(token_mask, Tensor) else type(token_mask).__name__
        raise TypeError(f"token_mask: expected a bool tensor, got {kind}")
    if tuple(token_mask.shape) != (batch, length):
        raise ValueError(f"token_mask: expected shape [{batch}, {length}], got {list(token_mask.shape)}")
    return token_mask.contiguous(), token_mask[:, None, None, :].expand(batch, heads, length, length)


def _check_lengths(q: Tensor, k: Tensor, v: Tensor, latent: tuple[int, ...], text_len: int) -> None:
    tokens = latent[0] * latent[1] * latent[2] + text_len
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.shape[2] != tokens:
            raise ValueError(
                f"{name}: expected {tokens} tokens (latent_shape {latent} and text_len {text_len}), "
                f"got {tensor.shape[2]}"
            )


def sparse_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    latent_shape: Sequence[int],
    sparsity: float | None = None,
    rule: str = "topk",
    cdf_threshold: float | None = None,
    window: Sequence[int] | None = None,
    tile: Sequence[int] = (2, 8, 8),
    text_len: int = 0,
    text_first: bool | None = None,
    keep_first_frame: bool = False,
    keep_text: bool | None = None,
    keep_sink: int = 0,
    keep_recent: int = 0,
    token_mask: Tensor | None = None,
    scale: float | None = None,
    layout: str = "BNSD",
) -> SparseAttention:
    """Attention of the tokens of a video in which each tile of neighbours sees only some of the tiles.

    q, k, v: float32, bfloat16 or float16 (computed in f32) on the CPU, [B, H, S, D] (layout "BNSD") or [B, S, H, D]
    ("BSND"), k and v with H heads or a divisor of H. latent_shape: frames, height and width of the token grid, any
    sizes; S is their product and text_len. tile: the same of a tile; tiles at the far edges are smaller. Text tokens
    stand before the grid's (text_first, the default) or after them, and make blocks of their own. The result has the
    tokens where they were.

    The rule chooses for each head of each batch item. A tile's mean query times a tile's mean key is their score.
      "topk"    sparsity: n (1 - sparsity) of n blocks, rounded up, with the highest scores; ties go to the lower index
      "cdf"     cdf_threshold: the fewest blocks whose estimated softmax weights add up to it
      "window"  window: blocks at most so many tiles away in frames, height and width
    Protected blocks come first and count among those that the rule may keep: keep_text (True where there is text) and
    keep_first_frame join these tokens with all, both ways, the first frame having tiles of its own; keep_sink: the
    first blocks are seen by all; keep_recent: a block sees itself and those before it, as many in all.

    token_mask: bool [B, S], False for padding: such tokens are not seen, choose no blocks and do not count in density.

    Differentiable once; the choice of blocks is a constant.
    """
    check_tensors("batch, heads, length, head size in the order of layout", q=q, k=k, v=v)
    dtype = common_float_dtype(q=q, k=k, v=v)
    if choice("layout", layout, _LAYOUTS) == "BSND":
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    latent = integers("latent_shape", latent_shape, 3, 1, "frames, height, width")
    sizes = integers("tile", tile, 3, 1, "frames, height, width")
    integer("text_len", text_len, 0)
    first, keeps_text = _text_flags(text_len, text_first, keep_text)
    amount = rule_amount(rule, sparsity=sparsity, cdf_threshold=cdf_threshold, window=window)
    keep = [int(flag("keep_first_frame", keep_first_frame)), int(keeps_text)]
    keep += [integer("keep_sink", keep_sink, 0), integer("keep_recent", keep_recent, 0)]
    _check_lengths(q, k, v, latent, text_len)
    q, k, v = q.float(), k.float(), v.float()
    tokens, pairs = _masks(token_mask, q)
    if tokens is not None:  # A weight of 0 does not hide a value of NaN.
        k, v = (x.masked_fill(~tokens[:, None, :, None], 0) for x in (k, v))
    reach, part = (amount, 0.0) if rule == "window" else ((0, 0, 0), amount)
    with core_errors():
        make_tiles = _cached_tiles if may_use_cache(q) else _tiles
        order, starts, tiles = make_tiles(latent, sizes, text_len, first, keep_first_frame)
        idx, num, density = operators.select_blocks(
            q.detach(), k.detach(), order, starts, tiles, rule, part, reach, keep, scale, tokens
        )
        output, _ = operators.block_sparse_attention(q, k, v, idx, num, starts, starts, order, scale, False, [], pairs)
    output = output.to(dtype)
    return SparseAttention(output.transpose(1, 2) if layout == "BSND" else output, density)


def top_k_blocks(scores: Tensor, k: int) -> Tensor:
    """A bool mask of the min(k, n) highest of each row of n scores (the last dimension).

    Equal scores go to the lower index; NaN counts as -inf. scores: float32, bfloat16 or float16 on the CPU.
    """
    if not isinstance(scores, Tensor) or scores.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        kind = scores.dtype if isinstance(scores, Tensor) else type(scores).__name__
        raise TypeError(f"scores: expected a float32, bfloat16 or float16 tensor, got {kind}")
    if scores.dim() == 0:
        raise ValueError("scores: expected at least one dimension, got a scalar")
    with core_errors():
        return operators.top_k_blocks(scores.float().contiguous(), integer("k", k, 0))
