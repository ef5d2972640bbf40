"""What torch.compile and torch.export need of this package's operators: the shape, dtype and strides of each result."""

import math

import torch


@torch.library.register_fake("quincunx::block_sparse_attention")
def _block_sparse_attention(
    query,
    key,
    value,
    select_idx,
    select_num_idx,
    query_starts,
    key_starts,
    order=None,
    scale=None,
    causal=False,
    key_lengths=(),
    attn_mask=None,
):
    # As the operator: the memory order of query where the head sizes agree.
    if query.shape[-1] == value.shape[-1]:
        output = torch.empty_like(query)
    else:
        output = query.new_empty((*query.shape[:-1], value.shape[-1]))
    return output, query.new_empty(query.shape[:-1])


@torch.library.register_fake("quincunx::block_sparse_attention_backward")
def _block_sparse_attention_backward(output_grad, log_sum_exp_grad, query, key, value, *_):
    return tuple(tensor.new_empty(tensor.shape) for tensor in (query, key, value))


@torch.library.register_fake("quincunx::tile_order")
def _tile_order(latent_shape, tile, text_len, text_first, first_frame_apart):
    frames, height, width = latent_shape
    rows = 1 + math.ceil((frames - 1) / tile[0]) if first_frame_apart else math.ceil(frames / tile[0])
    blocks = rows * math.ceil(height / tile[1]) * math.ceil(width / tile[2])
    blocks += math.ceil(text_len / math.prod(tile))
    sizes = (math.prod(latent_shape) + text_len, blocks + 1, 3 * blocks)
    return tuple(torch.empty(size, dtype=torch.int64) for size in sizes)


@torch.library.register_fake("quincunx::select_blocks")
def _select_blocks(query, key, order, starts, tiles, rule, amount, window, keep, scale=None, token_mask=None):
    batch, heads, blocks = query.shape[0], query.shape[1], starts.shape[0] - 1
    return (
        starts.new_empty((batch, heads, blocks, blocks)),
        starts.new_empty((batch, heads, blocks)),
        query.new_empty((), dtype=torch.float64),
    )


@torch.library.register_fake("quincunx::top_k_blocks")
def _top_k_blocks(scores, k):
    return torch.empty_like(scores, dtype=torch.bool)
