"""The rotary embedding of the tour's model is one region for each of query and key, forward and backward."""

import pytest
import torch
from fusion.reference import assert_close, double_module, doubled, value_and_gradients
from model import Block, ModelConfig, rotary_table, rotate
from quincunx.fusion import explain, inductor_options

CONFIG = ModelConfig(vocab_size=32, dim=32, num_layers=1, num_heads=2, hidden_dim=40)


def interleaved(x, cos, sin):
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, odd * cos + even * sin), dim=-1).flatten(-2)


def whole(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return x * torch.cat((cos, cos), -1) + torch.cat((-second, first), -1) * torch.cat((sin, sin), -1)


@pytest.mark.parametrize("length", [1, 7, 33])
@pytest.mark.parametrize("function", [rotate, whole, interleaved])
def test_every_form_and_its_gradient(function, length, new_counts):
    inputs = (torch.randn(2, 3, length, 16), *rotary_table(length, 16, 1e4))
    values, gradients = value_and_gradients(torch.compile(function, backend="quincunx"), *inputs)
    expected, expected_gradients = value_and_gradients(function, *doubled(inputs))
    assert_close(values[0], expected[0])
    assert_close(gradients[0], expected_gradients[0])
    assert new_counts()["regions_run"] >= 2


def test_forward_and_backward_of_a_block_have_a_region_for_query_and_one_for_key():
    block = Block(CONFIG)
    found = explain(block, torch.randn(2, 9, 32, requires_grad=True), *rotary_table(9, 16, 1e4))
    forward, backward = (graph.report for graph in found.graphs)
    rotations = [region for region in forward.regions if "rope" in region.patterns]
    assert len(rotations) == 2
    assert all(any(node.startswith("cat") for node in region.nodes) for region in rotations)
    turned_back = [region for region in backward.regions if any(node.startswith("cat") for node in region.nodes)]
    assert len(turned_back) == 2
    for report in (forward, backward):
        assert "aten.cat.default" not in report.left
        assert not any("partly in the region" in entry.reason for entry in report.candidates)


def test_a_block_inside_inductor():
    block, inputs = Block(CONFIG), (torch.randn(2, 9, 32), *rotary_table(9, 16, 1e4))
    exact = double_module(block)
    values, gradients = value_and_gradients(torch.compile(block, options=inductor_options()), *inputs)
    expected, expected_gradients = value_and_gradients(exact, *doubled(inputs))
    assert_close(values[0], expected[0])
    assert_close(gradients[0], expected_gradients[0])
