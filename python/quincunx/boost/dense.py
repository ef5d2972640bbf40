"""Dense attention by this package's kernel."""

import torch
from torch import Tensor

from .._errors import core_errors
from ._arguments import check_tensors, choice, common_float_dtype
from ._operators import operators

_LAYOUTS = ("BNSD", "BSND")
_KEY_BLOCK = 128  # keys that a packing task takes


def attention(query: Tensor, key: Tensor, value: Tensor, *, scale: float | None = None, layout: str = "BNSD") -> Tensor:
    """softmax(scale query key^T) value over all keys."""
    check_tensors("batch, heads, length, head size in the order of layout", query=query, key=key, value=value)
    dtype = common_float_dtype(query=query, key=key, value=value)
    if choice("layout", layout, _LAYOUTS) == "BSND":
        query, key, value = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
    query, key, value = query.float(), key.float(), value.float()
    length, num_keys = query.shape[2], key.shape[2]
    query_starts = torch.tensor([0, length] if length else [0])
    key_starts = torch.tensor([*range(0, num_keys, _KEY_BLOCK), num_keys])
    num_blocks = key_starts.shape[0] - 1
    idx = torch.arange(num_blocks).expand(*query.shape[:2], query_starts.shape[0] - 1, num_blocks)
    num = torch.tensor(num_blocks).expand(idx.shape[:3])
    with core_errors():
        output, _ = operators.block_sparse_attention(query, key, value, idx, num, query_starts, key_starts, None, scale)
    output = output.to(dtype)
    return output.transpose(1, 2) if layout == "BSND" else output
