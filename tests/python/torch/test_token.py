"""torch.ops.quincunx.embedding, embedding_bag, top_k, sort and sample against torch."""

import pytest
import torch
from quincunx._library import load_operators

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.fixture(autouse=True)
def operators():
    load_operators()
    torch.manual_seed(0)


def with_ties_and_nan(*shape):
    x = (3 * torch.randn(shape)).round()
    x.view(-1)[::17] = float("nan")
    x.view(-1)[5::29] = float("inf")
    x.view(-1)[6::31] = -float("inf")
    x.view(-1)[7::13] = -0.0
    return x


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [0, 1, 2, -1])
@pytest.mark.parametrize("descending", [False, True])
def test_sort_equals_the_stable_one_of_torch(dtype, dim, descending):
    x = with_ties_and_nan(5, 40, 7).to(dtype)
    values, indices = torch.ops.quincunx.sort(x, dim, descending)
    expected = torch.sort(x, dim=dim, descending=descending, stable=True)
    assert torch.equal(indices, expected.indices)
    torch.testing.assert_close(values, expected.values, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("k", [0, 1, 10, 700])
def test_top_k_is_the_start_of_the_sorted_row(dtype, largest, k):
    x = torch.randn(3, 2000).to(dtype)
    values, indices = torch.ops.quincunx.top_k(x, k, -1, largest)
    expected = torch.sort(x, descending=largest, stable=True)
    assert torch.equal(indices, expected.indices[:, :k])
    assert torch.equal(values, torch.topk(x, k, largest=largest).values)
    values, indices = torch.ops.quincunx.top_k(x.t(), k, 0, largest)
    assert torch.equal(indices.t(), expected.indices[:, :k])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("index", [torch.int64, torch.int32])
def test_embedding_equals_torch(dtype, index):
    table, tokens = torch.randn(30, 20).to(dtype), torch.randint(0, 30, (4, 5), dtype=index)
    assert torch.equal(torch.ops.quincunx.embedding(table, tokens), torch.nn.functional.embedding(tokens, table))
    columns = torch.randn(20, 30).to(dtype).t()
    assert torch.equal(torch.ops.quincunx.embedding(columns, tokens), columns[tokens.long()])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_embedding_bag_equals_torch(dtype, mode):
    table = torch.randn(30, 20).to(dtype)
    indices, offsets = torch.randint(0, 30, (17,)), torch.tensor([0, 4, 4, 11])
    expected = torch.nn.functional.embedding_bag(indices, table.double(), offsets, mode=mode)
    rounding = {torch.float32: 2**-20, torch.bfloat16: 2**-8, torch.float16: 2**-11}[dtype]
    actual = torch.ops.quincunx.embedding_bag(table, indices, offsets, mode)
    torch.testing.assert_close(actual.double(), expected, rtol=1.01 * rounding, atol=2**-20)


def test_sampling_is_reproducible_and_keeps_to_its_options():
    logits = torch.randn(64, 500)
    sample = torch.ops.quincunx.sample
    assert torch.equal(sample(logits, temperature=0.0), logits.argmax(-1))
    tokens = sample(logits, top_k=3, seed=7)
    assert torch.equal(tokens, sample(logits, top_k=3, seed=7))
    assert not torch.equal(tokens, sample(logits, top_k=3, seed=7, step=1))
    assert (logits.topk(3).indices == tokens[:, None]).any(-1).all()
    probabilities = logits.softmax(-1)
    chosen = probabilities.gather(1, sample(logits, min_p=0.5, seed=1)[:, None])
    assert (chosen >= 0.499 * probabilities.amax(-1, keepdim=True)).all()
    # The tokens that are likelier than the chosen one stay below top_p together.
    chosen = probabilities.gather(1, sample(logits, top_p=0.3, seed=2)[:, None])
    assert ((probabilities * (probabilities > chosen)).sum(-1) < 0.3 + 1e-5).all()


def test_repeated_tokens_are_less_likely():
    logits = torch.tensor([[2.0, 1.9, -1.0]])
    history = torch.tensor([[0, -1]])
    tokens = torch.ops.quincunx.sample(logits, temperature=0.0, repetition_penalty=1.5, history=history)
    assert tokens.tolist() == [1]


def test_bad_input_names_the_argument():
    table, x = torch.randn(3, 4), torch.randn(2, 5)
    with pytest.raises(RuntimeError, match="indices: expected 0 to 2, the rows of table, got 3 at element 1"):
        torch.ops.quincunx.embedding(table, torch.tensor([0, 3]))
    with pytest.raises(RuntimeError, match="mode: expected sum or mean, got 'max'"):
        torch.ops.quincunx.embedding_bag(table, torch.tensor([0]), torch.tensor([0]), "max")
    with pytest.raises(RuntimeError, match=r"offsets\[0\]: expected 0, got 1"):
        torch.ops.quincunx.embedding_bag(table, torch.tensor([0, 1]), torch.tensor([1]))
    with pytest.raises(RuntimeError, match="k: expected 0 to 5, got 6"):
        torch.ops.quincunx.top_k(x, 6)
    with pytest.raises(RuntimeError, match="dim: expected -2 to 1, got 2"):
        torch.ops.quincunx.sort(x, 2)
    with pytest.raises(RuntimeError, match="top_p: expected more than 0 and at most 1, got 2"):
        torch.ops.quincunx.sample(x, top_p=2.0)
    with pytest.raises(RuntimeError, match="FAILED_PRECONDITION: logits: row 0 has a NaN"):
        torch.ops.quincunx.sample(torch.full((1, 3), float("nan")))
