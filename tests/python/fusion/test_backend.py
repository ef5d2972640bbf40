"""backend="quincunx" on functions and blocks of real models: values and gradients against float64."""

import pytest
import torch
from fusion.reference import assert_as_good_as_eager, assert_close, double_module, doubled, value_and_gradients
from model import Block, ModelConfig, rotary_table
from quincunx.fusion import backend, decompositions
from torch import nn
from torch.nn import functional


def rms_norm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * weight


def gelu_tanh_by_hand(x):
    return 0.5 * x * (1 + torch.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


def rotated_by_halves(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def swiglu(gate, up):
    return functional.silu(gate) * up


def random(*shape, scale=1.0):
    return torch.randn(*shape) * scale


FUNCTIONS = {
    "rms_norm": (rms_norm, lambda: (random(3, 5, 33), random(33))),
    "torch_rms_norm": (lambda x, w: functional.rms_norm(x, (40,), w, 1e-6), lambda: (random(7, 40), random(40))),
    "add_rms_norm": (lambda x, y, w: rms_norm(x + y, w), lambda: (random(4, 17), random(4, 17), random(17))),
    "layer_norm": (
        lambda x, w, b: functional.layer_norm(x, (29,), w, b),
        lambda: (random(2, 3, 29), random(29), random(29)),
    ),
    "softmax": (lambda x: torch.softmax(x, -1), lambda: (random(5, 19, scale=4),)),
    "softmax_of_a_middle_dim": (lambda x: torch.softmax(x, 1), lambda: (random(3, 11, 6, scale=4),)),
    "log_softmax": (lambda x: torch.log_softmax(x, -1), lambda: (random(4, 23, scale=4),)),
    "gelu": (functional.gelu, lambda: (random(3, 65),)),
    "gelu_tanh": (lambda x: functional.gelu(x, approximate="tanh"), lambda: (random(3, 65),)),
    "gelu_tanh_by_hand": (gelu_tanh_by_hand, lambda: (random(3, 65),)),
    "swiglu": (swiglu, lambda: (random(6, 31), random(6, 31))),
    "geglu": (lambda g, u: functional.gelu(g) * u, lambda: (random(6, 31), random(6, 31))),
    "rope": (rotated_by_halves, lambda: (random(2, 3, 5, 16), random(5, 16), random(5, 16))),
    "bias_residual": (lambda x, b, r: torch.relu(x + b) + r, lambda: (random(4, 9), random(9), random(4, 9))),
    "mean_and_variance": (lambda x: (x.mean(-1), x.var(-1, unbiased=True)), lambda: (random(6, 37),)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients_are_those_of_float64(name, new_counts):
    function, make = FUNCTIONS[name]
    inputs = make()
    values, gradients = value_and_gradients(torch.compile(function, backend="quincunx"), *inputs)
    expected, expected_gradients = value_and_gradients(function, *doubled(inputs))
    for actual, right in zip(values + gradients, expected + expected_gradients, strict=True):
        assert_close(actual, right)
    assert new_counts()["regions_run"] > 0
    assert new_counts()["regions_run_by_aten"] == 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["rms_norm", "layer_norm", "softmax", "gelu", "gelu_tanh_by_hand", "swiglu"])
def test_sixteen_bit_values_are_as_good_as_eager(name, dtype):
    function, make = FUNCTIONS[name]
    inputs = [tensor.to(dtype) for tensor in make()]
    actual = torch.compile(function, backend="quincunx")(*inputs)
    assert_as_good_as_eager(actual, function(*inputs), function(*doubled(inputs)))


def bert_block():
    return nn.TransformerEncoderLayer(32, 4, 48, dropout=0.0, activation="gelu", batch_first=True)


class ConvolutionBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)

    def forward(self, x):
        return torch.relu(self.norm(self.convolution(x))) + x.sum(1, keepdim=True)


CONFIG = ModelConfig(vocab_size=32, dim=32, num_layers=1, num_heads=2, hidden_dim=40)
MODULES = {
    "llama": (lambda: Block(CONFIG), lambda: (random(2, 7, 32), *rotary_table(7, 16, 1e4))),
    "bert": (bert_block, lambda: (random(2, 7, 32),)),
    "convolution": (ConvolutionBlock, lambda: (random(2, 3, 9, 9),)),
}


@pytest.mark.parametrize("name", MODULES)
def test_a_block_trains_as_in_float64(name, new_counts):
    make_module, make_inputs = MODULES[name]
    module, inputs = make_module(), make_inputs()
    exact = double_module(module)
    results, gradients = value_and_gradients(torch.compile(module, backend="quincunx"), *inputs)
    expected, expected_gradients = value_and_gradients(exact, *doubled(inputs))
    assert_close(results[0], expected[0])
    assert_close(gradients[0], expected_gradients[0])
    assert new_counts()["graphs"] == 2
    assert new_counts()["regions_run"] >= 1


@pytest.mark.parametrize("name", MODULES)
def test_a_block_infers_as_in_float64(name, new_counts):
    make_module, make_inputs = MODULES[name]
    module, inputs = make_module().eval(), make_inputs()
    with torch.no_grad():
        actual = torch.compile(module, backend="quincunx", fullgraph=True)(*inputs)
        expected = double_module(module)(*doubled(inputs))
    assert_close(actual, expected)
    assert new_counts()["graphs"] == 1


def test_operators_without_a_kernel_run_through_aten_and_are_listed():
    from quincunx.fusion import counters

    before = counters()["operators_left"].get("aten.cumsum.default", 0)
    x = torch.randn(5, 6)
    actual = torch.compile(lambda t: (t.cumsum(0) * 2).sin(), backend="quincunx")(x)
    torch.testing.assert_close(actual, (x.cumsum(0) * 2).sin(), rtol=1e-6, atol=1e-6)
    assert counters()["operators_left"]["aten.cumsum.default"] == before + 1


def test_the_reference_of_every_region_agrees(new_counts):
    module, inputs = Block(CONFIG), (random(2, 7, 32), *rotary_table(7, 16, 1e4))
    compiled = torch.compile(module, backend="quincunx", options={"check": True})
    value_and_gradients(compiled, *inputs)
    assert new_counts()["regions_checked"] > 0


def test_wrong_options_are_named():
    for options, message in (
        ({"chekc": True}, "options has the unknown key 'chekc'"),
        ({"check": 1}, "check is 1; expected True or False"),
        ({"disable": ["rmsnorm"]}, "disable names rmsnorm; expected some of"),
        ({"disable": "rms_norm"}, "disable is 'rms_norm'; expected a list"),
    ):
        with pytest.raises(Exception, match=message):
            torch.compile(lambda t: t + 1, backend="quincunx", options=options)(torch.ones(2))
        torch._dynamo.reset()
    with pytest.raises(Exception, match="mode is 'max-autotune', which the backend quincunx does not have"):
        backend.quincunx_backend(None, [], mode="max-autotune")


def test_the_decompositions_leave_what_patterns_recognise():
    names = {str(operator) for operator in decompositions.table()}
    assert "aten.gelu_backward.default" in names
    assert not names & {"aten.gelu.default", "aten.native_layer_norm.default", "aten._softmax.default"}
