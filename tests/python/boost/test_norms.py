"""Norms by our kernels against PyTorch's in double precision, with gradients."""

import pytest
import torch
from quincunx.boost import layer_norm, modulated_layer_norm, rms_norm
from torch.nn import functional

# A normalised value below 6, times a weight below 5, plus a bias below 5, after some eight roundings: 35 * 8 * 2^-24.
ATOL = 35 * 8 * 2**-24


def reference(kind, x, *weights, eps):
    x, weights = x.double(), [w.double() for w in weights]
    if kind == "rms":
        return functional.rms_norm(x, x.shape[-1:], *weights, eps)
    if kind == "layer":
        return functional.layer_norm(x, x.shape[-1:], *weights, eps)
    return functional.layer_norm(x, x.shape[-1:], None, None, eps) * (1 + weights[0]) + weights[1]


CALLS = {"rms": rms_norm, "layer": layer_norm, "modulated": modulated_layer_norm}


def weights_of(kind, shape):
    if kind == "modulated":
        return [torch.randn(shape[0], 1, shape[2]) for _ in range(2)]
    return [torch.randn(shape[-1]) for _ in range(1 if kind == "rms" else 2)]


@pytest.mark.parametrize("kind", CALLS)
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 3, 7), (3, 5, 16), (2, 4, 33), (0, 4, 8), (2, 0, 8)])
def test_equals_pytorchs(kind, shape):
    torch.manual_seed(0)
    x, weights = torch.randn(shape) + 0.5, weights_of(kind, shape)
    actual = CALLS[kind](x, *weights, eps=1e-3)
    torch.testing.assert_close(actual.double(), reference(kind, x, *weights, eps=1e-3), rtol=0, atol=ATOL)


@pytest.mark.parametrize("kind", CALLS)
def test_half_precision_is_rounded_once(kind):
    torch.manual_seed(0)
    x, weights = torch.randn(2, 3, 40).bfloat16(), weights_of(kind, (2, 3, 40))
    actual = CALLS[kind](x, *weights, eps=1e-6)
    assert actual.dtype == torch.bfloat16
    assert torch.equal(actual, CALLS[kind](x.float(), *weights, eps=1e-6).bfloat16())


@pytest.mark.parametrize("kind", CALLS)
def test_gradients_are_pytorchs(kind):
    torch.manual_seed(0)
    x, weights = torch.randn(2, 3, 20, requires_grad=True), weights_of(kind, (2, 3, 20))
    tensors = [x, *(w.requires_grad_() for w in weights)]
    actual = torch.autograd.grad(CALLS[kind](*tensors, eps=1e-5).square().sum(), tensors)
    doubles = [t.detach().double().requires_grad_() for t in tensors]
    expected = torch.autograd.grad(reference(kind, *doubles, eps=1e-5).square().sum(), doubles)
    for ours, theirs in zip(actual, expected, strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=60 * ATOL)


def test_a_second_derivative_is_refused():
    x = torch.randn(2, 8, requires_grad=True)
    (grad,) = torch.autograd.grad((rms_norm(x, torch.ones(8)) ** 3).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_any_rank(rank):
    x, weight = torch.randn([2] * (rank - 1) + [12]), torch.randn(12)
    expected = reference("rms", x, weight, eps=1e-6)
    torch.testing.assert_close(rms_norm(x, weight).double(), expected, rtol=0, atol=ATOL)


def test_bad_input_is_named():
    x, weight = torch.randn(2, 3, 8), torch.randn(8)
    with pytest.raises(ValueError, match=r"weight: expected shape \[8\], got \[7\]"):
        rms_norm(x, weight[:7])
    with pytest.raises(ValueError, match=r"bias: expected shape \[8\], got \[1, 8\]"):
        layer_norm(x, weight, weight[None])
    with pytest.raises(TypeError, match="x: expected a torch.Tensor, got list"):
        rms_norm([1.0], weight)
    with pytest.raises(TypeError, match="bias: expected a torch.Tensor, got float"):
        layer_norm(x, weight, 0.0)
    with pytest.raises(TypeError, match="x: expected a float32, bfloat16 or float16 tensor"):
        rms_norm(x.double(), weight)
    with pytest.raises(ValueError, match="x: expected at least one dimension"):
        rms_norm(torch.tensor(1.0), weight)
    with pytest.raises(ValueError, match="eps: expected"):
        rms_norm(x, weight, eps=-1.0)
    with pytest.raises(ValueError, match="x: expected 3 dimensions"):
        modulated_layer_norm(x[0], weight, weight)
    with pytest.raises(ValueError, match=r"shift: expected shape \[2, 1, 8\], got \[8\]"):
        modulated_layer_norm(x, torch.randn(2, 1, 8), weight)
