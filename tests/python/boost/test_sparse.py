"""sparse_attention: token order, rules, protections and density; every accepted argument counts, any other raises."""

import itertools
import math

import pytest
import torch
from boost.reference import masked_attention
from hypothesis import given, settings
from hypothesis import strategies as st
from quincunx.boost import sparse_attention, top_k_blocks
from quincunx.boost._operators import operators

# As in test_rain_fusion: 6 sqrt(D) 2^-24 of |q| |k| / sqrt(D) below 30, twice that of values below 5.
ATOL = 2 * 6 * 30 * 5 * 2**-24


def tiles_of(latent, tile, text_len=0, text_first=True, first_apart=False):
    """[(coordinates, token indices)] by walking over the grid."""
    offset = text_len if text_first else 0
    edges = []
    for axis, (size, step) in enumerate(zip(latent, tile, strict=True)):
        begin = 1 if axis == 0 and first_apart else 0
        cuts = [*([0] if begin else []), *range(begin, size, step), size]
        edges.append(list(itertools.pairwise(dict.fromkeys(cuts))))
    tiles = []
    for (t, frames), (h, rows), (w, columns) in itertools.product(*(list(enumerate(e)) for e in edges)):
        tokens = [
            offset + (i * latent[1] + j) * latent[2] + k
            for i in range(*frames)
            for j in range(*rows)
            for k in range(*columns)
        ]
        tiles.append(((t, h, w), tokens))
    first_text = 0 if text_first else math.prod(latent)
    for begin in range(0, text_len, math.prod(tile)):
        end = min(text_len, begin + math.prod(tile))
        tiles.append((None, list(range(first_text + begin, first_text + end))))
    return tiles


def token_mask(tiles, keep, tokens):
    """[tokens, tokens] from keep(i, j) of tiles."""
    mask = torch.zeros(tokens, tokens, dtype=torch.bool)
    for i, j in itertools.product(range(len(tiles)), repeat=2):
        if keep(i, j):
            mask[torch.tensor(tiles[i][1])[:, None], torch.tensor(tiles[j][1])] = True
    return mask


def kept_by_topk(q, k, tiles, count, scale=None):
    """The mask [tiles, tiles] of one head by sorting scores of means."""
    means = [torch.stack([t[tokens].double().mean(0) for _, tokens in tiles]) for t in (q, k)]
    scores = means[0] @ means[1].T * (q.shape[-1] ** -0.5 if scale is None else scale)
    order = scores.sort(dim=-1, descending=True, stable=True).indices[:, :count]
    return torch.zeros_like(scores, dtype=torch.bool).scatter(-1, order, True)


def structured(batch, heads, latent, head_dim, text_len=0, seed=0):
    """Queries and keys that resemble each other where they are near in the grid, so that scores of means tell."""
    torch.manual_seed(seed)
    axes = torch.meshgrid(*(torch.arange(n, dtype=torch.float32) for n in latent), indexing="ij")
    position = torch.stack(axes, -1).flatten(0, 2)
    waves = torch.randn(heads, 3, head_dim // 2)
    angles = torch.einsum("sc,hcd->hsd", position, waves * 0.3)
    pattern = torch.cat([angles.cos(), angles.sin()], -1)
    pattern = torch.cat([torch.randn(heads, text_len, head_dim), pattern], 1)
    noise = 0.3 * torch.randn(2, batch, heads, pattern.shape[1], head_dim)
    value = torch.randn(batch, heads, pattern.shape[1], head_dim)
    return pattern + noise[0], pattern + noise[1], value


@settings(max_examples=40, deadline=None)
@given(
    latent=st.tuples(st.integers(1, 5), st.integers(1, 7), st.integers(1, 7)),
    tile=st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 4)),
    text_len=st.integers(0, 9),
    text_first=st.booleans(),
    first_apart=st.booleans(),
)
def test_tiles_are_those_of_the_grid(latent, tile, text_len, text_first, first_apart):
    order, starts, _ = operators.tile_order(latent, tile, text_len, text_first, first_apart)
    blocks = [order[a:b].tolist() for a, b in itertools.pairwise(starts.tolist())]
    assert blocks == [tokens for _, tokens in tiles_of(latent, tile, text_len, text_first, first_apart)]


