"""The low-level operator: attention of each block of queries to a given list of blocks of keys."""

from collections.abc import Sequence

import torch
from torch import Tensor

from .._errors import core_errors
from ._arguments import check_tensors, common_float_dtype, flag, integers
from ._masks import broadcast_mask
from ._operators import operators


def _starts(length: int, block: int) -> Tensor:
    return torch.tensor([*range(0, length, block), length], device="cpu")


def _lists(name: str, lists: Tensor, trailing: int, query: Tensor, num_blocks: int) -> Tensor:
    """As [B, heads, query blocks, ...], from [query blocks, heads, ...] with or without the batch in front."""
    if not isinstance(lists, Tensor):
        raise TypeError(f"{name}: expected a torch.Tensor, got {type(lists).__name__}")
    if lists.dim() == 2 + trailing:
        lists = lists.unsqueeze(0).expand(query.shape[0], *lists.shape)
    expected = (query.shape[0], num_blocks, query.shape[1])
    if lists.dim() != 3 + trailing or tuple(lists.shape[:3]) != expected:
        raise ValueError(
            f"{name}: expected {num_blocks} query blocks, {query.shape[1]} heads"
            f"{' and the lists' if trailing else ''}, with the batch of {query.shape[0]} in front or without one, "
            f"got shape {list(lists.shape)}"
        )
    return lists.transpose(1, 2)


def rain_fusion_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    select_idx: Tensor,
    select_num_idx: Tensor,
    block_shape: Sequence[int] = (128, 128),
    *,
    scale: float | None = None,
    causal: bool = False,
    key_lengths: Sequence[int] = (),
    attn_mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """(output, log-sum-exp) of attention in which a block of queries sees the key blocks of its list.

    query [B, H, S_q, D], key [B, H_kv, S_kv, D], value [B, H_kv, S_kv, D_v]: float32, bfloat16 or float16 (computed in
    f32; the log-sum-exp stays float32) on the CPU, any strides, H a multiple of H_kv. block_shape: the lengths of query
    and key blocks; the last of each may be shorter.
    select_idx: int64 [query blocks, H, M] for all batch items or [B, query blocks, H, M] for each; select_num_idx the
    same without M: how many entries of a list count. Those must rise; the others are not read (-1 by custom).
    scale: 1 / sqrt(D) unless given. causal: query i sees keys up to i + S_kv - S_q. key_lengths: one a batch item; keys
    at and after it are padding. attn_mask: as for attention(), beside the lists. A query that sees no key gives zeros
    and a log-sum-exp of -inf.
    Differentiable once, both results.
    """
    check_tensors("batch, heads, length, head size", query=query, key=key, value=value)
    dtype = common_float_dtype(query=query, key=key, value=value)
    query_block, key_block = integers("block_shape", block_shape, 2, 1, "queries, keys")
    num_blocks = -(-query.shape[2] // query_block)
    idx = _lists("select_idx", select_idx, 1, query, num_blocks)
    num = _lists("select_num_idx", select_num_idx, 0, query, num_blocks)
    mask = None
    if attn_mask is not None:
        mask = broadcast_mask("attn_mask", attn_mask, (*query.shape[:3], key.shape[2]))
    with core_errors():
        output, log_sum_exp = operators.block_sparse_attention(
            query.float(),
            key.float(),
            value.float(),
            idx,
            num,
            _starts(query.shape[2], query_block),
            _starts(key.shape[2], key_block),
            None,
            scale,
            flag("causal", causal),
            list(key_lengths),
            mask,
        )
    return output.to(dtype), log_sum_exp
