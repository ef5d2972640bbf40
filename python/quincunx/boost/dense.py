"""Dense attention by this package's kernel."""

import torch
from torch import Tensor

from .._errors import core_errors
from ._arguments import check_tensors, choice, common_float_dtype, flag
from ._masks import broadcast_mask
from ._operators import operators

_LAYOUTS = ("BNSD", "BSND")
_KEY_BLOCK = 128  # keys that a packing task takes


def _starts(length: int, block: int) -> Tensor:
    return torch.tensor([*range(0, length, block), length], device="cpu")


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    layout: str = "BNSD",
) -> Tensor:
    """softmax(scale query key^T + mask) value, with the meaning of torch's scaled_dot_product_attention.

    query [B, H, S_q, D], key [B, H_kv, S_kv, D], value [B, H_kv, S_kv, D_v] (layout "BNSD", or "BSND" with heads and
    length exchanged): float32, bfloat16 or float16 (computed in f32) on the CPU, any strides, H a multiple of H_kv.
    attn_mask: bool (False hides) or floating point (added to the scores; -inf hides, and so does all below -2.3e38), of
    a shape that broadcasts to [B, H, S_q, S_kv]: [B, 1, 1, S_kv] is one of padding. is_causal: query i sees keys up to
    i, also where the lengths differ; not together with attn_mask. scale: 1 / sqrt(D) unless given. A query that sees no
    key gives zeros. Differentiable once with respect to query, key and value.
    """
    check_tensors("batch, heads, length, head size in the order of layout", query=query, key=key, value=value)
    dtype = common_float_dtype(query=query, key=key, value=value)
    if flag("is_causal", is_causal) and attn_mask is not None:
        raise ValueError("attn_mask: expected none together with is_causal, got one")
    if choice("layout", layout, _LAYOUTS) == "BSND":
        query, key, value = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
    query, key, value = query.float(), key.float(), value.float()
    shape = (*query.shape[:3], key.shape[2])
    mask = None if attn_mask is None else broadcast_mask("attn_mask", attn_mask, shape)
    num_queries, num_keys = shape[2:]
    if is_causal and num_queries > num_keys:
        mask = torch.ones(num_queries, num_keys, dtype=torch.bool, device="cpu").tril().expand(shape)
        is_causal = False
    elif is_causal:  # The kernel's diagonal ends at the last key: the keys after the last query's are hidden anyway.
        key, value, num_keys = key[:, :, :num_queries], value[:, :, :num_queries], num_queries
    query_starts, key_starts = _starts(num_queries, max(num_queries, 1)), _starts(num_keys, _KEY_BLOCK)
    num_blocks = key_starts.shape[0] - 1
    idx = torch.arange(num_blocks, device="cpu").expand(*query.shape[:2], query_starts.shape[0] - 1, num_blocks)
    num = torch.tensor(num_blocks, device="cpu").expand(idx.shape[:3])
    with core_errors():
        output, _ = operators.block_sparse_attention(
            query, key, value, idx, num, query_starts, key_starts, None, scale, is_causal, [], mask
        )
    output = output.to(dtype)
    return output.transpose(1, 2) if layout == "BSND" else output
