"""The derivative of torch.ops.quincunx.block_sparse_attention, for autograd and torch.compile."""

import torch

_NUM_TENSOR_INPUTS = 3  # query, key, value; the other arguments have no gradient


def _save(ctx, inputs, output):
    query, key, value, *lists_and_order, scale, causal, key_lengths, attn_mask = inputs
    ctx.save_for_backward(query, key, value, *output, *lists_and_order, attn_mask)
    ctx.options = scale, causal, key_lengths
    ctx.num_inputs = len(inputs)


def _backward(ctx, output_grad, log_sum_exp_grad):
    output = ctx.saved_tensors[3]
    if output_grad is None:
        output_grad = torch.zeros_like(output)
    *tensors, attn_mask = ctx.saved_tensors
    gradients = torch.ops.quincunx.block_sparse_attention_backward(
        output_grad, log_sum_exp_grad, *tensors, *ctx.options, attn_mask
    )
    return (*gradients, *[None] * (ctx.num_inputs - _NUM_TENSOR_INPUTS))


torch.library.register_autograd("quincunx::block_sparse_attention", _backward, setup_context=_save)


def _second_backward(ctx, *_):
    raise NotImplementedError("attention: expected one differentiation, got a second derivative")


torch.library.register_autograd("quincunx::block_sparse_attention_backward", _second_backward)
