"""What torch.compile and torch.export need of torch.ops.quincunx.*: the shape, dtype and strides of each result.

Importing this module registers them; the operators must be loaded. Only the operators of models have them: those of
Muon run in the optimizer, outside compiled graphs.
"""

import torch

_PANEL_COLUMNS = 16  # of a packed matrix, as in quincunx/kernels/gemm/matrix_product.h


@torch.library.register_fake("quincunx::pack_linear_weight")
def _pack_linear_weight(weight):
    out_features, in_features = weight.shape
    panels = (out_features + _PANEL_COLUMNS - 1) // _PANEL_COLUMNS
    return weight.new_empty(panels * _PANEL_COLUMNS * in_features)


@torch.library.register_fake("quincunx::packed_linear")
def _packed_linear(x, packed, out_features, bias=None, activation="none", residual=None):
    return x.new_empty((*x.shape[:-1], out_features))


@torch.library.register_fake("quincunx::newton_schulz")
def _newton_schulz(x, coefficients, eps, form):
    return x.new_empty(x.shape)


@torch.library.register_fake("quincunx::rms_norm")
def _rms_norm(x, weight=None, eps=1e-6):
    return torch.empty_like(x)


@torch.library.register_fake("quincunx::layer_norm")
def _layer_norm(x, weight=None, bias=None, eps=1e-5):
    return torch.empty_like(x)


@torch.library.register_fake("quincunx::softmax")
def _softmax(x, dim=-1):
    return torch.empty_like(x)


@torch.library.register_fake("quincunx::rope")
def _rope(x, cos, sin, interleaved=False, sequence_dim=1):
    return torch.empty_like(x)


@torch.library.register_fake("quincunx::attention")
def _attention(query, key, value, scale=None, causal=False, key_lengths=(), attn_mask=None):
    # As the operator: the memory order of query where the head sizes agree.
    if query.shape[-1] == value.shape[-1]:
        output = torch.empty_like(query)
    else:
        output = query.new_empty((*query.shape[:-1], value.shape[-1]))
    return output, query.new_empty(query.shape[:-1])


def _decode_results(query, values):
    # As the operator: the memory order of query where the head sizes agree.
    if query.shape[-1] == values.shape[-1]:
        output = torch.empty_like(query)
    else:
        output = query.new_empty((*query.shape[:-1], values.shape[-1]))
    return output, query.new_empty(query.shape[:-1], dtype=torch.float32)


@torch.library.register_fake("quincunx::decode_attention")
def _decode_attention(query, keys, values, key_lengths=None, scale=None):
    return _decode_results(query, values)


@torch.library.register_fake("quincunx::paged_decode_attention")
def _paged_decode_attention(query, keys, values, block_table, key_lengths, scale=None):
    return _decode_results(query, values)