@settings(max_examples=25, deadline=None)
@given(
    latent=st.tuples(st.integers(1, 4), st.integers(1, 9), st.integers(1, 9)),
    text_len=st.integers(0, 20),
    head_dim=st.sampled_from([8, 40, 72]),
    layout=st.sampled_from(["BNSD", "BSND"]),
    seed=st.integers(0, 99),
)
def test_nothing_left_out_equals_dense_attention(latent, text_len, head_dim, layout, seed):
    torch.manual_seed(seed)
    q, k, v = torch.randn(3, 2, 2, math.prod(latent) + text_len, head_dim)
    dense = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double())
    if layout == "BSND":
        q, k, v, dense = (t.transpose(1, 2).contiguous() for t in (q, k, v, dense))
    result = sparse_attention(
        q, k, v, latent_shape=latent, sparsity=0.0, text_len=text_len, tile=(2, 4, 4), layout=layout
    )
    assert result.density == 1
    torch.testing.assert_close(result.output.double(), dense, rtol=0, atol=2e-6)


@pytest.mark.parametrize("latent", [(3, 6, 8), (2, 5, 7)])
@pytest.mark.parametrize("sparsity", [0.3, 0.5, 0.8])
def test_topk_keeps_the_tiles_with_the_highest_scores_of_each_head_and_item(latent, sparsity):
    q, k, v = structured(2, 3, latent, 16)
    k[1] = k[1].roll(5, dims=1)
    result = sparse_attention(q, k, v, latent_shape=latent, sparsity=sparsity, tile=(1, 3, 4))
    tiles = tiles_of(latent, (1, 3, 4))
    count = math.ceil(len(tiles) * (1 - sparsity) - 1e-9)
    masks = []
    for item, head in itertools.product(range(2), range(3)):
        kept = kept_by_topk(q[item, head], k[item, head], tiles, count)
        masks.append(token_mask(tiles, lambda i, j, kept=kept: kept[i, j], math.prod(latent)))
    mask = torch.stack(masks).unflatten(0, (2, 3))
    assert not torch.equal(mask[0], mask[1]), "the items of this test have masks of their own"
    torch.testing.assert_close(result.output.double(), masked_attention(q, k, v, mask)[0], rtol=0, atol=ATOL)
    assert result.density == pytest.approx(mask.double().mean().item())


def test_topk_finds_where_the_attention_is():
    latent = (4, 8, 8)
    q, k, v = structured(1, 2, latent, 32)
    q = q * 4
    dense = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    errors = []
    for sparsity in (0.25, 0.5, 0.75):
        output, _ = sparse_attention(q, k, v, latent_shape=latent, sparsity=sparsity, tile=(2, 2, 2))
        errors.append((output - dense).norm() / dense.norm())
    assert errors == sorted(errors)
    shifted = k.roll(97, dims=2)
    order, starts, tiles = operators.tile_order(latent, (2, 2, 2), 0, True, False)
    wrong = operators.select_blocks(q, shifted, order, starts, tiles, "topk", 0.5, (0, 0, 0), (0, 0, 0, 0))
    output, _ = operators.block_sparse_attention(q, k, v, *wrong[:2], starts, starts, order)
    assert errors[1] < 0.5 * (output - dense).norm() / dense.norm()


@pytest.mark.parametrize("window", [(0, 0, 0), (1, 0, 1), (0, 1, 2)])
def test_window_keeps_the_neighbours(window):
    latent, tile, text = (4, 5, 6), (2, 2, 2), 5
    q, k, v = structured(1, 2, latent, 16, text)
    result = sparse_attention(q, k, v, latent_shape=latent, rule="window", window=window, tile=tile, text_len=text)
    tiles = tiles_of(latent, tile, text)

    def keep(i, j):
        a, b = tiles[i][0], tiles[j][0]
        return a is None or b is None or all(abs(x - y) <= n for x, y, n in zip(a, b, window, strict=True))

    mask = token_mask(tiles, keep, q.shape[2])
    torch.testing.assert_close(result.output.double(), masked_attention(q, k, v, mask)[0], rtol=0, atol=ATOL)
    assert result.density == pytest.approx(mask.double().mean().item())


