"""What the tests compare with: attention in double precision under a mask, and masks made of lists."""

import torch


def masked_attention(query, key, value, mask, scale=None, bias=0):
    """(output, log-sum-exp) in float64; query heads share key heads in groups; rows without keys give 0 and -inf."""
    groups = query.shape[1] // key.shape[1]
    key, value = key.double().repeat_interleave(groups, 1), value.double().repeat_interleave(groups, 1)
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = scale * query.double() @ key.mT + bias
    scores = scores.masked_fill(~mask, float("-inf"))
    weights = torch.softmax(scores, -1).masked_fill(~mask.any(-1, keepdim=True), 0)
    return weights @ value, torch.logsumexp(scores, -1)


def token_mask(blocks, query_block, key_block, num_queries, num_keys):
    """[B, H, queries, keys] of a mask [B, query blocks, H, key blocks]."""
    mask = blocks.transpose(1, 2).repeat_interleave(query_block, 2).repeat_interleave(key_block, 3)
    return mask[:, :, :num_queries, :num_keys]


def lists_of(blocks):
    """(select_idx, select_num_idx) of a mask whose last dimension counts key blocks."""
    num = blocks.sum(-1)
    index = torch.arange(blocks.shape[-1]).expand(blocks.shape)
    idx = torch.where(blocks, index, blocks.shape[-1]).sort(-1).values
    return torch.where(idx == blocks.shape[-1], -1, idx), num
