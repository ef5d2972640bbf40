"""boost.attention against dense attention in double precision, and what it says about bad input."""

import math

import pytest
import torch
from boost.reference import masked_attention
from hypothesis import given, settings
from hypothesis import strategies as st
from quincunx.boost import attention

INFINITY = math.inf
# As in test_rain_fusion: 6 sqrt(D) 2^-24 of |q| |k| / sqrt(D) below 30, twice that of values below 5.
ATOL = 2 * 6 * 30 * 5 * 2**-24


def expected(query, key, value, attn_mask=None, is_causal=False, scale=None):
    queries, keys = query.shape[2], key.shape[2]
    seen = torch.ones(queries, keys, dtype=torch.bool)
    if is_causal:
        seen = seen.tril()
    bias = 0
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        seen = seen & attn_mask
    elif attn_mask is not None:
        hidden = attn_mask == -INFINITY
        seen, bias = seen & ~hidden, attn_mask.double().masked_fill(hidden, 0)
    return masked_attention(query, key, value, seen, scale, bias)[0]


def check(query, key, value, atol=ATOL, **options):
    actual = attention(query, key, value, **options)
    assert actual.dtype == query.dtype
    torch.testing.assert_close(
        actual.double(), expected(query, key, value, **options), rtol=0, atol=atol, equal_nan=True
    )


@settings(max_examples=60, deadline=None)
@given(
    batch=st.integers(0, 2),
    key_heads=st.integers(1, 2),
    group=st.integers(1, 3),
    queries=st.integers(0, 200),
    keys=st.integers(0, 200),
    head_dim=st.sampled_from([1, 8, 40, 80]),
    value_dim=st.sampled_from([1, 16, 40]),
    masking=st.sampled_from(["none", "causal", "bool", "bias", "row", "column", "padding", "transposed"]),
    seed=st.integers(0, 2**31),
)
def test_equals_dense_attention(batch, key_heads, group, queries, keys, head_dim, value_dim, masking, seed):
    torch.manual_seed(seed)
    query = torch.randn(batch, queries, key_heads * group, head_dim).transpose(1, 2)
    key, value = torch.randn(batch, key_heads, keys, head_dim), torch.randn(batch, key_heads, keys, value_dim)
    shape = (batch, key_heads * group, queries, keys)
    mask = {
        "none": None,
        "causal": None,
        "bool": torch.rand(shape) < 0.5,
        "bias": torch.randn(shape).masked_fill(torch.rand(shape) < 0.3, -INFINITY),
        "row": torch.randn(1, 1, 1, keys),
        "column": torch.rand(queries, 1) < 0.7,
        "padding": (torch.arange(keys) < torch.randint(keys + 1, (batch, 1)))[:, None, None],
        "transposed": (torch.rand(keys, queries) < 0.6).t(),
    }[masking]
    check(query, key, value, attn_mask=mask, is_causal=masking == "causal")


def edges():
    torch.manual_seed(0)
    n = 700
    q, k, v = torch.randn(3, 1, 2, n, 16)
    window = torch.zeros(n, n).masked_fill(
        ~torch.ones(n, n).tril().bool() | torch.ones(n, n).tril(-10).bool(), -INFINITY
    )
    dead = torch.ones(n, n, dtype=torch.bool)
    dead[5] = dead[600] = False
    nan_query, nan_key = q.clone(), k.clone()
    nan_query[0, 0, 3, 2] = nan_key[0, 1, 3, 2] = math.nan
    shared = [t[:, :1, :33].expand(1, 2, 33, 16) for t in (k, v)]
    return {
        "a window of -inf over several blocks": (q, k, v, {"attn_mask": window}),
        "rows without any key": (q, k, v, {"attn_mask": dead}),
        "NaN in a query": (nan_query, k, v, {}),
        "NaN in a key": (q, nan_key, v, {}),
        "one query": (q[:, :, :1], k, v, {}),
        "no keys": (q[:, :, :4], k[:, :, :0], v[:, :, :0], {}),
        "causal, more queries than keys": (q[:, :, :5], k[:, :, :3], v[:, :, :3], {"is_causal": True}),
        "causal, more keys than queries": (q[:, :, :3], k[:, :, :5], v[:, :, :5], {"is_causal": True}),
        "keys shared by a stride of 0": (q[:, :, :65], *shared, {}),
        "every second column": (q[..., ::2], k[..., ::2], v[..., ::2], {}),
        "values wider than keys": (q, k, torch.randn(1, 2, n, 24), {}),
        "a scale": (q, k, v, {"scale": -0.3}),
    }


