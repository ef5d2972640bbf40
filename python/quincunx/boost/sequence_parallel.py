"""Attention over a sequence that several ranks hold in parts, for any number of heads and any lengths."""

import torch
import torch.distributed as dist
from torch import Tensor

from ._arguments import check_tensors, common_float_dtype
from .dense import attention

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def _complaint(query: Tensor, key: Tensor, value: Tensor) -> str:
    """What is wrong with the arguments of this rank, or ''."""
    try:
        check_tensors("batch, length, heads, head size", query=query, key=key, value=value)
        common_float_dtype(query=query, key=key, value=value)
    except (TypeError, ValueError) as error:
        return str(error)
    if key.shape[:3] != value.shape[:3]:
        return f"value: expected the batch, length and heads of key {list(key.shape)}, got {list(value.shape)}"
    if query.shape[0] != key.shape[0] or query.shape[3] != key.shape[3]:
        return f"key: expected the batch and head size of query {list(query.shape)}, got {list(key.shape)}"
    if key.shape[2] == 0 or query.shape[2] % key.shape[2]:
        return f"key: expected a number of heads that divides the {query.shape[2]} of query, got {key.shape[2]}"
    return ""


def _exchange_shapes(query: Tensor, key: Tensor, value: Tensor, group: dist.ProcessGroup | None) -> list[int]:
    """The number of keys of each rank. Every rank raises if one of them has bad arguments or others than rank 0."""
    complaint = _complaint(query, key, value)
    mine = torch.full((7,), -1, dtype=torch.int64)
    if not complaint:
        batch, length, heads, head_dim = key.shape
        sizes = (length, batch, heads, head_dim, query.shape[2], value.shape[3], _DTYPES.index(key.dtype))
        mine = torch.tensor(sizes, dtype=torch.int64)
    everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
    dist.all_gather(everyone, mine, group=group)
    if complaint:
        raise ValueError(complaint)
    for rank, theirs in enumerate(everyone):
        if theirs[0] < 0:
            raise ValueError(f"query, key, value: rank {rank} of the group has arguments that do not fit together")
        if not torch.equal(theirs[1:], everyone[0][1:]):
            raise ValueError(
                "query, key, value: expected the same batch, heads, head sizes and dtype on all ranks of the group, "
                f"got {everyone[0][1:].tolist()} on rank 0 and {theirs[1:].tolist()} on rank {rank} "
                "(batch, key heads, head size, query heads, value head size, dtype)"
            )
    return [int(theirs[0]) for theirs in everyone]


def _gather_parts(part: Tensor, lengths: list[int], group: dist.ProcessGroup | None) -> Tensor:
    """The parts [B, length, H, D] of all ranks, one after another."""
    longest = max(lengths)
    if longest == 0:
        return part
    padded = part.new_zeros((part.shape[0], longest, *part.shape[2:]))
    padded[:, : part.shape[1]] = part
    parts = [torch.empty_like(padded) for _ in lengths]
    dist.all_gather(parts, padded, group=group)
    return torch.cat([other[:, :length] for other, length in zip(parts, lengths, strict=True)], dim=1)


def sequence_parallel_attention(
    query: Tensor, key: Tensor, value: Tensor, *, scale: float | None = None, group: dist.ProcessGroup | None = None
) -> Tensor:
    """Attention of this rank's queries to the keys of all ranks of the group (absent: the default one).

    query [B, S_q, H, D], key [B, S, H_kv, D], value [B, S, H_kv, D_v]: what this rank holds of a sequence that is cut
    along S in the order of the ranks; the parts may differ in length and be empty, H is any multiple of H_kv. Every
    rank must call it. Bad arguments on one rank raise ValueError on all of them, before anything else is sent. Keys and
    values travel once (all_gather); forward only.
    """
    lengths = _exchange_shapes(query, key, value, group)
    with torch.no_grad():
        keys, values = (_gather_parts(part, lengths, group) for part in (key, value))
        return attention(query, keys, values, scale=scale, layout="BSND")
