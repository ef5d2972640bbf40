"""torch.ops.quincunx.log_softmax and cross_entropy, with gradients, against torch in double precision."""

import pytest
import torch
from quincunx._library import load_operators

F = torch.nn.functional


@pytest.fixture(autouse=True)
def operators():
    load_operators()
    torch.manual_seed(0)


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_log_softmax_equals_torch_along_any_dimension(dim, dtype):
    x = (3 * torch.randn(4, 7, 19)).to(dtype)
    y = torch.ops.quincunx.log_softmax(x, dim)
    rounding = {torch.float32: 2**-20, torch.bfloat16: 2**-8, torch.float16: 2**-11}[dtype]
    torch.testing.assert_close(y.double(), torch.log_softmax(x.double(), dim), rtol=1.01 * rounding, atol=2**-20)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_loss_and_gradient_equal_torch(dtype, label_smoothing, reduction):
    logits = (2 * torch.randn(6, 53)).to(dtype).requires_grad_()
    target = torch.tensor([4, -100, 52, 0, 7, 7])
    loss, log_sum_exp = torch.ops.quincunx.cross_entropy(logits, target, -100, label_smoothing, reduction)
    exact = logits.detach().double().requires_grad_()
    expected = F.cross_entropy(exact, target, label_smoothing=label_smoothing, reduction=reduction)
    torch.testing.assert_close(loss.double(), expected, rtol=2**-20, atol=2**-20)
    torch.testing.assert_close(log_sum_exp.double(), exact.logsumexp(-1), rtol=2**-20, atol=0)
    factors = torch.linspace(0.5, 2, 6)[: loss.numel()].view(loss.shape)
    (loss * factors).sum().backward()
    (expected * factors.double()).sum().backward()
    rounding = {torch.float32: 2**-19, torch.bfloat16: 2**-8, torch.float16: 2**-10}[dtype]
    torch.testing.assert_close(logits.grad.double(), exact.grad, rtol=1.01 * rounding, atol=2**-20)


def test_an_ignored_index_may_be_a_class_and_int32_targets_will_do():
    logits = torch.randn(4, 5)
    target = torch.tensor([1, 0, 1, 4], dtype=torch.int32)
    loss, _ = torch.ops.quincunx.cross_entropy(logits, target, 1)
    torch.testing.assert_close(loss, F.cross_entropy(logits, target.long(), ignore_index=1))
    loss, _ = torch.ops.quincunx.cross_entropy(logits, torch.full((4,), -100))
    assert loss.isnan()


def test_a_second_derivative_is_refused():
    logits = torch.randn(4, 5, requires_grad=True)
    loss, _ = torch.ops.quincunx.cross_entropy(logits, torch.tensor([1, 0, 1, 4]))
    (gradient,) = torch.autograd.grad(loss, logits, create_graph=True)
    with pytest.raises(NotImplementedError, match="cross_entropy: expected one differentiation"):
        gradient.pow(2).sum().backward()


def test_a_training_step_compiles():
    weight = torch.randn(11, 8, requires_grad=True)
    x, target = torch.randn(5, 8), torch.tensor([1, 2, 3, 10, 0])

    def step(weight):
        return torch.ops.quincunx.cross_entropy(x @ weight.t(), target)[0]

    torch.compile(step, fullgraph=True, backend="aot_eager")(weight).backward()
    compiled, weight.grad = weight.grad, None
    F.cross_entropy(x @ weight.t(), target).backward()
    torch.testing.assert_close(compiled, weight.grad)


def test_bad_input_names_the_argument():
    logits, target = torch.randn(2, 3), torch.tensor([0, 1])
    with pytest.raises(RuntimeError, match=r"targets\[1\]: expected 0 to 2 or the ignored -100, got 3"):
        torch.ops.quincunx.cross_entropy(logits, torch.tensor([0, 3]))
    with pytest.raises(RuntimeError, match="TYPE_ERROR: target: expected an int64 or int32 tensor"):
        torch.ops.quincunx.cross_entropy(logits, target.float())
    with pytest.raises(RuntimeError, match="reduction: expected none, mean or sum, got 'max'"):
        torch.ops.quincunx.cross_entropy(logits, target, reduction="max")
    with pytest.raises(RuntimeError, match="logits: expected 2 dimensions, got float32"):
        torch.ops.quincunx.cross_entropy(logits[0], target)
    with pytest.raises(RuntimeError, match="dim: expected -2 to 1, got 2"):
        torch.ops.quincunx.log_softmax(logits, 2)
