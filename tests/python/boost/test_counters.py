"""Counters: densities weighted by the pairs of tokens they are of."""

import torch
from quincunx.boost.counters import Counters


def test_densities_are_weighted_by_pairs():
    counters = Counters()
    assert counters.density == 1.0
    counters.record("a", 100, torch.tensor(0.5))
    counters.record("a", 300, 0.25)
    counters.record("b", 100, 1.0)
    assert counters.blocks["a"].density == (50 + 75) / 400
    assert counters.blocks["a"].last == 0.25
    assert counters.blocks["a"].calls == 2
    assert counters.density == 225 / 500
    counters.count("this")
    counters.clear()
    assert counters.density == 1.0 and not counters.calls and not counters.blocks
