"""boost.rope against Wan's form: complex128 numbers, one product a pair."""

import pytest
import torch
from quincunx.boost import rope, rotary

# Two products and a sum of numbers below 6, each rounded once.
ATOL = 3 * 6 * 2**-24


def complex_rope(x_BSHD, grid, theta=10000.0, dims=None):
    """Interleaved pairs as complex numbers; the tokens of the grid come first, the others are left alone."""
    half = x_BSHD.shape[-1] // 2
    parts = (half - 2 * (half // 3), half // 3, half // 3) if dims is None else [d // 2 for d in dims]
    axes = torch.meshgrid(*(torch.arange(n, dtype=torch.float64) for n in grid), indexing="ij")
    angles = [a.flatten()[:, None] * theta ** (-torch.arange(n).double() / n) for a, n in zip(axes, parts, strict=True)]
    turn = torch.polar(torch.ones(1, dtype=torch.float64), torch.cat(angles, 1))
    out = x_BSHD.double().clone()
    rotary_dims = 2 * sum(parts)
    pairs = torch.view_as_complex(out[:, : turn.shape[0], :, :rotary_dims].unflatten(-1, (-1, 2)).contiguous())
    out[:, : turn.shape[0], :, :rotary_dims] = torch.view_as_real(pairs * turn[:, None]).flatten(-2)
    return out


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("head_dim", [6, 40, 64, 72, 128])
@pytest.mark.parametrize("grid", [(1, 1, 1), (3, 5, 7), (2, 4, 4)])
def test_equals_complex_numbers(head_dim, grid):
    x = torch.randn(2, grid[0] * grid[1] * grid[2] + 4, 3, head_dim)
    expected = complex_rope(x, grid)
    torch.testing.assert_close(rope(x, grid).double(), expected, rtol=0, atol=ATOL)
    heads_first = rope(x.transpose(1, 2).contiguous(), grid, layout="BNSD")
    assert heads_first.is_contiguous()
    torch.testing.assert_close(heads_first.transpose(1, 2).double(), expected, rtol=0, atol=ATOL)


def test_far_positions_are_as_exact_as_near_ones():
    x = torch.randn(1, 5000, 1, 12)
    torch.testing.assert_close(rope(x, (5000, 1, 1)).double(), complex_rope(x, (5000, 1, 1)), rtol=0, atol=ATOL)


def test_theta_and_dims_count():
    x = torch.randn(1, 60, 2, 32)
    for options in ({"theta": 500.0}, {"dims": (8, 12, 8)}, {"dims": (0, 16, 16)}, {"theta": 256, "dims": (2, 0, 0)}):
        expected = complex_rope(x, (3, 4, 5), **options)
        torch.testing.assert_close(rope(x, (3, 4, 5), **options).double(), expected, rtol=0, atol=ATOL)
        assert not torch.equal(rope(x, (3, 4, 5)), rope(x, (3, 4, 5), **options))


def test_half_split_pairs_are_the_interleaved_ones_in_another_order():
    x = torch.randn(1, 24, 2, 16)
    order = torch.arange(16).view(2, 8).T.flatten()
    interleaved = rope(x[..., order], (2, 3, 4))
    torch.testing.assert_close(rope(x, (2, 3, 4), interleaved=False)[..., order], interleaved, rtol=0, atol=ATOL)


def test_items_have_grids_of_their_own():
    x = torch.randn(3, 24, 2, 16)
    grids = [(2, 3, 4), (1, 4, 4), (2, 3, 4)]
    expected = torch.cat([complex_rope(x[i : i + 1], grid) for i, grid in enumerate(grids)])
    torch.testing.assert_close(rope(x, grids).double(), expected, rtol=0, atol=ATOL)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_output_has_the_dtype_of_the_input(dtype):
    x = torch.randn(1, 24, 2, 16).to(dtype)
    y = rope(x, (2, 3, 4))
    assert y.dtype == dtype
    # Computed in float32 and rounded once.
    torch.testing.assert_close(y.double(), complex_rope(x, (2, 3, 4)), rtol=torch.finfo(dtype).eps, atol=ATOL)


def test_gradient_turns_back():
    x = torch.randn(1, 24, 2, 16, requires_grad=True)
    grad = torch.randn(1, 24, 2, 16)
    y = rope(x, (2, 3, 4))
    y.backward(grad)
    reference = x.detach().double().requires_grad_()
    complex_rope(reference, (2, 3, 4)).backward(grad.double())
    torch.testing.assert_close(x.grad.double(), reference.grad, rtol=0, atol=ATOL)


def test_a_second_derivative_is_refused_and_not_zero():
    x = torch.randn(1, 24, 2, 16, requires_grad=True)
    (grad,) = torch.autograd.grad((rope(x, (2, 3, 4)) ** 3).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()


def test_compiles_without_graph_breaks():
    x = torch.randn(1, 24, 2, 16, requires_grad=True)

    def loss(x):
        return rope(x, (2, 3, 4)).sin().sum()

    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    assert torch.equal(torch.autograd.grad(compiled(x), x)[0], torch.autograd.grad(loss(x), x)[0])


def test_tables_made_in_inference_mode_serve_training_too():
    rotary._cached_tables.cache_clear()
    x = torch.randn(1, 24, 2, 16)
    with torch.inference_mode():
        rope(x, (2, 3, 4))
    rope(x.requires_grad_(), (2, 3, 4)).sum().backward()
    assert x.grad is not None


def test_tables_are_kept_but_not_without_bound():
    rotary._cached_tables.cache_clear()
    x = torch.randn(1, 40, 1, 12)
    for size in range(1, 30):
        rope(x, (size, 1, 1))
    info = rotary._cached_tables.cache_info()
    assert info.currsize == info.maxsize == 8
    rope(x, (29, 1, 1))
    assert rotary._cached_tables.cache_info().hits == info.hits + 1


BAD = [
    ({"grid": (2, 3)}, ValueError, "grid: expected 3 integers"),
    ({"grid": 24}, ValueError, "grid: expected frames, height and width, or such a triple a batch item, got 24"),
    ({"grid": torch.tensor([2, 3, 4])}, ValueError, "grid: expected frames, height and width, or such a triple"),
    ({"grid": (2, 3, 1 << 63)}, ValueError, "grid: expected 3 integers"),
    ({"grid": []}, ValueError, "grid: expected one grid or one for each of the 2 batch items, got 0"),
    ({"grid": (2, 3, 5)}, ValueError, "grid: expected at most the 24 positions of x"),
    ({"grid": [(1, 1, 1)] * 3}, ValueError, "grid: expected one grid or one for each of the 2 batch items, got 3"),
    ({"theta": 0}, ValueError, "theta: expected a positive, finite number, got 0"),
    ({"theta": float("inf")}, ValueError, "theta: expected a positive, finite number, got inf"),
    ({"dims": (8, 5, 2)}, ValueError, "dims: expected even numbers"),
    ({"dims": (8, 8, 8)}, ValueError, "dims: expected even numbers with a sum of 2 to the head size 16"),
    ({"interleaved": 1}, TypeError, "interleaved: expected True or False, got 1"),
    ({"layout": "TND"}, ValueError, "layout: expected one of BSND, BNSD, got 'TND'"),
]


@pytest.mark.parametrize(("change", "error", "message"), BAD, ids=[str(c) for c, _, _ in BAD])
def test_bad_input_names_the_argument(change, error, message):
    with pytest.raises(error, match=message):
        rope(torch.randn(2, 24, 1, 16), **({"grid": (2, 3, 4)} | change))


def test_bad_tensors_are_named():
    with pytest.raises(ValueError, match="x: expected 4 dimensions"):
        rope(torch.randn(24, 1, 16), (2, 3, 4))
    with pytest.raises(ValueError, match="x: expected an even head size of at least 6, got 7"):
        rope(torch.randn(1, 24, 1, 7), (2, 3, 4))
    with pytest.raises(TypeError, match="x: expected a float32, bfloat16 or float16 tensor"):
        rope(torch.randn(1, 24, 1, 16).double(), (2, 3, 4))
