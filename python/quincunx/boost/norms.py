"""Norms of transformer blocks by this package's kernels, differentiable through PyTorch's formulas of the same."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .._errors import core_errors
from ._arguments import common_float_dtype
from ._operators import operators


class _Recomputed(torch.autograd.Function):
    """apply(kernel, formula, *tensors): the kernel's value; the derivative is that of the formula, computed anew."""

    @staticmethod
    def forward(ctx, kernel, formula, *tensors):
        ctx.formula = formula
        ctx.save_for_backward(*tensors)
        return kernel(*tensors)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        inputs = [tensor.detach().requires_grad_(True) for tensor in ctx.saved_tensors]
        with torch.enable_grad():
            output = ctx.formula(*inputs)
        return None, None, *torch.autograd.grad(output, inputs, grad.to(output.dtype))


def _by_kernel(kernel: Callable, formula: Callable, *tensors: Tensor) -> Tensor:
    needs_gradient = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    if needs_gradient and torch.compiler.is_compiling():
        return formula(*tensors)  # Dynamo cannot follow functions that an autograd.Function is given.
    with core_errors():
        return _Recomputed.apply(kernel, formula, *tensors) if needs_gradient else kernel(*tensors)


def _check_last(x: Tensor, **vectors: Tensor) -> None:
    if x.dim() == 0:
        raise ValueError("x: expected at least one dimension, got a scalar")
    for name, vector in vectors.items():
        if not isinstance(vector, Tensor):
            raise TypeError(f"{name}: expected a torch.Tensor, got {type(vector).__name__}")
        if tuple(vector.shape) != tuple(x.shape[-1:]):
            raise ValueError(f"{name}: expected shape [{x.shape[-1]}], got {list(vector.shape)}")


def rms_norm(x: Tensor, weight: Tensor, *, eps: float = 1e-6) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension, of any rank, with x's dtype; sums in f32.

    x: float32, bfloat16 or float16 on the CPU. weight: of x's dtype or float32.
    """
    common_float_dtype(x=x)
    _check_last(x, weight=weight)

    def formula(x, weight):
        return torch.nn.functional.rms_norm(x.float(), x.shape[-1:], weight.float(), eps).type_as(x)

    return _by_kernel(lambda x, weight: operators.rms_norm(x, weight, eps), formula, x, weight)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, *, eps: float = 1e-5) -> Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias over the last dimension; else as rms_norm."""
    common_float_dtype(x=x)
    _check_last(x, weight=weight, bias=bias)

    def formula(x, weight, bias):
        return torch.nn.functional.layer_norm(x.float(), x.shape[-1:], weight.float(), bias.float(), eps).type_as(x)

    return _by_kernel(lambda x, w, b: operators.layer_norm(x, w, b, eps), formula, x, weight, bias)


def modulated_layer_norm(x: Tensor, scale: Tensor, shift: Tensor, *, eps: float = 1e-6) -> Tensor:
    """LayerNorm without weights, times 1 + scale, plus shift (adaLN), with x's dtype.

    x [B, S, N]; scale and shift [B, 1, N], float32: one of each a batch item, for all of its tokens.
    """
    common_float_dtype(x=x)
    if x.dim() != 3:
        raise ValueError(f"x: expected 3 dimensions (batch, length, channels), got shape {list(x.shape)}")
    for name, tensor in (("scale", scale), ("shift", shift)):
        if tuple(tensor.shape) != (x.shape[0], 1, x.shape[2]):
            raise ValueError(f"{name}: expected shape [{x.shape[0]}, 1, {x.shape[2]}], got {list(tensor.shape)}")

    def kernel(x, scale, shift):
        items = zip(x, 1 + scale.float(), shift.float(), strict=True)
        rows = [operators.layer_norm(item, weight[0], bias[0], eps) for item, weight, bias in items]
        return torch.stack(rows) if rows else torch.empty_like(x)

    def formula(x, scale, shift):
        normal = torch.nn.functional.layer_norm(x.float(), x.shape[-1:], None, None, eps)
        return (normal * (1 + scale.float()) + shift.float()).type_as(x)

    return _by_kernel(kernel, formula, x, scale, shift)
