"""rain_fusion_attention against dense attention under the same mask, in double precision."""

import pytest
import torch
from boost.reference import lists_of, masked_attention, token_mask
from hypothesis import given, settings
from hypothesis import strategies as st
from quincunx.boost import rain_fusion_attention

# Unit normals: scores are sums of D products, rounded to 6 sqrt(D) 2^-24 of |q| |k| / sqrt(D) (6 deviations), below 30
# here; that relative change of the weights moves a mean of values below 5 by at most twice as much.
ATOL = 2 * 6 * 30 * 5 * 2**-24


@st.composite
def problems(draw):
    key_heads = draw(st.sampled_from([1, 2, 3]))
    return {
        "batch": draw(st.integers(1, 2)),
        "key_heads": key_heads,
        "heads": key_heads * draw(st.sampled_from([1, 2])),
        "queries": draw(st.integers(1, 300)),
        "keys": draw(st.integers(1, 300)),
        "head_dim": draw(st.sampled_from([8, 32, 40, 72, 80, 128])),
        "value_dim": draw(st.sampled_from([16, 40, 72])),
        "blocks": (draw(st.integers(16, 128)), draw(st.integers(16, 128))),
        "density": draw(st.sampled_from([0.0, 0.2, 0.5, 1.0])),
        "causal": draw(st.booleans()),
        "seed": draw(st.integers(0, 2**31)),
    }


def tensors(p):
    torch.manual_seed(p["seed"])
    query = torch.randn(p["batch"], p["queries"], p["heads"], p["head_dim"]).transpose(1, 2)
    key = torch.randn(p["batch"], p["key_heads"], p["keys"], p["head_dim"])
    value = torch.randn(p["batch"], p["key_heads"], p["keys"], p["value_dim"])
    shape = (p["batch"], -(-p["queries"] // p["blocks"][0]), p["heads"], -(-p["keys"] // p["blocks"][1]))
    return query, key, value, torch.rand(shape) < p["density"]


@settings(max_examples=60, deadline=None)
@given(problems())
def test_any_lists_equal_masked_dense_attention(p):
    query, key, value, blocks = tensors(p)
    idx, num = lists_of(blocks)
    output, lse = rain_fusion_attention(query, key, value, idx, num, p["blocks"], causal=p["causal"])
    mask = token_mask(blocks, *p["blocks"], p["queries"], p["keys"])
    if p["causal"]:
        mask = mask & torch.ones(p["queries"], p["keys"], dtype=torch.bool).tril(p["keys"] - p["queries"])
    expected, expected_lse = masked_attention(query, key, value, mask)
    torch.testing.assert_close(output.double(), expected, rtol=0, atol=ATOL)
    torch.testing.assert_close(lse.double(), expected_lse, rtol=2**-22, atol=ATOL)
    hidden = ~mask.any(-1)
    assert torch.count_nonzero(output[hidden]) == 0
    assert torch.all(lse[hidden] == float("-inf"))


@pytest.mark.parametrize("head_dim", [40, 64, 72, 80, 128])
def test_full_lists_equal_dense_attention(head_dim):
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 1, 2, 300, head_dim)
    idx, num = lists_of(torch.ones(3, 2, 3, dtype=torch.bool))
    output, _ = rain_fusion_attention(query, key, value, idx, num)
    dense = torch.nn.functional.scaled_dot_product_attention(query.double(), key.double(), value.double())
    torch.testing.assert_close(output.double(), dense, rtol=0, atol=2e-6)


def problem(**changes):
    base = {"batch": 2, "key_heads": 2, "heads": 2, "queries": 100, "keys": 130, "head_dim": 24, "value_dim": 16}
    return base | {"blocks": (32, 48), "density": 0.6, "causal": False, "seed": 1} | changes


def test_lists_without_a_batch_serve_every_item():
    query, key, value, blocks = tensors(problem())
    idx, num = lists_of(blocks[0])
    shared, _ = rain_fusion_attention(query, key, value, idx, num, (32, 48))
    each, _ = rain_fusion_attention(query, key, value, torch.stack([idx, idx]), torch.stack([num, num]), (32, 48))
    assert torch.equal(shared, each)


def test_disjoint_lists_merge_to_their_union_by_log_sum_exp():
    query, key, value, blocks = tensors(problem(density=1.0))
    even = blocks & (torch.arange(blocks.shape[-1]) % 2 == 0)
    parts = [rain_fusion_attention(query, key, value, *lists_of(b), (32, 48)) for b in (even, blocks & ~even)]
    union, union_lse = rain_fusion_attention(query, key, value, *lists_of(blocks), (32, 48))
    lse = torch.logaddexp(parts[0][1], parts[1][1])
    merged = sum(out * (part - lse).exp()[..., None] for out, part in parts)
    torch.testing.assert_close(merged, union, rtol=0, atol=ATOL)
    torch.testing.assert_close(lse, union_lse, rtol=2**-22, atol=ATOL)


def test_key_lengths_and_scale():
    query, key, value, blocks = tensors(problem())
    key[1, :, 70:], value[1, :, 70:] = float("nan"), float("inf")
    output, _ = rain_fusion_attention(query, key, value, *lists_of(blocks), (32, 48), scale=0.3, key_lengths=[130, 70])
    mask = token_mask(blocks, 32, 48, 100, 130).clone()
    mask[1, :, :, 70:] = False
    expected, _ = masked_attention(query, key.nan_to_num(), value.nan_to_num(0, 0, 0), mask, 0.3)
    torch.testing.assert_close(output.double(), expected, rtol=0, atol=4 * ATOL)


def test_memory_beside_the_tail_is_not_read():
    query, key, value, blocks = tensors(problem(queries=97))
    room = [torch.full((*t.shape[:2], t.shape[2] + 40, t.shape[3] + 8), float("nan")) for t in (query, key, value)]
    views = []
    for space, tensor in zip(room, (query, key, value), strict=True):
        view = space[:, :, : tensor.shape[2], : tensor.shape[3]]
        views.append(view.copy_(tensor))
    idx, num = lists_of(blocks)
    output, lse = rain_fusion_attention(*views, idx, num, (32, 48))
    expected, expected_lse = rain_fusion_attention(query, key, value, idx, num, (32, 48))
    assert torch.equal(output, expected)
    assert torch.equal(lse, expected_lse)


def test_any_number_of_threads_gives_the_same_bits():
    query, key, value, blocks = tensors(problem())
    before, results = torch.get_num_threads(), []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        results.append(rain_fusion_attention(query, key, value, *lists_of(blocks), (32, 48)))
    torch.set_num_threads(before)
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])