def test_cdf_keeps_more_where_attention_is_flat():
    latent = (2, 8, 8)
    q, k, v = structured(1, 1, latent, 16)
    call = {"latent_shape": latent, "rule": "cdf", "cdf_threshold": 0.8, "tile": (1, 2, 4)}
    flat = sparse_attention(q * 0.01, k, v, **call).density
    sharp = sparse_attention(q * 30, k, v, **call).density
    assert sharp < 0.5 * flat
    assert 0.75 <= flat <= 0.85
    assert sparse_attention(q, k, v, **(call | {"cdf_threshold": 1.0})).density == 1


LATENT, TILE, TEXT = (4, 4, 4), (2, 2, 2), 6


def protected(**options):
    q, k, v = structured(1, 1, LATENT, 16, TEXT, seed=3)
    call = {"latent_shape": LATENT, "sparsity": 1.0, "tile": TILE, "text_len": TEXT, "keep_text": False}
    result = sparse_attention(q, k, v, **(call | options))
    return q, k, v, result


@pytest.mark.parametrize(
    ("options", "keep"),
    [
        ({}, lambda i, j, tiles: False),
        ({"keep_text": True}, lambda i, j, tiles: tiles[i][0] is None or tiles[j][0] is None),
        ({"keep_text": None}, lambda i, j, tiles: tiles[i][0] is None or tiles[j][0] is None),
        (
            {"keep_first_frame": True},
            lambda i, j, tiles: any(tiles[n][0] is not None and tiles[n][0][0] == 0 for n in (i, j)),
        ),
        ({"keep_sink": 2}, lambda i, j, tiles: j < 2),
        ({"keep_recent": 2}, lambda i, j, tiles: 0 <= i - j < 2),
        ({"keep_text": True, "text_first": False}, lambda i, j, tiles: tiles[i][0] is None or tiles[j][0] is None),
    ],
    ids=str,
)
def test_protections_keep_exactly_what_they_say(options, keep):
    q, k, v, result = protected(**options)
    tiles = tiles_of(LATENT, TILE, TEXT, options.get("text_first", True), options.get("keep_first_frame", False))
    mask = token_mask(tiles, lambda i, j: keep(i, j, tiles), q.shape[2])
    torch.testing.assert_close(result.output.double(), masked_attention(q, k, v, mask)[0], rtol=0, atol=ATOL)
    assert result.density == pytest.approx(mask.double().mean().item())


def test_protected_blocks_count_among_the_kept():
    q, k, v = structured(1, 2, (4, 4, 4), 16)
    call = {"latent_shape": (4, 4, 4), "sparsity": 0.5, "tile": (2, 2, 2)}
    assert sparse_attention(q, k, v, **call).density == 0.5
    assert sparse_attention(q, k, v, **call, keep_sink=2).density == 0.5


@pytest.mark.parametrize(("count", "sparsity", "kept"), [(10, 0.7, 3), (50, 0.98, 1), (3, 0.999, 1)])
def test_sparsity_is_not_rounded_up_by_floating_point(count, sparsity, kept):
    q, k, v = torch.randn(3, 1, 1, count, 4)
    density = sparse_attention(q, k, v, latent_shape=(1, 1, count), sparsity=sparsity, tile=(1, 1, 1)).density
    assert density == pytest.approx(kept / count)


def test_equal_scores_keep_exactly_the_count():
    q, k, v = torch.ones(3, 1, 1, 64, 8)
    assert sparse_attention(q, k, v, latent_shape=(1, 8, 8), sparsity=0.75, tile=(1, 2, 4)).density == 0.25


