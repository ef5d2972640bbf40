"""Gradients of rain_fusion_attention against autograd through masked dense attention in double precision."""

import pytest
import torch
from boost.reference import lists_of, masked_attention, token_mask
from hypothesis import given, settings
from hypothesis import strategies as st
from quincunx.boost import attention, rain_fusion_attention

# The forward bound, 6 * 30 * 2^-24 relative in a weight, enters three times (weight, its gradient, delta); gradients
# sum over at most 300 rows, whose weights sum to about one for a key, of values below 5 * 5, six deviations apart.
ATOL = 3 * 6 * 30 * 25 * 6 * 2**-24


def inputs(batch, key_heads, group, queries, keys, head_dim, value_dim, blocks, density, seed):
    torch.manual_seed(seed)
    query = torch.randn(batch, queries, key_heads * group, head_dim).transpose(1, 2).requires_grad_()
    key = torch.randn(batch, key_heads, keys, head_dim, requires_grad=True)
    value = torch.randn(batch, key_heads, keys, value_dim, requires_grad=True)
    mask = torch.rand(batch, -(-queries // blocks[0]), key_heads * group, -(-keys // blocks[1])) < density
    return (query, key, value), mask


def gradients_of(attend, tensors, output_grad, lse_grad):
    """Of a sum with both results, rows without keys (log-sum-exp -inf) left out of the second."""
    output, lse = attend(*tensors)
    seen = lse.detach() > float("-inf")
    total = (output * output_grad.to(output.dtype)).sum() + (lse * lse_grad.to(lse.dtype))[seen].sum()
    return torch.autograd.grad(total, tensors)


@settings(max_examples=40, deadline=None)
@given(
    batch=st.integers(1, 2),
    key_heads=st.integers(1, 2),
    group=st.integers(1, 2),
    queries=st.integers(1, 200),
    keys=st.integers(1, 200),
    head_dim=st.sampled_from([8, 40, 72, 80]),
    value_dim=st.sampled_from([16, 40]),
    blocks=st.tuples(st.integers(16, 128), st.integers(16, 128)),
    density=st.sampled_from([0.0, 0.3, 1.0]),
    causal=st.booleans(),
    masking=st.sampled_from(["none", "bool", "bias"]),
    seed=st.integers(0, 2**31),
)
def test_gradients_of_any_lists_equal_those_of_masked_dense_attention(causal, masking, blocks, **shape):
    tensors, kept = inputs(blocks=blocks, **shape)
    idx, num = lists_of(kept)
    queries, keys = tensors[0].shape[2], tensors[1].shape[2]
    mask = token_mask(kept, *blocks, queries, keys)
    if causal:
        mask = mask & torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
    seen = torch.rand(*tensors[0].shape[:3], keys) < 0.8
    bias = torch.randn(tensors[0].shape[0], 1, queries, keys)
    attn_mask = {"none": None, "bool": seen, "bias": bias.masked_fill(~seen[:, :1], float("-inf"))}[masking]
    if masking != "none":
        mask = mask & (seen if masking == "bool" else seen[:, :1])
    output_grad = torch.randn(*tensors[0].shape[:3], tensors[2].shape[3])
    lse_grad = torch.randn(tensors[0].shape[:3])
    actual = gradients_of(
        lambda *t: rain_fusion_attention(*t, idx, num, blocks, causal=causal, attn_mask=attn_mask),
        tensors,
        output_grad,
        lse_grad,
    )
    doubles = [t.detach().double().requires_grad_() for t in tensors]
    # Rows without keys get their zeros from masked_fill, whose gradient is zero; softmax gives NaN there.
    added = bias.double() if masking == "bias" else 0
    expected = gradients_of(lambda *t: visible_attention(*t, mask, added), doubles, output_grad, lse_grad)
    for ours, theirs in zip(actual, expected, strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=ATOL)


def visible_attention(query, key, value, mask, bias=0):
    """masked_attention with gradients that are finite in rows without keys."""
    seen = mask.any(-1, keepdim=True)
    output, lse = masked_attention(query, key, value, mask | ~seen, bias=bias)
    return output * seen, lse.masked_fill(~seen[..., 0], float("-inf"))


CASE = dict(batch=2, key_heads=2, group=2, queries=70, keys=90, head_dim=24, value_dim=16, blocks=(32, 48), seed=1)  # noqa: C408


def test_padding_and_hidden_keys_get_zeros_and_are_not_read():
    tensors, kept = inputs(**CASE, density=1.0)
    kept[:, :, :, 0] = False
    hidden = torch.zeros(2, 90, dtype=torch.bool)
    hidden[:, :48], hidden[1, 60:] = True, True
    with torch.no_grad():
        for tensor in tensors[1:]:
            tensor.transpose(1, 2)[hidden] = float("nan")
    output, _ = rain_fusion_attention(*tensors, *lists_of(kept), (32, 48), key_lengths=[90, 60])
    gradients = torch.autograd.grad(output.sum(), tensors)
    assert all(torch.isfinite(g).all() for g in gradients)
    for gradient in gradients[1:]:
        assert torch.count_nonzero(gradient.transpose(1, 2)[hidden]) == 0
        assert torch.count_nonzero(gradient.transpose(1, 2)[~hidden]) > 0


def test_any_number_of_threads_gives_the_same_bits():
    tensors, kept = inputs(**CASE, density=0.5)
    before, results = torch.get_num_threads(), []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        output, lse = rain_fusion_attention(*tensors, *lists_of(kept | True), (32, 48))
        results.append(torch.autograd.grad(output.square().sum() + lse.sum(), tensors))
    torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_compiled_gradients_are_the_eager_ones():
    tensors, kept = inputs(**CASE, density=0.5)
    idx, num = lists_of(kept)

    def loss(query, key, value):
        return rain_fusion_attention(query, key, value, idx, num, (32, 48))[0].square().sum()

    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    actual, expected = (torch.autograd.grad(f(*tensors), tensors) for f in (compiled, loss))
    assert all(torch.equal(a, b) for a, b in zip(actual, expected, strict=True))


@pytest.mark.parametrize("shape", [{"queries": 0}, {"keys": 0}])
def test_empty_tensors_have_gradients_of_zeros(shape):
    tensors, kept = inputs(**(CASE | shape), density=1.0)
    output, _ = rain_fusion_attention(*tensors, *lists_of(kept), (32, 48))
    for tensor, gradient in zip(tensors, torch.autograd.grad(output.sum(), tensors), strict=True):
        assert gradient.shape == tensor.shape
        assert torch.count_nonzero(gradient) == 0


def test_a_second_derivative_is_refused_and_not_wrong():
    q, k, v = torch.randn(3, 1, 1, 5, 8)
    (grad,) = torch.autograd.grad((attention(q.requires_grad_(), k, v) ** 3).sum(), q, create_graph=True)
    with pytest.raises(NotImplementedError, match="attention: expected one differentiation, got a second derivative"):
        grad.sum().backward()
