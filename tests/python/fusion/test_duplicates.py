"""Equal nodes become one, and regions that read them are found; what a user can tell apart stays apart."""

import pytest
import torch
from fusion.reference import assert_close, doubled
from quincunx.fusion import counters
from quincunx.fusion.duplicates import merge_duplicates
from torch.fx.experimental.proxy_tensor import make_fx


def num_merged(function, *inputs):
    module = make_fx(function, tracing_mode="fake")(*inputs)
    count = merge_duplicates(module.graph)
    module.graph.lint()
    module.recompile()
    torch.testing.assert_close(module(*inputs), function(*inputs))
    return count


def test_equal_views_and_values_are_merged_with_what_reads_them():
    assert num_merged(lambda x: (x[0] + 1) * (x[0] + 1) - x[1], torch.randn(2, 3)) == 2


DIFFERENT = {
    "an_int_and_a_float": lambda x: torch.add(x, 1).sum() + torch.add(x, 1.0).sum() + torch.add(x, True).sum(),
    "zeros": lambda x: (x / 0.0 + x / -0.0).isnan().sum(),
    "results": lambda x: (x.sin(), x.sin()),
    "views_of_results": lambda x: (x.sin(), x.sin().view(-1)),
    "uninitialised": lambda x: torch.empty_like(x).fill_(1) + torch.empty_like(x).fill_(2),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_differs_is_kept(name):
    assert num_merged(DIFFERENT[name], torch.arange(1.0, 7.0).reshape(2, 3)) == 0


def test_a_change_of_memory_between_is_seen():
    def function(x):
        base = x.clone()
        before = base.sin().sum()
        base.add_(1)
        return before + base.sin().sum()

    assert num_merged(function, torch.arange(6.0)) == 0


def test_random_numbers_are_drawn_twice():
    module = make_fx(lambda x: torch.rand_like(x) - torch.rand_like(x), tracing_mode="fake")(torch.ones(4))
    assert merge_duplicates(module.graph) == 0


FUSED = {
    "equal_views": lambda x: torch.exp(x[0] * 2) + torch.sin(x[0]) * x.cumsum(0)[0] + x[0].cumsum(0),
    "equal_values": lambda x: x.exp() / x.exp().sum(1, keepdim=True) + x.exp().cumsum(0),
    "a_clone": lambda x: (x.clone() * 2).exp() + x.clone().cumsum(0),
}


@pytest.mark.parametrize("name", FUSED)
def test_no_region_is_refused_for_them(name):
    function, x = FUSED[name], torch.randn(3, 5)
    before = counters()
    assert_close(torch.compile(function, backend="quincunx")(x), function(*doubled([x])))
    after = counters()
    assert after["refused"] == before["refused"]
    assert after["regions_run"] > before["regions_run"]
