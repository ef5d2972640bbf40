"""What torch.compile and torch.export need of torch.ops.quincunx.*: the shape, dtype and strides of each result.

Importing this module registers them; the operators must be loaded. Only the operators of models have them: those of
Muon run in the optimizer, outside compiled graphs.
"""

import torch

_PANEL_COLUMNS = 16  # of a packed matrix, as in quincunx/kernels/gemm/matrix_product.h
_ORIGIN_FLOATS = 16  # as in quincunx/torch/packed_origin.h


def _packed_size(out_features, in_features):
    panels = (out_features + _PANEL_COLUMNS - 1) // _PANEL_COLUMNS
    return panels * _PANEL_COLUMNS * in_features


@torch.library.register_fake("quincunx::pack_linear_weight")
def _pack_linear_weight(weight):
    return weight.new_empty(_packed_size(*weight.shape) + _ORIGIN_FLOATS)


@torch.library.register_fake("quincunx::packed_linear")
def _packed_linear(x, packed, out_features, bias=None, activation="none", residual=None, scale=1.0, row_scale=None):
    return x.new_empty((*x.shape[:-1], out_features))


@torch.library.register_fake("quincunx::packed_linear_out")
def _packed_linear_out(x, packed, bias=None, activation="none", residual=None, scale=1.0, row_scale=None, *, out):
    pass


@torch.library.register_fake("quincunx::pack_gated_weight")
def _pack_gated_weight(gate, up):
    return gate.new_empty(2 * _packed_size(*gate.shape) + _ORIGIN_FLOATS)


@torch.library.register_fake("quincunx::gated_linear")
def _gated_linear(x, packed, out_features, activation="silu", bias=None, up_bias=None, residual=None, row_scale=None):
    return x.new_empty((*x.shape[:-1], out_features))


@torch.library.register_fake("quincunx::batched_gemm")
def _batched_gemm(a, b, bias=None, activation="none", residual=None, scale=1.0, row_scale=None):
    return a.new_empty((a.shape[0], a.shape[1], b.shape[2]))


@torch.library.register_fake("quincunx::pack_grouped_weight")
def _pack_grouped_weight(weight):
    return weight.new_empty(weight.shape[0] * _packed_size(*weight.shape[1:]) + _ORIGIN_FLOATS)


@torch.library.register_fake("quincunx::grouped_linear")
def _grouped_linear(x, packed, out_features, offsets, bias=None, activation="none", row_scale=None):
    return x.new_empty((x.shape[0], out_features))


@torch.library.register_fake("quincunx::gram")
def _gram(x, scale=1.0):
    return x.new_empty((x.shape[0], x.shape[0]))


@torch.library.register_fake("quincunx::symmetric_polynomial")
def _symmetric_polynomial(x, a, b, c):
    return x.new_empty(x.shape)


@torch.library.register_fake("quincunx::newton_schulz")
def _newton_schulz(x, coefficients, eps, form):
    return x.new_empty(x.shape)


@torch.library.register_fake("quincunx::rms_norm")
def _rms_norm(x, weight=None, eps=1e-6):
    return torch.empty_like(x)


@torch.library.register_fake("quincunx::layer_norm")
def _layer_norm(x, weight=None, bias=None, eps=1e-5):
    return torch.empty_like(x)


@torch.library.register_fake("quincunx::add_rms_norm")
def _add_rms_norm(x, residual, weight=None, eps=1e-6):
    return torch.empty_like(x), torch.empty_like(x)


@torch.library.register_fake("quincunx::add_layer_norm")
def _add_layer_norm(x, residual, weight=None, bias=None, eps=1e-5):
    return torch.empty_like(x), torch.empty_like(x)


@torch.library.register_fake("quincunx::modulated_rms_norm")
def _modulated_rms_norm(x, weight, scale, shift, eps=1e-6):
    return torch.empty_like(x)


@torch.library.register_fake("quincunx::modulated_layer_norm")
def _modulated_layer_norm(x, scale, shift, eps=1e-5):
    return torch.empty_like(x)


@torch.library.register_fake("quincunx::group_norm")
def _group_norm(x, num_groups, weight=None, bias=None, eps=1e-5, silu=False):
    return torch.empty_like(x)


