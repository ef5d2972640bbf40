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
