"""torch.ops.quincunx.attention and variable_length_attention against torch's attention in double precision."""

import pytest
import torch
from quincunx._library import load_operators
from torch.nn.functional import scaled_dot_product_attention

# Scores are sums of at most 64 products below 64: 6 sqrt(64) 2^-24 * 64 / 8 relative in a weight, twice that in a mean.
TOLERANCE = 2 * 6 * 8 * 8 * 2**-24


@pytest.fixture(autouse=True)
def operators():
    load_operators()
    torch.manual_seed(0)


def close(actual, expected):
    torch.testing.assert_close(actual.double(), expected, rtol=0, atol=4 * TOLERANCE)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [1, 7, 130])
@pytest.mark.parametrize("key_heads", [4, 2, 1])
def test_equals_torch(causal, length, key_heads):
    query = torch.randn(2, 4, length, 64)
    key, value = torch.randn(2, key_heads, length, 64), torch.randn(2, key_heads, length, 64)
    output, lse = torch.ops.quincunx.attention(query, key, value, causal=causal)
    expected = scaled_dot_product_attention(
        query.double(), key.double(), value.double(), is_causal=causal, enable_gqa=True
    )
    close(output, expected)
    assert lse.shape == (2, 4, length)


def test_log_sum_exp_and_scale():
    query, key, value = torch.randn(1, 2, 5, 16), torch.randn(1, 2, 9, 16), torch.randn(1, 2, 9, 3)
    output, lse = torch.ops.quincunx.attention(query, key, value, scale=0.5)
    scores = 0.5 * query.double() @ key.double().transpose(-1, -2)
    close(lse, scores.logsumexp(-1))
    close(output, scores.softmax(-1) @ value.double())


def test_causal_with_a_cache_aligns_the_last_query_with_the_last_key():
    query, key, value = torch.randn(1, 2, 3, 16), torch.randn(1, 2, 8, 16), torch.randn(1, 2, 8, 16)
    output, _ = torch.ops.quincunx.attention(query, key, value, causal=True)
    mask = torch.ones(3, 8, dtype=torch.bool).tril(8 - 3)
    close(output, scaled_dot_product_attention(query.double(), key.double(), value.double(), attn_mask=mask))


def test_key_lengths_mask_padding_and_empty_rows_are_zero():
    query, key, value = (torch.randn(3, 2, 20, 32) for _ in range(3))
    output, lse = torch.ops.quincunx.attention(query, key, value, key_lengths=[20, 0, 11])
    for item, length in ((0, 20), (2, 11)):
        q, k, v = query[item].double(), key[item, :, :length].double(), value[item, :, :length].double()
        close(output[item], scaled_dot_product_attention(q, k, v))
    assert torch.count_nonzero(output[1]) == 0
    assert torch.all(lse[1] == float("-inf"))


