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


def test_bad_input_names_the_argument():
    query, key = torch.randn(1, 4, 5, 8), torch.randn(1, 3, 5, 8)
    with pytest.raises(RuntimeError, match="INVALID_ARGUMENT: key: expected a number of heads"):
        torch.ops.quincunx.attention(query, key, key)
    with pytest.raises(RuntimeError, match="TYPE_ERROR: value: expected the dtype of query, float32"):
        torch.ops.quincunx.attention(query, query, query.half())
    with pytest.raises(RuntimeError, match="key_lengths\\[0\\]: expected 0 to the 5 keys, got 6"):
        torch.ops.quincunx.attention(query, query, query, key_lengths=[6])