def test_key_heads_are_shared_and_the_scale_counts():
    q, k, v = structured(1, 4, (2, 4, 4), 16)
    k, v = k[:, :2], v[:, :2]
    call = {"latent_shape": (2, 4, 4), "tile": (1, 2, 2), "sparsity": 0.5}
    expanded = sparse_attention(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1), **call)
    assert torch.equal(sparse_attention(q, k, v, **call).output, expanded.output)
    scaled = sparse_attention(q, k, v, **(call | {"sparsity": 0.0}), scale=0.7).output
    expected, _ = masked_attention(q, k, v, torch.ones(32, 32, dtype=torch.bool), 0.7)
    torch.testing.assert_close(scaled.double(), expected, rtol=0, atol=ATOL)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32_and_rounded_once(dtype):
    q, k, v = (t.to(dtype) for t in structured(1, 2, (2, 4, 4), 16))
    call = {"latent_shape": (2, 4, 4), "sparsity": 0.5, "tile": (1, 2, 2)}
    half, exact = sparse_attention(q, k, v, **call), sparse_attention(q.float(), k.float(), v.float(), **call)
    assert half.output.dtype == dtype
    assert torch.equal(half.output, exact.output.to(dtype))
    assert half.density == exact.density


@settings(max_examples=30, deadline=None)
@given(
    hidden=st.sets(st.integers(0, 52), max_size=50),
    sparsity=st.sampled_from([0.0, 0.5, 0.8]),
    text_first=st.booleans(),
)
def test_padding_neither_is_seen_nor_chooses_nor_counts(hidden, sparsity, text_first):
    """The text of the second batch item is padded, and whatever else: NaN there changes nothing."""
    latent, tile = (3, 4, 4), (2, 2, 3)
    q, k, v = structured(2, 2, latent, 8, text_len=5)
    mask = torch.ones(2, 53, dtype=torch.bool)
    mask[1, sorted(hidden)] = False
    tiles = tiles_of(latent, tile, 5, text_first)
    count = math.ceil(len(tiles) * (1 - sparsity) - 1e-9)
    expected = torch.zeros(2, 2, 53, 53, dtype=torch.bool)
    used = pairs = 0
    for b, h in itertools.product(range(2), range(2)):
        seen = [(at, [t for t in tokens if mask[b, t]]) for at, tokens in tiles]
        means = [
            torch.stack(
                [x[b, h, tokens].double().mean(0) if tokens else torch.full((8,), math.nan) for _, tokens in seen]
            )
            for x in (q, k)
        ]
        scores = (means[0] @ means[1].T).nan_to_num(nan=-math.inf)
        for i, (at, tokens) in enumerate(tiles):
            order = [j for j, (place, _) in enumerate(tiles) if at is None or place is None]
            ranked = scores[i].sort(descending=True, stable=True).indices.tolist()
            order += [j for j in ranked if j not in order][: max(0, count - len(order))]
            for j in order:
                expected[b, h, torch.tensor(tokens)[:, None], torch.tensor(tiles[j][1])] = True
                used += len(seen[i][1]) * len(seen[j][1])
        pairs += int(mask[b].sum()) ** 2
    expected &= mask[:, None, None]
    hidden_index = ~mask[:, None, :, None]
    call = {"latent_shape": latent, "tile": tile, "text_len": 5, "text_first": text_first, "sparsity": sparsity}
    poisoned = [x.masked_fill(hidden_index, math.nan) for x in (q, k, v)]
    result = sparse_attention(*poisoned, **call, token_mask=mask)
    reference, _ = masked_attention(q, k, v, expected)
    visible = mask[:, None, :, None].expand_as(q)
    torch.testing.assert_close(result.output[visible].double(), reference[visible], rtol=0, atol=ATOL)
    assert result.density.item() == pytest.approx(used / pairs if pairs else 1.0, rel=1e-12)


def test_compiles_without_graph_breaks():
    q, k, v = structured(1, 2, (2, 4, 4), 16)

    def run(q):
        result = sparse_attention(q, k, v, latent_shape=(2, 4, 4), sparsity=0.5, tile=(1, 2, 2))
        return result.output + 1, result.density

    compiled = torch.compile(run, backend="aot_eager", fullgraph=True)
    for actual, expected in zip(compiled(q), run(q), strict=True):
        assert torch.equal(actual, expected)