def test_transposed_projections_keep_their_memory_order():
    query, key, value = (torch.randn(2, 10, 4, 16).transpose(1, 2) for _ in range(3))
    output, _ = torch.ops.quincunx.attention(query, key, value)
    assert output.stride() == query.stride()
    close(output, scaled_dot_product_attention(query.double(), key.double(), value.double()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("head_dim", [3, 64])
def test_half_precision_is_the_float_result_rounded_once(dtype, head_dim):
    query, key, value = (torch.randn(2, 4, 130, head_dim, dtype=dtype).transpose(2, 3).contiguous() for _ in range(3))
    query, key, value = (x.transpose(2, 3) for x in (query, key, value))
    output, lse = torch.ops.quincunx.attention(query, key, value, causal=True)
    expected, expected_lse = torch.ops.quincunx.attention(query.float(), key.float(), value.float(), causal=True)
    assert output.dtype == dtype
    assert torch.equal(output, expected.to(dtype))
    assert torch.equal(lse, expected_lse)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_packed_sequences_have_the_bits_they_have_alone(causal, dtype):
    query_lengths, key_lengths = [5, 0, 130, 1], [7, 3, 130, 0]
    query_starts, key_starts = (torch.tensor([0, *lengths]).cumsum(0) for lengths in (query_lengths, key_lengths))
    query = torch.randn(sum(query_lengths), 4, 16, dtype=dtype)
    key, value = torch.randn(sum(key_lengths), 2, 16, dtype=dtype), torch.randn(sum(key_lengths), 2, 9, dtype=dtype)
    output, lse = torch.ops.quincunx.variable_length_attention(
        query, key, value, query_starts, key_starts.to(torch.int32), causal=causal
    )
    assert output.shape == (136, 4, 9) and lse.shape == (4, 136)
    for q, k in zip(query_starts.unfold(0, 2, 1).tolist(), key_starts.unfold(0, 2, 1).tolist(), strict=True):
        alone = [x[a:b].transpose(0, 1)[None] for x, (a, b) in ((query, q), (key, k), (value, k))]
        expected, expected_lse = torch.ops.quincunx.attention(*alone, causal=causal)
        assert torch.equal(output[q[0] : q[1]].transpose(0, 1), expected[0])
        assert torch.equal(lse[:, q[0] : q[1]], expected_lse[0])


def test_packed_sequences_must_start_where_tensors_do():
    packed, starts = torch.randn(6, 2, 8), torch.tensor([0, 2, 6])
    operator = torch.ops.quincunx.variable_length_attention
    with pytest.raises(RuntimeError, match="query_starts: expected numbers from 0 to the 6 rows"):
        operator(packed, packed, packed, torch.tensor([0, 5]), starts)
    with pytest.raises(RuntimeError, match="key_starts\\[2\\]: expected 7 or more, the start before it, got 6"):
        operator(packed, packed, packed, starts, torch.tensor([0, 7, 6]))
    with pytest.raises(RuntimeError, match="key_starts: expected as many numbers as query_starts, 3, got 2"):
        operator(packed, packed, packed, starts, torch.tensor([0, 6]))
    with pytest.raises(RuntimeError, match="query: expected 3 dimensions"):
        operator(packed[0], packed, packed, starts, starts)


def gradients_of(function, *inputs):
    """Of a weighted sum of the outputs, with respect to query, key and value."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    outputs = function(*leaves)
    weights = [torch.randn(y.shape, generator=torch.Generator().manual_seed(i)) for i, y in enumerate(outputs)]
    sum((y * w.to(y)).sum() for y, w in zip(outputs, weights, strict=True)).backward()
    return [x.grad for x in leaves]


def by_scores(query, key, value, mask=None):
    scores = (
        query @ key.repeat_interleave(query.shape[1] // key.shape[1], 1).transpose(-1, -2) * query.shape[-1] ** -0.5
    )
    if mask is not None:
        scores = scores + mask
    return scores.softmax(-1) @ value.repeat_interleave(query.shape[1] // key.shape[1], 1), scores.logsumexp(-1)


# Gradients are sums of at most 300 products of weights, means and values below 5, each as exact as a weight.
GRADIENT_TOLERANCE = 4 * 300**0.5 * 25 * TOLERANCE


@pytest.mark.parametrize("masked", [False, True])
def test_gradients_equal_those_of_the_formula(masked):
    query, key, value = torch.randn(2, 4, 50, 16), torch.randn(2, 2, 130, 16), torch.randn(2, 2, 130, 9)
    mask = torch.randn(50, 130) if masked else None
    whole = None if mask is None else mask.expand(2, 4, 50, 130)
    actual = gradients_of(lambda *x: torch.ops.quincunx.attention(*x, attn_mask=whole), query, key, value)
    expected = gradients_of(
        lambda *x: by_scores(*x, None if mask is None else mask.double()),
        *(x.double() for x in (query, key, value)),
    )
    for a, b in zip(actual, expected, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=0, atol=GRADIENT_TOLERANCE)


def test_gradients_of_packed_sequences_equal_those_of_each_alone():
    starts = torch.tensor([0, 5, 40])
    query, key, value = torch.randn(40, 4, 16), torch.randn(40, 2, 16), torch.randn(40, 2, 16)
    actual = gradients_of(
        lambda *x: torch.ops.quincunx.variable_length_attention(*x, starts, starts, causal=True)[:1], query, key, value
    )

    def one_by_one(*packed):
        parts = [[x[a:b].transpose(0, 1)[None] for x in packed] for a, b in ((0, 5), (5, 40))]
        outputs = [scaled_dot_product_attention(*p, is_causal=True, enable_gqa=True) for p in parts]
        return (torch.cat([y[0].transpose(0, 1) for y in outputs]),)

    expected = gradients_of(one_by_one, *(x.double() for x in (query, key, value)))
    for a, b in zip(actual, expected, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=0, atol=GRADIENT_TOLERANCE)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_gradients_are_those_of_the_float_tensors_rounded(dtype):
    query, key, value = (torch.randn(1, 2, 30, 8, dtype=dtype) for _ in range(3))
    actual = gradients_of(lambda *x: torch.ops.quincunx.attention(*x, causal=True)[:1], query, key, value)
    expected = gradients_of(
        lambda *x: torch.ops.quincunx.attention(*x, causal=True)[:1], query.float(), key.float(), value.float()
    )
    for a, b in zip(actual, expected, strict=True):
        assert a.dtype == dtype
        # The output of the forward pass, and the weights of its sum, are rounded once too.
        torch.testing.assert_close(a.float(), b, rtol=0, atol=8 * torch.finfo(dtype).eps)


def test_second_derivatives_are_refused():
    query = torch.randn(1, 1, 3, 8, requires_grad=True)
    output, _ = torch.ops.quincunx.attention(query, query, query)
    (gradient,) = torch.autograd.grad(output.sum(), query, create_graph=True)
    with pytest.raises(NotImplementedError, match="second derivative"):
        gradient.sum().backward()


def test_gradients_can_be_compiled():
    def loss(query, key, value):
        return torch.ops.quincunx.attention(query, key, value, causal=True)[0].square().sum()

    leaves = [torch.randn(1, 2, 9, 8, requires_grad=True) for _ in range(3)]
    expected = torch.autograd.grad(loss(*leaves), leaves)
    actual = torch.autograd.grad(torch.compile(loss, fullgraph=True, backend="aot_eager")(*leaves), leaves)
    for a, b in zip(actual, expected, strict=True):
        assert torch.equal(a, b)


def test_bad_input_names_the_argument():
    query, key = torch.randn(1, 4, 5, 8), torch.randn(1, 3, 5, 8)
    with pytest.raises(RuntimeError, match="INVALID_ARGUMENT: key: expected a number of heads"):
        torch.ops.quincunx.attention(query, key, key)
    with pytest.raises(RuntimeError, match="TYPE_ERROR: value: expected the dtype of query, float32"):
        torch.ops.quincunx.attention(query, query, query.half())
    with pytest.raises(RuntimeError, match="key_lengths\\[0\\]: expected 0 to the 5 keys, got 6"):
        torch.ops.quincunx.attention(query, query, query, key_lengths=[6])
