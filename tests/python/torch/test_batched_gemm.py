"""torch.ops.quincunx.batched_gemm and grouped_linear against torch in double precision."""

import pytest
import torch
from quincunx._library import load_operators
from torch.library import opcheck


@pytest.fixture(autouse=True)
def operators():
    load_operators()
    torch.manual_seed(0)


def close(actual, expected, inner):
    # `inner` products of normal numbers: at most as many roundings of sums below 64.
    torch.testing.assert_close(actual.double(), expected, rtol=0, atol=inner * 64 * 2**-24)


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_takes_every_pair_of_transposes(transpose_a, transpose_b):
    a = torch.randn(4, 33, 9).mT if transpose_a else torch.randn(4, 9, 33)
    b = torch.randn(4, 20, 33).mT if transpose_b else torch.randn(4, 33, 20)
    close(torch.ops.quincunx.batched_gemm(a, b), a.double() @ b.double(), 33)


def test_expanded_batches_share_a_matrix():
    a, b = torch.randn(5, 6, 7), torch.randn(7, 8)
    close(torch.ops.quincunx.batched_gemm(a, b.expand(5, 7, 8)), a.double() @ b.double(), 7)


def test_applies_the_epilogue():
    a, b, bias, residual = torch.randn(2, 3, 5), torch.randn(2, 5, 4), torch.randn(2, 4), torch.randn(2, 3, 4)
    row_scale = torch.randn(2, 3)
    y = torch.ops.quincunx.batched_gemm(a, b, bias, "silu", residual, 0.5, row_scale)
    expected = torch.nn.functional.silu(0.5 * (a.double() @ b.double()) + bias.double()[:, None])
    close(y, row_scale.double()[..., None] * expected + residual.double(), 50)


def test_grouped_linear_takes_the_weight_of_each_expert():
    weight, bias, x = torch.randn(3, 20, 33), torch.randn(3, 20), torch.randn(9, 33)
    packed = torch.ops.quincunx.pack_grouped_weight(weight)
    offsets, row_scale = [0, 4, 4, 9], torch.rand(9)
    y = torch.ops.quincunx.grouped_linear(x, packed, 20, offsets, bias, "relu", row_scale)
    experts = [0] * 4 + [2] * 5
    expected = torch.stack([weight[e].double() @ row.double() + bias[e] for e, row in zip(experts, x, strict=True)])
    close(y, expected.relu() * row_scale.double()[:, None], 33)


def test_bad_input_names_the_argument():
    with pytest.raises(RuntimeError, match="a: expected 6 columns"):
        torch.ops.quincunx.batched_gemm(torch.randn(2, 3, 5), torch.randn(2, 6, 4))
    with pytest.raises(RuntimeError, match="expected three dimensions"):
        torch.ops.quincunx.batched_gemm(torch.randn(3, 5), torch.randn(2, 5, 4))
    packed = torch.ops.quincunx.pack_grouped_weight(torch.randn(2, 4, 5))
    with pytest.raises(RuntimeError, match="offsets: expected 0 first and 3"):
        torch.ops.quincunx.grouped_linear(torch.randn(3, 5), packed, 4, [0, 1, 2])
    with pytest.raises(RuntimeError, match="packed: expected the"):
        torch.ops.quincunx.grouped_linear(torch.randn(3, 5), packed, 4, [0, 3])
    given = "got what pack_grouped_weight gives for \\[2, 4, 5\\]"
    with pytest.raises(RuntimeError, match="packed: expected .* \\[2, 3, 5\\], " + given):
        torch.ops.quincunx.grouped_linear(torch.randn(3, 5), packed, 3, [0, 1, 3])
    with pytest.raises(RuntimeError, match="packed: expected .* \\[1, 32, 5\\], " + given):
        torch.ops.quincunx.grouped_linear(torch.randn(3, 5), packed, 32, [0, 3])
    with pytest.raises(RuntimeError, match="weight: expected"):
        torch.ops.quincunx.pack_grouped_weight(torch.randn(4, 5))


def test_compilers_see_the_operators_as_they_are():
    weight = torch.randn(2, 4, 5)
    packed = torch.ops.quincunx.pack_grouped_weight(weight)
    opcheck(torch.ops.quincunx.batched_gemm.default, (torch.randn(2, 3, 5), torch.randn(2, 5, 4)))
    opcheck(torch.ops.quincunx.pack_grouped_weight.default, (weight,))
    opcheck(torch.ops.quincunx.grouped_linear.default, (torch.randn(3, 5), packed, 4, [0, 1, 3]))
