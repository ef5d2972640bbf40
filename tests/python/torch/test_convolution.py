"""torch.ops.quincunx.convolution, packed_convolution and causal_convolution against torch in double precision."""

import random

import pytest
import torch
import torch.nn.functional as functional
from quincunx._library import load_operators
from torch.library import opcheck

ACTIVATIONS = {
    "none": lambda x: x,
    "relu": torch.relu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "gelu_erf": functional.gelu,
    "silu": functional.silu,
    "hardswish": functional.hardswish,
    "clamp": lambda x: x.clamp(-0.25, 1.5),
}
CHANNELS_LAST = {3: None, 4: torch.channels_last, 5: torch.channels_last_3d}


@pytest.fixture(autouse=True)
def operators():
    load_operators()
    torch.manual_seed(0)


def random_configuration(generator: random.Random) -> dict:
    """Arguments of torch's convolution, with shapes; those of grouped, depthwise and transposed ones among them."""
    dims = generator.choice([1, 2, 2, 3])
    groups = generator.choice([1, 1, 1, 2, 3])
    channels = groups * generator.choice([1, 3, 8, 17, 20])
    out_channels = groups * generator.choice([1, 3, 7, 16, 33])
    if generator.random() < 0.2:
        groups = channels = out_channels = generator.choice([2, 5, 16, 23, 44])

    def sizes(low: int, high: int) -> list[int]:
        return [generator.randint(low, high) for _ in range(dims)]

    transposed = generator.random() < 0.3
    stride, dilation = sizes(1, 3), sizes(1, 2)
    steps = zip(stride, dilation, strict=True)
    return {
        "x": (generator.randint(1, 2), channels, *sizes(4, 12)),
        "weight": (channels, out_channels // groups) if transposed else (out_channels, channels // groups),
        "kernel": sizes(1, 4),
        "stride": stride,
        "padding": sizes(0, 2),
        "dilation": dilation,
        "transposed": transposed,
        "output_padding": [generator.randint(0, max(step) - 1) if transposed else 0 for step in steps],
        "groups": groups,
    }


@pytest.mark.parametrize("seed", range(60))
def test_equals_torch(seed):
    generator = random.Random(seed)
    c = random_configuration(generator)
    x, weight = torch.randn(c["x"]), torch.randn(*c["weight"], *c["kernel"])
    if generator.random() < 0.5 and x.dim() > 3:
        x = x.to(memory_format=CHANNELS_LAST[x.dim()])
    bias = torch.randn(weight.shape[1] * c["groups"] if c["transposed"] else weight.shape[0])
    arguments = [c[key] for key in ("stride", "padding", "dilation", "transposed", "output_padding", "groups")]
    try:
        expected = torch.convolution(x.double(), weight.double(), bias.double(), *arguments)
    except RuntimeError:
        with pytest.raises(RuntimeError, match="too small"):
            torch.ops.quincunx.convolution(x, weight, bias, *arguments)
        return
    magnitude = torch.convolution(x.double().abs(), weight.double().abs(), bias.double().abs(), *arguments)
    packed = torch.ops.quincunx.pack_convolution_weight(
        weight, c["stride"], c["dilation"], c["groups"], c["transposed"], exact=True
    )
    # As many roundings as products, each of at most the sum of magnitudes.
    bound = magnitude * (weight[0].numel() * weight.shape[0] + 2) * 2**-24
    for y in (
        torch.ops.quincunx.convolution(x, weight, bias, *arguments),
        torch.ops.quincunx.convolution(x, packed, bias, *arguments, weight_shape=weight.shape),
    ):
        assert y.shape == expected.shape
        assert torch.all((y.double() - expected).abs() <= bound)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_applies_the_epilogue(activation):
    x, weight, bias, scale = torch.randn(2, 5, 7, 6), torch.randn(9, 5, 3, 3), torch.randn(9), torch.randn(9)
    residual = torch.randn(2, 9, 7, 6)
    act = ACTIVATIONS[activation]
    total = functional.conv2d(x.double(), weight.double(), padding=1) * scale.double().view(-1, 1, 1)
    total = total + bias.double().view(-1, 1, 1)
    options = {"activation": activation, "clamp": [-0.25, 1.5], "scale": scale, "residual": residual}
    y = torch.ops.quincunx.convolution(x, weight, bias, padding=[1], **options)
    torch.testing.assert_close(y.double(), act(total) + residual.double(), rtol=0, atol=2e-5)
    y = torch.ops.quincunx.convolution(x, weight, bias, padding=[1], **options, residual_first=True)
    torch.testing.assert_close(y.double(), act(total + residual.double()), rtol=0, atol=2e-5)


@pytest.mark.parametrize("shape", [(2, 9, 6, 1), (2, 9, 1, 5), (2, 9, 1, 1)])
def test_takes_expanded_images(shape):
    x = torch.randn(shape).expand(2, 9, 6, 5)
    residual = torch.randn(2, 4, *shape[2:]).expand(2, 4, 6, 5)
    weight = torch.randn(4, 9, 3, 3)
    expected = functional.conv2d(x.double(), weight.double(), padding=1) + residual.double()
    for weights in (weight, torch.ops.quincunx.pack_convolution_weight(weight, exact=True)):
        y = torch.ops.quincunx.convolution(
            x, weights, padding=[1], residual=residual, weight_shape=weight.shape if weights is not weight else ()
        )
        torch.testing.assert_close(y.double(), expected, rtol=0, atol=1e-4)


def test_padding_may_differ_by_side():
    x, weight = torch.randn(1, 3, 6, 5), torch.randn(4, 3, 3, 2)
    y = torch.ops.quincunx.convolution(x, weight, padding=[2, 0, 0, 1])
    expected = functional.conv2d(functional.pad(x.double(), (0, 1, 2, 0)), weight.double())
    torch.testing.assert_close(y.double(), expected, rtol=0, atol=1e-5)


def test_winograd_is_near_and_exact_is_nearer():
    x, weight = torch.randn(1, 64, 24, 24), torch.randn(64, 64, 3, 3)
    expected = functional.conv2d(x.double(), weight.double(), padding=1)
    largest = functional.conv2d(x.double().abs(), weight.double().abs(), padding=1).max()
    pack = torch.ops.quincunx.pack_convolution_weight
    fast, exact = pack(weight), pack(weight, exact=True)
    assert fast.numel() > exact.numel()
    errors = []
    for packed in (fast, exact):
        y = torch.ops.quincunx.convolution(x, packed, padding=[1], weight_shape=weight.shape)
        errors.append(((y.double() - expected).abs().max() / largest).item())
    assert errors[0] <= 2e-5
    assert errors[1] < errors[0]


@pytest.mark.parametrize("chunks", [(1, 2, 4), (5, 2), (7,)])
def test_causal_chunks_give_the_bits_of_the_whole(chunks):
    x, weight, bias = torch.randn(1, 6, 7, 5, 4), torch.randn(8, 6, 3, 3, 3), torch.randn(8)
    whole = functional.conv3d(functional.pad(x.double(), (1, 1, 1, 1, 2, 0)), weight.double(), bias.double())
    expected, last = torch.ops.quincunx.causal_convolution(x, weight, bias, padding=[1, 1])
    torch.testing.assert_close(expected.double(), whole, rtol=0, atol=1e-4)
    assert torch.equal(last, x[:, :, -2:])
    previous, outputs = None, []
    for chunk in x.split(list(chunks), dim=2):
        y, previous = torch.ops.quincunx.causal_convolution(chunk, weight, bias, previous, padding=[1, 1])
        outputs.append(y)
    assert torch.equal(torch.cat(outputs, dim=2), expected)


@pytest.mark.parametrize("channels", [1, 40])
def test_chunks_of_single_pixels_give_the_bits_of_the_whole(channels):
    x, weight, bias = torch.randn(2, channels, 9, 1, 1), torch.randn(50, channels, 1, 1, 1), torch.randn(50)
    whole, _ = torch.ops.quincunx.causal_convolution(x, weight, bias)
    expected = functional.conv3d(x.double(), weight.double(), bias.double())
    torch.testing.assert_close(whole.double(), expected, rtol=0, atol=1e-4)
    frames = [torch.ops.quincunx.causal_convolution(frame, weight, bias)[0] for frame in x.split(1, dim=2)]
    assert torch.equal(torch.cat(frames, dim=2), whole)


def test_keeps_the_memory_order():
    x, weight = torch.randn(2, 4, 5, 6), torch.randn(3, 4, 1, 1)
    plain = torch.ops.quincunx.convolution(x, weight)
    last = torch.ops.quincunx.convolution(x.to(memory_format=torch.channels_last), weight)
    assert plain.is_contiguous()
    assert last.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(plain, last.contiguous())


def test_bad_input_names_the_argument():
    x, weight = torch.randn(1, 3, 6, 6), torch.randn(4, 3, 3, 3)
    op = torch.ops.quincunx.convolution
    packed = torch.ops.quincunx.pack_convolution_weight(weight)
    for arguments, options, message in (
        ((x.double(), weight), {}, "TYPE_ERROR: x: expected a float32 tensor"),
        ((x[0], weight), {}, "x: expected 4 dimensions, got 3"),
        ((x, weight), {"stride": [0]}, "stride: expected 1 to"),
        ((x, weight), {"stride": [1, 1, 1]}, "stride: expected one number or 2, got 3"),
        ((x, weight), {"activation": "swish"}, 'activation: expected .* got "swish"'),
        ((x, weight), {"activation": "clamp"}, "clamp: expected the least and the largest"),
        ((x, weight, torch.randn(3)), {}, "bias: expected \\[4\\]"),
        ((x, packed), {"weight_shape": [4, 3, 3, 5]}, "weight_shape, groups and transposed: expected those"),
        ((x, torch.randn(400)), {"weight_shape": weight.shape}, "packed: expected what pack_convolution_weight wrote"),
        ((x, packed), {}, "weight: expected one to three spatial dimensions"),
        (
            (torch.randn(1, 3, 2, 2, 2), torch.randn(4, 3, 1, 1, 1)),
            {"padding": [2**20]},
            r"output: the size in bytes of \[.*\] overflows 64 bits",
        ),
    ):
        with pytest.raises(RuntimeError, match=message):
            op(*arguments, **options)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_packed_convolution_is_the_short_form(dims):
    x, weight, bias = torch.randn(2, 6, *[9] * dims), torch.randn(8, 3, *[3] * dims), torch.randn(8)
    stride, padding, dilation = [2] * dims, [1] * dims, list(range(1, dims + 1))
    packed = torch.ops.quincunx.pack_convolution_weight(weight, stride, dilation, groups=2)
    geometry = [*weight.shape, *stride, *padding, *dilation, 2]
    for image in (x, x.transpose(1, -1).contiguous().transpose(1, -1)):
        short = torch.ops.quincunx.packed_convolution(image, packed, bias, geometry)
        options = {"groups": 2, "weight_shape": list(weight.shape)}
        long = torch.ops.quincunx.convolution(image, packed, bias, stride, padding, dilation, **options)
        assert torch.equal(short, long)
        assert short.stride() == long.stride()


def test_packed_convolution_names_a_wrong_geometry():
    x, packed = torch.randn(1, 3, 6, 6), torch.ops.quincunx.pack_convolution_weight(torch.randn(4, 3, 3, 3))
    for geometry, message in (
        ([], "geometry: expected .* 7, 11 or 15 numbers, got 0"),
        ([4, 3, 3, 3, 1, 1, 0, 0, 1, 1], "got 10"),
        ([4, 3, 3, 5, 1, 1, 0, 0, 1, 1, 1], "weight_shape, groups and transposed: expected those"),
        ([4, 3, 3, 3, 0, 1, 0, 0, 1, 1, 1], "stride: expected 1 to"),
        ([4, 3, 3, 3, 1, 1, 0, 0, 1, 1, 0], "weight_shape, groups and transposed: expected those"),
    ):
        with pytest.raises(RuntimeError, match=message):
            torch.ops.quincunx.packed_convolution(x, packed, None, geometry)


def operator_calls():
    """Operator name and arguments, in both memory orders."""
    x, weight = torch.randn(2, 4, 6, 5), torch.randn(6, 2, 3, 3)
    last = x.to(memory_format=torch.channels_last)
    packed = torch.ops.quincunx.pack_convolution_weight(weight, groups=2)
    video = torch.randn(1, 3, 4, 5, 6).to(memory_format=torch.channels_last_3d)
    line = torch.randn(2, 7, 4).transpose(1, 2)
    transposed = (torch.randn(4, 3, 2, 3), None, [2], [1, 0], [], True, [1, 0], 2)
    return [
        ("pack_convolution_weight", (weight, [], [], 2)),
        ("pack_convolution_weight", (torch.randn(64, 64, 3, 3),)),
        ("pack_convolution_weight", (torch.randn(64, 64, 3, 3).transpose(0, 1), [2])),
        ("convolution", (x, weight, torch.randn(6), [2, 1], [1], [], False, [], 2)),
        ("convolution", (last, packed, None, [], [1, 0, 2, 1], [1, 2], False, [], 2, list(weight.shape), "silu")),
        ("convolution", (last, *transposed)),
        ("convolution", (line, torch.randn(5, 4, 3))),
        ("convolution", (x[:, :1], torch.randn(5, 1, 3, 3))),
        ("packed_convolution", (last, packed, torch.randn(6), [*weight.shape, 2, 1, 1, 0, 1, 2, 2])),
        ("causal_convolution", (video, torch.randn(4, 3, 3, 1, 2), None, video[:, :, :2], [1], [0, 1])),
    ]


@pytest.mark.parametrize("index", range(10))
def test_opcheck(index):
    name, arguments = operator_calls()[index]
    opcheck(getattr(torch.ops.quincunx, name).default, arguments)


def test_compiles_into_one_graph():
    weight = torch.randn(6, 4, 3, 3)

    def network(x):
        return torch.ops.quincunx.convolution(x, weight, padding=[1], activation="relu").sum()

    x = torch.randn(2, 4, 6, 5).to(memory_format=torch.channels_last)
    assert torch.equal(torch.compile(network, backend="aot_eager", fullgraph=True)(x), network(x))
