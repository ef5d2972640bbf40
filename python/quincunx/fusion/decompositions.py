"""Which operators the stand-alone backend takes apart before it looks for regions.

Patterns recognise an operator best as the user wrote it, and ATen runs best what is not fused: so the table is short.
It holds what consists of elementwise operators and reductions but has no kernel of ours, above all the gradients.
"""

import functools
from collections.abc import Callable

import torch
from torch._decomp import get_decompositions

aten = torch.ops.aten

_ELEMENTWISE = (
    aten.addcdiv,
    aten.addcmul,
    aten.elu,
    aten.hardsigmoid,
    aten.hardswish,
    aten.hardtanh,
    aten.leaky_relu,
    aten.lerp,
    aten.logit,
    aten.mish,
    aten.rsub,
    aten.softplus,
    aten.t,
    aten.threshold,
)
_GRADIENTS = (
    aten._log_softmax_backward_data,
    aten._softmax_backward_data,
    aten.elu_backward,
    aten.gelu_backward,
    aten.hardsigmoid_backward,
    aten.hardswish_backward,
    aten.hardtanh_backward,
    aten.leaky_relu_backward,
    aten.mish_backward,
    aten.mse_loss_backward,
    aten.native_layer_norm_backward,
    aten.sigmoid_backward,
    aten.silu_backward,
    aten.softplus_backward,
    aten.tanh_backward,
    aten.threshold_backward,
)


@functools.cache
def table() -> dict[torch._ops.OpOverload, Callable]:
    """Operators and the functions of other operators that replace them."""
    return get_decompositions([*_ELEMENTWISE, *_GRADIENTS])