@pytest.mark.parametrize("case", edges())
def test_edges(case):
    query, key, value, options = edges()[case]
    check(query, key, value, **options)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32_and_rounded_once(dtype):
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 2, 150, 16).to(dtype)
    mask = torch.randn(150, 150).to(dtype)
    half = attention(60 * q, 60 * k, v, attn_mask=mask)
    assert half.dtype == dtype
    exact = attention((60 * q).float(), (60 * k).float(), v.float(), attn_mask=mask.float())
    assert torch.equal(half, exact.to(dtype))
    # Scores of up to 60^2 * 30 in size: the error of a score, and so of a weight, grows with them.
    check(60 * q, 60 * k, v, atol=3600 * ATOL + 4 * torch.finfo(dtype).eps, attn_mask=mask)


def test_a_hidden_score_may_be_nan():
    q, k, v = torch.randn(3, 1, 1, 40, 8)
    poisoned = k.clone()
    poisoned[:, :, 7] = math.nan
    seen = torch.arange(40) != 7
    for mask in (seen, torch.zeros(40).masked_fill(~seen, -INFINITY)):
        assert torch.equal(attention(q, poisoned, v, attn_mask=mask), attention(q, k, v, attn_mask=mask))


def test_layouts_are_the_same_attention():
    q, k, v = torch.randn(3, 2, 30, 4, 8)
    turned = [t.transpose(1, 2) for t in (q, k, v)]
    assert torch.equal(attention(q, k, v, layout="BSND"), attention(*turned).transpose(1, 2))


@pytest.mark.parametrize("masking", ["none", "causal", "rows"])
def test_gradients_are_those_of_dense_attention(masking):
    torch.manual_seed(0)
    tensors = [torch.randn(1, 2, 49, 16, requires_grad=True) for _ in range(3)]
    mask = torch.ones(49, 49, dtype=torch.bool)
    mask[7, 1:] = False
    options = {"none": {}, "causal": {"is_causal": True}, "rows": {"attn_mask": mask}}[masking]
    weight = torch.randn(1, 2, 16, 49).mT
    actual = torch.autograd.grad((attention(*tensors, **options) * weight).sum(), tensors)
    doubles = [t.detach().double().requires_grad_() for t in tensors]
    reference = torch.autograd.grad((expected(*doubles, **options) * weight).sum(), doubles)
    for ours, theirs in zip(actual, reference, strict=True):
        # Three uses of a weight (see test_gradients), sums over 49 rows.
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=3 * 6 * 30 * 25 * 6 * 2**-24)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_lowest_number_hides_as_minus_infinity_does(dtype):
    q, k, v = torch.randn(3, 1, 2, 20, 16)
    seen = torch.ones(20, 20, dtype=torch.bool).tril().index_fill(0, torch.tensor([4]), False)
    lowest = torch.zeros(20, 20, dtype=dtype).masked_fill(~seen, torch.finfo(dtype).min)
    assert torch.equal(attention(q, k, v, attn_mask=lowest), attention(q, k, v, attn_mask=seen))
    q.requires_grad_()
    (grad,) = torch.autograd.grad(attention(q, k, v, attn_mask=lowest).sum(), q)
    assert grad.isfinite().all() and torch.count_nonzero(grad[:, :, 4]) == 0


def test_compiles_without_graph_breaks():
    q, k, v = torch.randn(3, 1, 2, 20, 8)
    mask = torch.rand(20, 20) < 0.5
    compiled = torch.compile(lambda *t: attention(*t, attn_mask=mask) + 1, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(q, k, v), attention(q, k, v, attn_mask=mask) + 1)


BAD = {
    "rank": ({"query": torch.randn(4, 8)}, ValueError, "query: expected 4 dimensions"),
    "dtype": ({"key": torch.randn(1, 2, 9, 8).double()}, TypeError, "key: expected a float32, bfloat16 or float16"),
    "dtypes": ({"value": torch.randn(1, 2, 9, 8).half()}, TypeError, "value: expected the dtype of query"),
    "heads": ({"query": torch.randn(1, 3, 9, 8)}, ValueError, "key: expected a number of heads"),
    "layout": ({"layout": "SBND"}, ValueError, "layout: expected one of BNSD, BSND, got 'SBND'"),
    "causal": ({"is_causal": 1}, TypeError, "is_causal: expected True or False, got 1"),
    "scale": ({"scale": math.nan}, ValueError, "scale: expected a finite number"),
    "mask": ({"attn_mask": torch.ones(9, 8)}, ValueError, "attn_mask: expected a shape that broadcasts to"),
    "mask of too many": (
        {"attn_mask": torch.ones(1, 1, 1, 9, 9)},
        ValueError,
        "attn_mask: expected a shape that broad",
    ),
    "two masks": (
        {"attn_mask": torch.ones(9, 9), "is_causal": True},
        ValueError,
        "attn_mask: expected none together with is_causal",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_names_the_argument(case):
    change, error, message = BAD[case]
    good = dict(zip(("query", "key", "value"), torch.randn(3, 1, 2, 9, 8), strict=True))
    attention(**good)
    with pytest.raises(error, match=message):
        attention(**(good | change))
