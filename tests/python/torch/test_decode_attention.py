"""torch.ops.quincunx.decode_attention and paged_decode_attention against torch's attention in double precision."""

import pytest
import torch
from quincunx._library import load_operators
from torch.library import opcheck
from torch.nn.functional import scaled_dot_product_attention

# Scores are sums of at most 64 products below 64: 6 sqrt(64) 2^-24 * 64 / 8 relative in a weight, twice that in a mean.
TOLERANCE = 4 * 2 * 6 * 8 * 8 * 2**-24
# One rounding of a result below 4.
ROUNDING = {torch.float32: 0.0, torch.bfloat16: 4 * 2**-9, torch.float16: 4 * 2**-12}


@pytest.fixture(autouse=True)
def operators():
    load_operators()
    torch.manual_seed(0)


def close(actual, expected, dtype=torch.float32):
    torch.testing.assert_close(actual.double(), expected, rtol=0, atol=TOLERANCE + ROUNDING[dtype])


def expected_of(query, keys, values):
    """The last query sees all keys."""
    tokens, length = query.shape[2], keys.shape[2]
    mask = torch.ones(tokens, length, dtype=torch.bool).tril(length - tokens)
    return scaled_dot_product_attention(query.double(), keys.double(), values.double(), attn_mask=mask, enable_gqa=True)


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("tokens", [1, 3])
@pytest.mark.parametrize("length", [3, 130, 600])
def test_equals_torch(dtype, tokens, length):
    query = torch.randn(2, 4, tokens, 64, dtype=dtype)
    keys, values = torch.randn(2, 2, length, 64, dtype=dtype), torch.randn(2, 2, length, 64, dtype=dtype)
    output, lse = torch.ops.quincunx.decode_attention(query, keys, values)
    assert output.dtype == dtype
    close(output, expected_of(query, keys, values), dtype)
    scores = query[:, :, -1:].double() @ keys.repeat_interleave(2, 1).double().transpose(-1, -2) / 8
    close(lse[..., -1:], scores.logsumexp(-1))


@pytest.mark.parametrize("table_dtype", [torch.int32, torch.int64])
def test_a_paged_cache_gives_the_bits_of_a_contiguous_one(table_dtype):
    page, lengths = 16, torch.tensor([100, 37], dtype=torch.int32)
    query = torch.randn(2, 4, 2, 32)
    # As serving engines keep it, [pages, page, heads, head size], in any order.
    keys_PSHD, values_PSHD = torch.randn(20, page, 2, 32), torch.randn(20, page, 2, 32)
    table = torch.randperm(20)[:14].reshape(2, 7).to(table_dtype)
    output, lse = torch.ops.quincunx.paged_decode_attention(
        query, keys_PSHD.transpose(1, 2), values_PSHD.transpose(1, 2), table, lengths
    )
    for item, length in enumerate(lengths.tolist()):
        keys, values = (x[table[item].long()].flatten(0, 1).transpose(0, 1)[None] for x in (keys_PSHD, values_PSHD))
        close(output[item : item + 1], expected_of(query[item : item + 1], keys[:, :, :length], values[:, :, :length]))
        one, one_lse = torch.ops.quincunx.decode_attention(query[item : item + 1], keys, values, torch.tensor([length]))
        assert torch.equal(output[item : item + 1], one)
        assert torch.equal(lse[item : item + 1], one_lse)


def test_a_float_query_reads_a_half_cache():
    query, keys, values = torch.randn(1, 2, 1, 16), torch.randn(1, 2, 40, 16).half(), torch.randn(1, 2, 40, 8).half()
    output, _ = torch.ops.quincunx.decode_attention(query, keys, values, scale=0.5)
    weights = (0.5 * query.double() @ keys.double().transpose(-1, -2)).softmax(-1)
    close(output, weights @ values.double())


def test_fake_kernels_tell_shapes_and_strides():
    query = torch.randn(2, 3, 4, 16).transpose(1, 2)
    keys, values = torch.randn(2, 2, 9, 16), torch.randn(2, 2, 9, 16)
    lengths = torch.tensor([9, 4])
    ops = torch.ops.quincunx
    opcheck(ops.decode_attention.default, (query, keys, values, lengths))
    opcheck(ops.decode_attention.default, (query.bfloat16(), keys, values[..., :3]))
    pages = torch.randn(3, 2, 9, 16)
    table = torch.tensor([[0], [2]], dtype=torch.int32)
    opcheck(ops.paged_decode_attention.default, (query, pages, pages[..., :5], table, lengths, 0.5))


def test_bad_input_names_the_argument():
    query, keys = torch.randn(1, 4, 1, 8), torch.randn(1, 2, 5, 8)
    ops = torch.ops.quincunx
    with pytest.raises(RuntimeError, match="key_lengths\\[0\\]: expected 0 to the 5 keys, got 6"):
        ops.decode_attention(query, keys, keys, torch.tensor([6]))
    with pytest.raises(RuntimeError, match="TYPE_ERROR: values: expected the dtype of keys"):
        ops.decode_attention(query, keys, keys.half())
    with pytest.raises(RuntimeError, match="TYPE_ERROR: key_lengths: expected an int64 or int32"):
        ops.decode_attention(query, keys, keys, torch.tensor([1.0]))
    with pytest.raises(RuntimeError, match="INVALID_ARGUMENT: values: expected 4 dimensions"):
        ops.decode_attention(query, keys, keys[0])
    with pytest.raises(RuntimeError, match="block_table\\[0, 0\\]: expected one of the 1 pages, got 1"):
        ops.paged_decode_attention(query, keys, keys, torch.tensor([[1]]), torch.tensor([5]))