EDGES = {
    "one query": (slice(0, 1), slice(None)),
    "no keys": (slice(0, 4), slice(0, 0)),
    "no queries": (slice(0, 0), slice(None)),
}


@pytest.mark.parametrize("edge", EDGES)
def test_edges_of_dense_attention(edge):
    torch.manual_seed(0)
    rows, columns = EDGES[edge]
    query, key, value = torch.randn(3, 1, 2, 200, 16)
    query, key, value = query[:, :, rows], key[:, :, columns], value[:, :, columns]
    blocks = torch.ones(-(-query.shape[2] // 128), 2, -(-key.shape[2] // 128), dtype=torch.bool)
    output, _ = rain_fusion_attention(query, key, value, *lists_of(blocks))
    mask = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool)
    torch.testing.assert_close(output.double(), masked_attention(query, key, value, mask)[0], rtol=0, atol=ATOL)


def test_shared_stepped_and_nan_inputs():
    torch.manual_seed(0)
    query, key, value = torch.randn(1, 2, 150, 32), torch.randn(1, 1, 150, 32), torch.randn(1, 1, 150, 32)
    key, value = key.expand(1, 2, 150, 32)[..., ::2], value.expand(1, 2, 150, 32)[..., ::2]
    query = query[..., ::2]
    query[0, 0, 3, 2] = float("nan")
    lists = lists_of(torch.ones(2, 2, 2, dtype=torch.bool))
    output, _ = rain_fusion_attention(query, key, value, *lists)
    expected, _ = masked_attention(query, key, value, torch.ones(150, 150, dtype=torch.bool))
    torch.testing.assert_close(output.double(), expected, rtol=0, atol=ATOL, equal_nan=True)
    assert torch.isnan(output).any(-1).sum() == 1


def test_compiles_without_graph_breaks():
    query, key, value, blocks = tensors(problem())
    idx, num = lists_of(blocks)

    def double(q):
        return 2 * rain_fusion_attention(q, key, value, idx, num, (32, 48))[0]

    compiled = torch.compile(double, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(query), double(query))


def test_passes_torchs_operator_check():
    query, key, value, blocks = tensors(problem(queries=20, keys=30))
    idx, num = lists_of(blocks)
    arguments = (query, key, value, idx.transpose(1, 2), num.transpose(1, 2))
    starts = (torch.tensor([0, 20]), torch.tensor([0, 30]))
    torch.library.opcheck(
        torch.ops.quincunx.block_sparse_attention,
        (*arguments, *starts),
        test_utils=("test_schema", "test_faketensor"),
    )


def good():
    query, key, value, blocks = tensors(problem(queries=40, keys=50, density=1.0))
    idx, num = lists_of(blocks)
    return {
        "query": query,
        "key": key,
        "value": value,
        "select_idx": idx,
        "select_num_idx": num,
        "block_shape": (32, 48),
    }


BAD = {
    "rank": (lambda a: a | {"query": a["query"][0]}, ValueError, "query: expected 4 dimensions"),
    "kind": (lambda a: a | {"key": [1]}, TypeError, "key: expected a torch.Tensor, got list"),
    "dtype": (
        lambda a: a | {"value": a["value"].double()},
        TypeError,
        "value: expected a float32, bfloat16 or float16",
    ),
    "dtypes": (lambda a: a | {"value": a["value"].half()}, TypeError, "value: expected the dtype of query"),
    "heads": (lambda a: a | {"key": torch.randn(2, 3, 50, 24)}, ValueError, "key: expected a number of heads"),
    "block_shape": (lambda a: a | {"block_shape": (0, 48)}, ValueError, "block_shape: expected 2 integers"),
    "lists": (lambda a: a | {"select_idx": a["select_idx"][:, :1]}, ValueError, "select_idx: expected 2 query blocks"),
    "counts": (
        lambda a: a | {"select_num_idx": a["select_num_idx"][..., None]},
        ValueError,
        "select_num_idx: expected 2 query blocks",
    ),
    "list dtype": (lambda a: a | {"select_idx": a["select_idx"].int()}, TypeError, "select_idx: expected an int64"),
    "repeated": (
        lambda a: a | {"select_idx": a["select_idx"] * 0},
        ValueError,
        r"select_idx\[0, 0, 0, 1\]: expected rising indices",
    ),
    "unsorted": (
        lambda a: a | {"select_idx": a["select_idx"].flip(-1)},
        ValueError,
        r"select_idx\[0, 0, 0, 1\]: expected rising indices",
    ),
    "range": (lambda a: a | {"select_idx": a["select_idx"] + 1}, ValueError, "expected one of the 2 key blocks, got 2"),
    "causal": (lambda a: a | {"causal": 1}, TypeError, "causal: expected True or False, got 1"),
    "scale": (lambda a: a | {"scale": float("inf")}, ValueError, "scale: expected a finite number"),
    "mask kind": (lambda a: a | {"attn_mask": [True]}, TypeError, "attn_mask: expected a torch.Tensor, got list"),
    "mask dtype": (
        lambda a: a | {"attn_mask": torch.ones(40, 50).long()},
        TypeError,
        "attn_mask: expected bool, float",
    ),
    "mask shape": (
        lambda a: a | {"attn_mask": torch.ones(50, 40)},
        ValueError,
        "attn_mask: expected a shape that broad",
    ),
    "mask gradient": (
        lambda a: a | {"attn_mask": torch.zeros(40, 50, requires_grad=True)},
        NotImplementedError,
        "attn_mask: expected a mask without requires_grad",
    ),
    "key_lengths": (lambda a: a | {"key_lengths": [50]}, ValueError, "key_lengths: expected one for each of the 2"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_names_the_argument(case):
    change, error, message = BAD[case]
    rain_fusion_attention(**good())
    with pytest.raises(error, match=message):
        rain_fusion_attention(**change(good()))
