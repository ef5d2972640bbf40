import pathlib

import pytest
from quincunx.cli.bench.capability import check_complete
from quincunx.cli.bench.command import CAPABILITIES, load_capability
from quincunx.cli.bench.demand import Demand, load_demands

CHECKOUT = pathlib.Path(__file__).resolve().parents[4]


def write(tmp_path: pathlib.Path, text: str) -> pathlib.Path:
    path = tmp_path / "demands.toml"
    path.write_text(text)
    return path


def entry(tmp_path: pathlib.Path, text: str) -> Demand:
    return load_demands(write(tmp_path, f"[some.row]\n{text}\n"))["some"]["row"]


def test_committed_file_demands_something_of_each_capability():
    assert set(load_demands(CHECKOUT / "benchmarks" / "demands.toml")) == set(CAPABILITIES)


@pytest.mark.parametrize("name", CAPABILITIES)
def test_each_demanded_id_is_measured_or_listed_as_unmeasured(name, monkeypatch):
    monkeypatch.syspath_prepend(str(CHECKOUT))
    check_complete(load_capability(name, CHECKOUT), load_demands(CHECKOUT / "benchmarks" / "demands.toml")[name])


@pytest.mark.parametrize(
    ("text", "ratio", "shown"),
    [
        ("at_least = 5", 5, 5.0),
        ("at_most_of_peer = 1.25", 0.8, 0.8),
        ("share_below_peer = 0.5", 2, 2.0),
        ('limit = 5\nunit = "ms"', 1, "<= 5 ms"),
        ("equal = true", 1, "equal"),
    ],
)
def test_kind_gives_the_least_ratio(tmp_path, text, ratio, shown):
    demand = entry(tmp_path, f'row = "a row"\n{text}')
    assert demand.least_ratio == ratio
    assert demand.shown == shown


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('row = "r"', "some.row: expected exactly one of at_least"),
        ('row = "r"\nat_least = 1\nlimit = 2\nunit = "s"', "expected exactly one of"),
        ("at_least = 1", "words of the row under 'row'"),
        ('row = "r"\nat_least = 0', "at_least: expected a positive number, got 0"),
        ('row = "r"\nat_least = true', "at_least: expected a positive number, got True"),
        ('row = "r"\nat_least = "5"', "at_least: expected a positive number, got '5'"),
        ('row = "r"\nat_least = 1\natleast = 1', "unknown key 'atleast'"),
        ('row = "r"\nlimit = 1', "'unit' belongs to 'limit'"),
        ('row = "r"\nat_least = 1\nunit = "s"', "'unit' belongs to 'limit'"),
        ('row = "r"\nshare_below_peer = 1', "expected a share below 1, got 1"),
        ('row = "r"\nequal = false', "equal: expected true, got False"),
    ],
)
def test_wrong_entry_is_named(tmp_path, text, message):
    with pytest.raises(ValueError, match="demands: some.row") as error:
        entry(tmp_path, text)
    assert message in str(error.value)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match="cannot read .*nowhere.toml"):
        load_demands(tmp_path / "nowhere.toml")


def test_broken_file_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"demands: .*demands\.toml"):
        load_demands(write(tmp_path, "[some\n"))
