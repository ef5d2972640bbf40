"""Derivatives of those operators of torch.ops.quincunx that have a backward operator; importing registers them."""

import torch


def _keep_for_cross_entropy(ctx, inputs, output):
    logits, target, *options = inputs
    ctx.save_for_backward(logits, target, output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.options = options


def _cross_entropy_gradient(ctx, grad_loss, grad_log_sum_exp):
    logits, target, log_sum_exp = ctx.saved_tensors
    gradient = torch.ops.quincunx.cross_entropy_backward(grad_loss, logits, target, log_sum_exp, *ctx.options)
    return gradient, None, None, None, None


torch.library.register_autograd(
    "quincunx::cross_entropy", _cross_entropy_gradient, setup_context=_keep_for_cross_entropy
)


def _second_derivative_of_cross_entropy(ctx, *_):
    raise NotImplementedError("cross_entropy: expected one differentiation, got a second derivative")


torch.library.register_autograd("quincunx::cross_entropy_backward", _second_derivative_of_cross_entropy)


def _keep_for_attention(ctx, inputs, output):
    query, key, value, scale, causal, key_lengths, attn_mask = inputs
    ctx.save_for_backward(query, key, value, *output, attn_mask)
    ctx.options = scale, causal, key_lengths


def _attention_gradient(ctx, grad_output, grad_log_sum_exp):
    *forward, attn_mask = ctx.saved_tensors
    if grad_output is None:
        grad_output = torch.zeros_like(forward[3])
    gradients = torch.ops.quincunx.attention_backward(grad_output, grad_log_sum_exp, *forward, *ctx.options, attn_mask)
    return *gradients, None, None, None, None


def _keep_for_variable_length_attention(ctx, inputs, output):
    query, key, value, query_starts, key_starts, scale, causal = inputs
    ctx.save_for_backward(query, key, value, *output, query_starts, key_starts)
    ctx.options = scale, causal


def _variable_length_attention_gradient(ctx, grad_output, grad_log_sum_exp):
    if grad_output is None:
        grad_output = torch.zeros_like(ctx.saved_tensors[3])
    gradients = torch.ops.quincunx.variable_length_attention_backward(
        grad_output, grad_log_sum_exp, *ctx.saved_tensors, *ctx.options
    )
    return *gradients, None, None, None, None


def _second_derivative(ctx, *_):
    raise NotImplementedError("attention: expected one differentiation, got a second derivative")


torch.library.register_autograd("quincunx::attention", _attention_gradient, setup_context=_keep_for_attention)
torch.library.register_autograd(
    "quincunx::variable_length_attention",
    _variable_length_attention_gradient,
    setup_context=_keep_for_variable_length_attention,
)
torch.library.register_autograd("quincunx::attention_backward", _second_derivative)
torch.library.register_autograd("quincunx::variable_length_attention_backward", _second_derivative)