def test_fake_kernels_agree_with_the_operators():
    q, k, _ = structured(1, 2, (2, 4, 4), 16)
    checks = ("test_schema", "test_faketensor")
    for first_apart in (False, True):
        options = ((5, 4, 3), (2, 2, 2), 9, True, first_apart)
        with torch._subclasses.FakeTensorMode():
            fake = [t.shape for t in operators.tile_order(*options)]
        assert fake == [t.shape for t in operators.tile_order(*options)]
    tiles = operators.tile_order((2, 4, 4), (1, 2, 2), 0, True, False)
    rule = ("topk", 0.5, (0, 0, 0), (0, 0, 0, 0))
    torch.library.opcheck(operators.select_blocks, (q, k, *tiles, *rule), test_utils=checks)
    torch.library.opcheck(operators.top_k_blocks, (torch.randn(3, 4), 2), test_utils=checks)


BAD = [
    ({"layout": "BNS"}, ValueError, "layout: expected one of BNSD, BSND, got 'BNS'"),
    ({"latent_shape": (2, 4)}, ValueError, "latent_shape: expected 3 integers"),
    ({"latent_shape": (2, 4, 5)}, ValueError, r"q: expected 40 tokens \(latent_shape \(2, 4, 5\)"),
    ({"tile": (1, 0, 1)}, ValueError, "tile: expected 3 integers"),
    ({"text_len": -1}, ValueError, "text_len: expected an integer of at least 0, got -1"),
    ({"text_first": True}, ValueError, "text_first: expected none without text"),
    ({"keep_text": True}, ValueError, "keep_text: expected none without text"),
    ({"rule": "best"}, ValueError, "rule: expected one of topk, cdf, window, got 'best'"),
    ({"rule": "cdf"}, ValueError, "sparsity: expected none with rule 'cdf', got 0.5"),
    ({"sparsity": None}, ValueError, "sparsity: expected a value with rule 'topk', got None"),
    ({"cdf_threshold": 0.5}, ValueError, "cdf_threshold: expected none with rule 'topk', got 0.5"),
    ({"window": (1, 1, 1)}, ValueError, "window: expected none with rule 'topk'"),
    ({"rule": "window", "sparsity": None, "window": (1, -1, 1)}, ValueError, "window: expected 3 integers"),
    ({"sparsity": 1.5}, ValueError, "sparsity: expected a number from 0 to 1, got 1.5"),
    ({"sparsity": float("nan")}, ValueError, "sparsity: expected a number from 0 to 1, got nan"),
    ({"keep_first_frame": 1}, TypeError, "keep_first_frame: expected True or False, got 1"),
    ({"keep_sink": -1}, ValueError, "keep_sink: expected an integer of at least 0, got -1"),
    ({"keep_recent": 1.0}, ValueError, "keep_recent: expected an integer of at least 0, got 1.0"),
    ({"scale": float("nan")}, ValueError, "scale: expected a finite number, got nan"),
    ({"attn_mask": None}, TypeError, "attn_mask"),
    ({"token_mask": torch.ones(1, 32)}, TypeError, "token_mask: expected a bool tensor, got torch.float32"),
    ({"token_mask": [True]}, TypeError, "token_mask: expected a bool tensor, got list"),
    ({"token_mask": torch.ones(1, 31).bool()}, ValueError, r"token_mask: expected shape \[1, 32\], got \[1, 31\]"),
]


@pytest.mark.parametrize(("change", "error", "message"), BAD, ids=[str(list(c)) for c, _, _ in BAD])
def test_bad_input_names_the_argument(change, error, message):
    q, k, v = torch.randn(3, 1, 2, 32, 8)
    good = {"latent_shape": (2, 4, 4), "sparsity": 0.5, "tile": (1, 2, 2)}
    sparse_attention(q, k, v, **good)
    with pytest.raises(error, match=message):
        sparse_attention(q, k, v, **(good | change))


def test_bad_tensors_are_named():
    q, k, v = torch.randn(3, 1, 2, 32, 8)
    call = {"latent_shape": (2, 4, 4), "sparsity": 0.5}
    with pytest.raises(ValueError, match="k: expected 32 tokens"):
        sparse_attention(q, k[:, :, :30], v, **call)
    with pytest.raises(TypeError, match="q: expected a float32, bfloat16 or float16 tensor on the CPU"):
        sparse_attention(q.double(), k, v, **call)
    with pytest.raises(TypeError, match="k: expected the dtype of q, torch.float16, got torch.float32"):
        sparse_attention(q.half(), k, v, **call)


