"""quincunx.muon.plan: the plan of the C++ core as Python sees it."""

import pytest
import torch
from quincunx.muon.placement import place
from quincunx.muon.plan import PlannedTensor, make_plan


def planned(*shape: int, name: str = "w", ns_steps: int = 5, settings: int = 0) -> PlannedTensor:
    return PlannedTensor(name, place(name, torch.zeros(shape), False), ns_steps, settings)


def test_batches_join_equal_shapes_and_settings():
    plan = make_plan([planned(4, 6), planned(6, 4), planned(3, 4, 6), planned(4, 6, settings=1)], 1, 0, None)
    batches = [(b.num_matrices, b.rows, b.columns, b.settings) for b in plan.buckets[0].batches]
    assert batches == [(4, 4, 6, 0), (1, 6, 4, 0), (1, 4, 6, 1)]
    assert len(plan.matrices) == 6
    assert not plan.buckets[0].has_transport
    assert plan.imbalance == 1.0


def test_wide_matrices_take_the_gram_form():
    plan = make_plan([planned(8, 8), planned(8, 80)], 1, 0, None)
    assert [m.is_gram for m in plan.matrices] == [0, 1]


def test_more_steps_cost_more():
    few, many = (make_plan([planned(8, 8, ns_steps=n)], 1, 0, None).matrices[0].flops for n in (1, 10))
    assert many == 10 * few


def test_hash_depends_on_names_shapes_settings_and_cap():
    base = make_plan([planned(4, 6)], 1, 0, None)
    assert make_plan([planned(4, 6)], 1, 0, None).hash == base.hash
    others = [planned(4, 6, name="v"), planned(6, 4), planned(4, 6, settings=1), planned(4, 6, ns_steps=4)]
    assert len({base.hash, *(make_plan([t], 1, 0, None).hash for t in others)}) == 5
    assert make_plan([planned(4, 6)], 1, 0, 1 << 20).hash != base.hash


def test_peak_bytes_respect_the_cap():
    tensors = [planned(16, 24, name=str(i)) for i in range(100)]
    cap = 65_536
    plan = make_plan(tensors, 1, 0, cap)
    assert len(plan.buckets) > 1
    assert plan.peak_bytes <= cap < make_plan(tensors, 1, 0, None).peak_bytes
    assert sum(bucket.num_slots for bucket in plan.buckets) == len(tensors)


def test_nothing_to_plan():
    plan = make_plan([], 1, 0, None)
    assert (plan.buckets, plan.matrices, plan.imbalance, plan.peak_bytes) == ([], [], 1.0, 0)


def test_errors_of_the_core_are_value_errors():
    with pytest.raises(ValueError, match=r"parameter w \[1, 4, 6\]: memory_cap_bytes: one matrix alone needs"):
        make_plan([planned(4, 6)], 1, 0, 1)
    with pytest.raises(ValueError, match=r"rank: must be in \[0, 1\), got 1"):
        make_plan([planned(4, 6)], 1, 1, None)
