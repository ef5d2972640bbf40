"""One compilation and one kernel serve every size of a dimension that is marked dynamic."""

import torch
from fusion.reference import assert_close, double_module, doubled
from model import Block, ModelConfig, rotary_table
from torch.nn import functional


def norm(x, w):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * w + 1


def marked(tensor, *dims):
    for dim in dims:
        torch._dynamo.mark_dynamic(tensor, dim)
    return tensor


def test_rows_need_no_second_compilation(new_counts):
    compiled, weight = torch.compile(norm, backend="quincunx", fullgraph=True), torch.randn(24)
    for rows in (5, 2, 3, 64, 17):
        x = marked(torch.randn(rows, 24), 0)
        assert_close(compiled(x, weight), norm(x, weight))
    assert new_counts()["graphs"] == 1
    assert new_counts()["regions_registered"] == new_counts()["regions"]


def test_the_reduced_dimension_may_be_dynamic(new_counts):
    compiled = torch.compile(lambda x: torch.softmax(x, -1) * 2, backend="quincunx", fullgraph=True)
    for length in (16, 7, 100, 33):
        x = marked(torch.randn(3, length), 1)
        assert_close(compiled(x), torch.softmax(x, -1) * 2)
    assert new_counts()["graphs"] == 1


def test_two_dynamic_dimensions_at_once(new_counts):
    compiled, weight = torch.compile(norm, backend="quincunx", fullgraph=True), torch.randn(8)
    for batch, length in ((2, 5), (4, 3), (3, 9)):
        x = marked(torch.randn(batch, length, 8), 0, 1)
        assert_close(compiled(x, weight), norm(x, weight))
    assert new_counts()["graphs"] == 1


def test_a_block_with_dynamic_batch_and_length_trains(new_counts):
    block = Block(ModelConfig(vocab_size=32, dim=32, num_layers=1, num_heads=2, hidden_dim=40))
    exact = double_module(block)
    compiled = torch.compile(block, backend="quincunx", fullgraph=True)
    for batch, length in ((2, 7), (3, 12), (4, 5)):
        tables = [marked(table, 0) for table in rotary_table(length, 16, 1e4)]
        x = marked(torch.randn(batch, length, 32, requires_grad=True), 0, 1)
        result = compiled(x, *tables)
        (gradient,) = torch.autograd.grad(result.sum(), [x])
        same = x.detach().double().requires_grad_()
        expected = exact(same, *doubled(tables))
        assert_close(result, expected)
        assert_close(gradient, torch.autograd.grad(expected.sum(), [same])[0])
    assert new_counts()["graphs"] == 2
    assert new_counts()["regions"] > 2


def test_a_size_in_the_computation_is_the_actual_one(new_counts):
    def mean_by_hand(x):
        return x.sum(0) / x.shape[0] + x.shape[0]

    compiled = torch.compile(mean_by_hand, backend="quincunx", fullgraph=True)
    for rows in (6, 3, 11):
        x = marked(torch.randn(rows, 9), 0)
        assert_close(compiled(x), mean_by_hand(x))
    assert new_counts()["graphs"] == 1


def test_dynamic_of_torch_compile_covers_small_sizes():
    compiled = torch.compile(lambda x: functional.gelu(x * 2).sum(0), backend="quincunx", dynamic=True)
    for rows in (5, 1, 0, 33):
        x = torch.randn(rows, 4)
        assert_close(compiled(x), functional.gelu(x * 2).sum(0))