def test_an_order_made_in_inference_mode_serves_training_too():
    q, k, v = structured(1, 1, (3, 3, 3), 8)
    with torch.inference_mode():
        sparse_attention(q, k, v, latent_shape=(3, 3, 3), sparsity=0.5, tile=(1, 3, 2))
    q.requires_grad_()
    sparse_attention(q, k, v, latent_shape=(3, 3, 3), sparsity=0.5, tile=(1, 3, 2)).output.sum().backward()
    assert q.grad is not None


def test_fake_tensors_leave_nothing_in_the_cache():
    call = {"latent_shape": (3, 2, 5), "sparsity": 0.5, "tile": (1, 2, 2)}
    with torch._subclasses.FakeTensorMode():
        fake = sparse_attention(*torch.randn(3, 1, 1, 30, 8), **call)
    assert fake.output.shape == (1, 1, 30, 8)
    assert sparse_attention(*torch.randn(3, 1, 1, 30, 8), **call).density > 0


def test_gradients_are_those_of_the_chosen_blocks():
    q, k, v = (t.requires_grad_() for t in structured(1, 2, (2, 5, 6), 16, 7))
    call = {"latent_shape": (2, 5, 6), "tile": (1, 2, 4), "text_len": 7}
    result = sparse_attention(q, k, v, **call, sparsity=0.5)
    assert not result.density.requires_grad
    weight = torch.randn_like(result.output)
    actual = torch.autograd.grad((result.output * weight).sum(), (q, k, v))
    order, starts, tiles = operators.tile_order((2, 5, 6), (1, 2, 4), 7, True, False)
    chosen = operators.select_blocks(q.detach(), k.detach(), order, starts, tiles, "topk", 0.5, (0, 0, 0), (0, 1, 0, 0))
    blocks = [order[a:b].tolist() for a, b in itertools.pairwise(starts.tolist())]
    named = [(None, tokens) for tokens in blocks]
    masks = [
        token_mask(named, lambda i, j, h=h: j in chosen[0][0, h, i, : chosen[1][0, h, i]].tolist(), q.shape[2])
        for h in range(2)
    ]
    expected = [t.detach().double().requires_grad_() for t in (q, k, v)]
    output, _ = masked_attention(*expected, torch.stack(masks)[None])
    for ours, theirs in zip(actual, torch.autograd.grad((output * weight).sum(), expected), strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=0, atol=20 * ATOL)


INFINITY = float("inf")


@pytest.mark.parametrize("k", [2, 3, 6, 16])
def test_top_k_of_few_blocks_with_ties_and_infinities(k):
    scores = torch.tensor(
        [[3.0, 1.0, 2.0, 2.0, -INFINITY, 0.0], [1.0] * 6, [-INFINITY, -INFINITY, 5.0, -INFINITY, 4.0, 4.0]]
    )
    for rows in (scores, scores[:, :1]):
        expected = torch.zeros_like(rows, dtype=torch.bool)
        for r, row in enumerate(rows.tolist()):
            expected[r, sorted(range(len(row)), key=lambda i: (-row[i], i))[:k]] = True  # noqa: B023
        assert torch.equal(top_k_blocks(rows, k), expected)


def test_top_k_takes_nan_last_and_names_bad_input():
    assert top_k_blocks(torch.tensor([[float("nan"), 1.0, 2.0]]), 2).tolist() == [[False, True, True]]
    assert top_k_blocks(torch.tensor([1.0, 3.0, 2.0], dtype=torch.bfloat16), 1).tolist() == [False, True, False]
    with pytest.raises(ValueError, match="k: expected an integer of at least 0, got -1"):
        top_k_blocks(torch.ones(2, 2), -1)
    with pytest.raises(TypeError, match="scores: expected a float32, bfloat16 or float16 tensor, got torch.int64"):
        top_k_blocks(torch.ones(2, 2, dtype=torch.int64), 1)