@torch.library.register_fake("quincunx::unary")
def _unary(x, function):
    return torch.empty_like(x)


@torch.library.register_fake("quincunx::gated")
def _gated(gate, up, function="silu"):
    return torch.empty_like(gate)


@torch.library.register_fake("quincunx::softmax")
def _softmax(x, dim=-1):
    return torch.empty_like(x)


@torch.library.register_fake("quincunx::log_softmax")
def _log_softmax(x, dim=-1):
    return torch.empty_like(x)


@torch.library.register_fake("quincunx::cross_entropy")
def _cross_entropy(logits, target, ignore_index=-100, label_smoothing=0.0, reduction="mean"):
    rows = logits.new_empty(logits.shape[0], dtype=torch.float32)
    return torch.empty_like(rows) if reduction == "none" else rows.new_empty(()), rows


@torch.library.register_fake("quincunx::cross_entropy_backward")
def _cross_entropy_backward(
    grad_loss, logits, target, log_sum_exp, ignore_index=-100, label_smoothing=0.0, reduction="mean"
):
    return torch.empty_like(logits)


@torch.library.register_fake("quincunx::embedding")
def _embedding(table, indices):
    return table.new_empty((*indices.shape, table.shape[1]))


@torch.library.register_fake("quincunx::embedding_bag")
def _embedding_bag(table, indices, offsets, mode="sum"):
    return table.new_empty((offsets.shape[0], table.shape[1]))


@torch.library.register_fake("quincunx::top_k")
def _top_k(x, k, dim=-1, largest=True):
    shape = list(x.shape)
    shape[dim] = k
    return x.new_empty(shape), x.new_empty(shape, dtype=torch.int64)


@torch.library.register_fake("quincunx::sort")
def _sort(x, dim=-1, descending=False):
    return x.new_empty(x.shape), x.new_empty(x.shape, dtype=torch.int64)


@torch.library.register_fake("quincunx::sample")
def _sample(
    logits,
    temperature=1.0,
    top_k=0,
    top_p=1.0,
    min_p=0.0,
    repetition_penalty=1.0,
    history=None,
    seed=0,
    step=0,
):
    return logits.new_empty(logits.shape[0], dtype=torch.int64)


@torch.library.register_fake("quincunx::rope")
def _rope(x, cos, sin, interleaved=False, sequence_dim=1):
    return torch.empty_like(x)


def _attention_results(query, value):
    # As the operator: the memory order of query where the head sizes agree.
    if query.shape[-1] == value.shape[-1]:
        output = torch.empty_like(query)
    else:
        output = query.new_empty((*query.shape[:-1], value.shape[-1]))
    return output, query.new_empty(query.shape[:-1], dtype=torch.float32)


@torch.library.register_fake("quincunx::attention")
def _attention(query, key, value, scale=None, causal=False, key_lengths=(), attn_mask=None):
    return _attention_results(query, value)


@torch.library.register_fake("quincunx::variable_length_attention")
def _variable_length_attention(query, key, value, query_starts, key_starts, scale=None, causal=False):
    length, heads = query.shape[:2]
    return query.new_empty((length, heads, value.shape[-1])), query.new_empty((heads, length), dtype=torch.float32)


@torch.library.register_fake("quincunx::decode_attention")
def _decode_attention(query, keys, values, key_lengths=None, scale=None):
    return _attention_results(query, values)


@torch.library.register_fake("quincunx::paged_decode_attention")
def _paged_decode_attention(query, keys, values, block_table, key_lengths, scale=None):
    return _attention_results(query, values)


def _gradients_like(*tensors):
    return tuple(tensor.new_empty(tensor.shape) for tensor in tensors)


@torch.library.register_fake("quincunx::attention_backward")
def _attention_backward(output_grad, log_sum_exp_grad, query, key, value, *_):
    return _gradients_like(query, key, value)


@torch.library.register_fake("quincunx::variable_length_attention_backward")
def _variable_length_attention_backward(output_grad, log_sum_exp_grad, query, key, value, *_):
    return _gradients_like(query, key, value)
