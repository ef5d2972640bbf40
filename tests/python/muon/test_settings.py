"""quincunx.muon.settings: coefficient tables and the scale of the rate."""

import math

import pytest
import torch
from muon.reference import CLASSIC, POLAR_EXPRESS, QUINTIC
from quincunx.muon.settings import coefficient_table, lr_scale


@pytest.mark.parametrize(
    ("name", "triples"), [("polar_express", POLAR_EXPRESS), ("quintic", QUINTIC), ("classic", [CLASSIC] * 5)]
)
def test_named_sets(name, triples):
    assert torch.equal(coefficient_table(name, 5), torch.tensor(triples, dtype=torch.float32))
    assert torch.equal(coefficient_table(name, 2), torch.tensor(triples[:2], dtype=torch.float32))


def test_last_triple_is_repeated():
    table = coefficient_table([CLASSIC, (1.0, 2.0, 3.0)], 4)
    assert table.tolist()[1:] == [[1.0, 2.0, 3.0]] * 3


def test_longer_lists_are_cut():
    assert coefficient_table([CLASSIC] * 4, 2).shape == (2, 3)


@pytest.mark.parametrize("shape", [(8, 2), (2, 8)])
def test_scale_rules(shape):
    original = {"adjust_lr_fn": "original", "matched_adamw_rms": 0.3}
    assert lr_scale(original, *shape) == (2.0 if shape == (8, 2) else 1.0)
    assert lr_scale(original | {"adjust_lr_fn": None}, *shape) == lr_scale(original, *shape)
    assert lr_scale(original | {"adjust_lr_fn": "match_rms_adamw"}, *shape) == pytest.approx(0.3 * math.sqrt(8))
