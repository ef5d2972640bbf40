"""Edges that converted models have been wrong about elsewhere. The right values stand here or are computed in f64."""

import math

import pytest
import torch
import torch.nn.functional as F
from quincunx._graph import import_graph
from quincunx.lite.session import Session

NAN, INF = float("nan"), float("inf")
# Sums of a few f32 products.
RTOL, ATOL = 1e-5, 1e-6


class Function(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def run(function, *inputs):
    program = torch.export.export(Function(function).eval(), inputs, strict=False)
    return Session(import_graph(program).graph).run(*inputs)


def assert_equal(got, want):
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(
            a, b.to(a.dtype) if b.dtype == torch.float64 else b, rtol=RTOL, atol=ATOL, equal_nan=True
        )


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_floor_and_truncation_of_negative_integers_differ(dtype):
    a, b = [8, -8, 7, -7, -1, 0], [-3, 3, -2, 2, 5, -4]
    got = run(
        lambda x, y: (x // y, torch.div(x, y, rounding_mode="trunc"), x % y, torch.fmod(x, y)),
        torch.tensor(a, dtype=dtype),
        torch.tensor(b, dtype=dtype),
    )
    want = [
        [x // y for x, y in zip(a, b, strict=True)],
        [math.trunc(x / y) for x, y in zip(a, b, strict=True)],
        [x % y for x, y in zip(a, b, strict=True)],
        [int(math.fmod(x, y)) for x, y in zip(a, b, strict=True)],
    ]
    assert [value.tolist() for value in got] == want
    assert all(value.dtype == dtype for value in got)


def test_nan_passes_through_and_zero_vectors_stay_what_they_are():
    x = torch.tensor([[1.0, NAN, 3.0], [0.5, -1.0, 2.0]])
    z = torch.tensor([[5.0, 12.0], [0.0, 0.0]])
    got = run(
        lambda x, z, hidden: (
            x.max(),
            x.amax(-1),
            x.argmax(-1),
            x.clamp(0, 1),
            F.relu(x),
            F.normalize(z, dim=-1),
            z / z.norm(dim=-1, keepdim=True),
            torch.softmax(hidden, -1),
        ),
        x,
        z,
        torch.full((2, 4), -INF),
    )
    unit = [5 / 13, 12 / 13]
    want = [
        torch.tensor(NAN),
        torch.tensor([NAN, 2.0]),
        torch.tensor([1, 2]),
        torch.tensor([[1.0, NAN, 1.0], [0.5, 0.0, 1.0]]),
        torch.tensor([[1.0, NAN, 3.0], [0.5, 0.0, 2.0]]),
        torch.tensor([unit, [0.0, 0.0]]),
        torch.tensor([unit, [NAN, NAN]]),
        torch.full((2, 4), NAN),
    ]
    assert_equal(got, want)


def test_a_query_that_sees_no_key_gives_zeros():
    q = torch.randn(1, 2, 9, 8, generator=torch.Generator().manual_seed(0))
    mask = torch.ones(9, 9, dtype=torch.bool)
    mask[3] = False
    added = torch.zeros(9, 9).masked_fill(~mask, -INF)
    got = run(
        lambda q, m, a: (
            F.scaled_dot_product_attention(q, q, q, attn_mask=m),
            F.scaled_dot_product_attention(q, q, q, attn_mask=a),
        ),
        q,
        mask,
        added,
    )
    scores = (q.double() @ q.double().mT / math.sqrt(8)).masked_fill(~mask, -INF)
    want = torch.softmax(scores, -1).nan_to_num(nan=0.0) @ q.double()
    assert_equal(got, [want, want])
    assert not got[0][0, :, 3].any()


def test_scalars_casts_and_negative_amounts():
    x = torch.arange(1.0, 13.0).reshape(3, 4)
    a, b = torch.tensor([6.0, 3.0, 8.25]).half(), torch.tensor([0.2, 0.1, 0.55]).half()
    got = run(
        lambda x, s, a, b, c, r: (
            x.max() - (x.max() - 1.0),
            x.sum(),
            s * 2 + 1,
            torch.narrow_copy(x, -1, 1, 2),
            torch.narrow_copy(x, -1, 0, 0),
            F.pad(x, (-1, 2), value=7.0),
            torch.div(a, b, rounding_mode="trunc"),
            c.to(torch.uint8),
            torch.round(r),
        ),
        x,
        torch.tensor(3.0),
        a,
        b,
        torch.tensor([1.7, 255.0, 0.2]),
        torch.tensor([0.5, 1.5, 2.5, -0.5, -2.5]),
    )
    want = [
        torch.tensor(1.0),
        torch.tensor(78.0),
        torch.tensor(7.0),
        x[:, 1:3],
        x[:, :0],
        torch.cat([x[:, 1:], torch.full((3, 2), 7.0)], 1),
        torch.trunc((a.double() / b.double()).half()),
        torch.tensor([1, 255, 0], dtype=torch.uint8),
        torch.tensor([0.0, 2.0, 2.0, -0.0, -2.0]),
    ]
    assert_equal(got, want)


def test_windows_and_pads_that_hang_over_the_edge():
    generator = torch.Generator().manual_seed(0)
    image, line = torch.randn(1, 1, 6, 6, generator=generator), torch.randn(1, 2, 8, generator=generator)
    grid = torch.rand(1, 3, 3, 2, generator=generator) * 3 - 1.5
    short, kernel = torch.randn(1, 2, 5, generator=generator), torch.randn(2, 3, 3, generator=generator)

    def function(image, line, grid, short, kernel):
        return (
            F.avg_pool2d(image, 3, 2, 1, ceil_mode=True, count_include_pad=True),
            F.avg_pool2d(image, 3, 2, 1, ceil_mode=True, count_include_pad=False),
            F.max_pool2d(image, 3, 2, 1, ceil_mode=True),
            F.pad(line, (2, 3), mode="reflect"),
            F.pad(line, (2, 3), mode="circular"),
            F.pad(line, (-1, 2), mode="replicate"),
            F.conv_transpose1d(short, kernel, stride=2, padding=1, output_padding=1, dilation=2),
            F.grid_sample(image, grid, align_corners=False, padding_mode="reflection"),
        )

    inputs = (image, line, grid, short, kernel)
    assert_equal(run(function, *inputs), function(*(value.double() for value in inputs)))
