import json

import pytest
from quincunx.cli.bench.demand import Demand
from quincunx.cli.bench.row import Measurement, Surroundings, Verdict, best_peer, judge, missing_row

# The keys of one object, in the words of the program's documentation.
KEYS = {"capability", "name", "ours", "peer", "peer_name", "unit", "ratio", "demand", "pass", "threads"}


def demand(kind: str = "at_least", value: float = 2.0, unit: str = "") -> Demand:
    return Demand("some", "row", "the words", kind, value, unit)


def measured(ours: list[float], peer: list[float] | None = None, **options) -> Measurement:
    return Measurement("row", "a name", "s", ours, {"peer": peer} if peer else {}, **options)


@pytest.mark.parametrize(
    ("peer_cost", "verdict", "passed"),
    [
        (2.0, Verdict.PASS, True),
        (1.99, Verdict.TIE, True),
        (1.95, Verdict.TIE, True),
        (1.93, Verdict.MISS, False),
    ],
)
def test_ratio_is_held_against_the_demand(peer_cost, verdict, passed):
    row = judge("some", measured([1.0], [peer_cost]), demand())
    assert (row.verdict, row.as_json()["pass"]) == (verdict, passed)


def test_ratio_is_the_median_of_the_pairs_and_not_the_ratio_of_the_medians():
    row = judge("some", measured([1.0, 2.0, 10.0], [3.0, 8.0, 20.0]), None)
    assert row.ratio == 3.0
    assert (row.ours, row.peer) == (2.0, 8.0)


def test_spread_is_the_quartiles_of_the_ratios():
    assert judge("some", measured([1.0] * 5, [1.0, 2.0, 3.0, 4.0, 5.0]), None).spread == (2.0, 4.0)


def test_best_of_several_peers_counts():
    measurement = Measurement("row", "a name", "s", [1.0, 1.0], {"slow": [9.0, 9.0], "fast": [2.0, 4.0]})
    assert best_peer(measurement) == "fast"
    assert judge("some", measurement, demand()).ratio == 3.0


def test_limit_compares_the_shown_value_and_needs_no_peer():
    measurement = Measurement("row", "a name", "ms", [0.004], value_of=lambda cost: cost * 1e3)
    row = judge("some", measurement, demand("limit", 5, "ms"))
    assert (row.verdict, row.ratio, row.demand) == (Verdict.PASS, 1.25, "<= 5 ms")
    assert judge("some", measurement, demand("limit", 3, "ms")).verdict == Verdict.MISS


def test_limit_in_another_unit_is_refused():
    with pytest.raises(ValueError, match="row: the demand is in ms, the measurement in s"):
        judge("some", measured([1.0]), demand("limit", 5, "ms"))


def test_demanded_ratio_without_a_peer_is_refused():
    with pytest.raises(ValueError, match="row: the demand needs a peer"):
        judge("some", measured([1.0]), demand())


def test_upper_bound_in_costs_of_the_peer():
    assert judge("some", measured([1.3], [1.0]), demand("at_most_of_peer", 1.3)).verdict == Verdict.PASS
    assert judge("some", measured([1.5], [1.0]), demand("at_most_of_peer", 1.3)).verdict == Verdict.MISS


def test_share_below_the_peer():
    assert judge("some", measured([6.0], [10.0]), demand("share_below_peer", 0.4)).verdict == Verdict.PASS
    assert judge("some", measured([6.5], [10.0]), demand("share_below_peer", 0.4)).verdict == Verdict.MISS


@pytest.mark.parametrize("count", [7.0, 9.0])
def test_equal_misses_on_either_side(count):
    assert judge("some", measured([8.0], [8.0]), demand("equal", 1)).verdict == Verdict.PASS
    assert judge("some", measured([count], [8.0]), demand("equal", 1)).verdict == Verdict.MISS


def judged(others: float, displaced: float = 0.0, peak: float = 1.0, peer=(4.0, 4.0, 4.0), asked=None):
    ours = [1.0] * len(peer)
    return judge(
        "some", measured(ours, list(peer)), asked or demand(), surroundings=Surroundings(others, displaced, peak)
    )


def test_disturbed_row_is_neither_passed_nor_missed():
    for cost in (9.0, 0.1):
        row = judged(others=0.5, displaced=0.5, peer=(cost,) * 3)
        assert (row.verdict, row.as_json()["pass"]) == (Verdict.DISTURBED, None)


def test_others_on_other_cores_disturb_only_ratios_that_lie_apart():
    steady, apart = (4.0, 4.1, 4.2), (2.0, 4.0, 6.0)
    assert judged(others=0.5, peer=steady).verdict == Verdict.PASS
    assert judged(others=0.5, peer=apart).verdict == Verdict.DISTURBED
    assert judged(others=0.01, peer=apart).verdict == Verdict.PASS


def test_peak_that_wanders_by_itself_hides_no_ratio_and_is_shown():
    row = judged(others=0.0, peak=0.5)
    assert (row.verdict, row.as_json()["peak"], row.as_json()["others"]) == (Verdict.PASS, 0.5, 0.0)


def test_absolute_demand_needs_the_machine_at_its_best():
    limit = demand("limit", 2, "s")
    assert judged(others=0.0, peak=0.95, asked=limit).verdict == Verdict.PASS
    assert judged(others=0.0, peak=0.85, asked=limit).verdict == Verdict.DISTURBED


def test_row_without_a_demand_is_only_shown():
    row = judge("some", measured([1.0], [9.0]), None)
    assert (row.verdict, row.demand, row.as_json()["pass"]) == (Verdict.SHOWN, None, None)


def test_missing_row_counts_as_missed():
    row = missing_row(demand(), "the reason")
    assert (row.verdict, row.as_json()["pass"], row.note) == (Verdict.MISSING, False, "the reason")


def test_json_object_has_the_documented_keys():
    row = judge("some", measured([1.0], [2.0], threads=2, variant="over gloo"), None)
    document = json.loads(json.dumps(row.as_json()))
    assert set(document) >= KEYS
    assert (document["name"], document["threads"]) == ("a name, over gloo", 2)
