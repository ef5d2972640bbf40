import json

import pytest
from quincunx.cli.bench.demand import Demand
from quincunx.cli.bench.display import number, print_table, summary
from quincunx.cli.bench.results import check_writable, write_json, write_markdown
from quincunx.cli.bench.row import Measurement, Row, Surroundings, judge, missing_row


@pytest.fixture
def rows() -> list[Row]:
    demand = Demand("some", "row", "the words", "at_least", 2.0)
    around = Surroundings(others=0.04, peak=0.8)
    return [
        judge("some", Measurement("row", "a | name", "s", [1.0], {"peer": [3.0]}), demand),
        judge("some", Measurement("row", "slow", "s", [2.0], {"peer": [3.0]}), demand, surroundings=around),
        missing_row(demand, "no peer\nof that name"),
    ]


def test_json_file_holds_one_object_a_row(tmp_path, rows):
    path = tmp_path / "rows.json"
    write_json(path, rows)
    assert [row["pass"] for row in json.loads(path.read_text())] == [True, False, False]
    assert list(tmp_path.iterdir()) == [path]


def test_json_file_of_no_rows_is_valid(tmp_path):
    write_json(tmp_path / "rows.json", [])
    assert json.loads((tmp_path / "rows.json").read_text()) == []


def test_page_names_the_machine_and_keeps_the_misses(tmp_path, rows):
    path = tmp_path / "RESULTS.md"
    write_markdown(path, {"processor": "a CPU", "commit": "abc"}, "qx bench some", rows)
    text = path.read_text()
    assert "- processor: a CPU" in text
    assert "- command: `qx bench some`" in text
    assert "1 pass, 1 miss, 1 missing" in text
    assert "| slow | 1 | 2 | 3 (peer) | s | 1.5 | 1.5 ... 1.5 | 2 | 4% | 0.8 | miss |" in text
    assert "- the words: no peer" in text
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in table}) == 1


def test_page_keeps_the_capabilities_that_were_not_measured(tmp_path, rows):
    path = tmp_path / "RESULTS.md"
    write_markdown(path, {"commit": "first"}, "qx bench some", rows)
    other = [judge("other", Measurement("row", "fast", "s", [1.0], {"peer": [3.0]}), None)]
    write_markdown(path, {"commit": "second"}, "qx bench other", other)
    write_markdown(path, {"commit": "third"}, "qx bench some", rows[:1])
    text = path.read_text()
    assert [line for line in text.splitlines() if line.startswith("## ")] == ["## some", "## other"]
    commits = [line for line in text.splitlines() if line.startswith("- commit")]
    assert commits == ["- commit: third", "- commit: second"]
    assert "slow" not in text
    assert text.count("# Measured figures") == 1
    assert "| fast | 1 |" in text


def test_summary_counts_the_verdicts(rows):
    assert summary(rows) == "1 pass, 1 miss, 1 missing"
    assert summary([]) == "no rows"


def test_terminal_table_shows_each_row_and_each_reason(rows, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    print_table("some", rows)
    shown = capsys.readouterr().out
    assert "a | name" in shown
    assert "no peer" in shown


def test_numbers_have_three_digits():
    assert [number(value) for value in (None, 0.012345, 12.345, 1234.5)] == ["-", "0.0123", "12.3", "1,234"]


def test_path_in_no_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match="--json: expected a file in an existing folder"):
        check_writable("--json", tmp_path / "nowhere" / "rows.json")


def test_folder_as_a_file_is_refused(tmp_path):
    with pytest.raises(ValueError, match="--json: expected the path of a file, got the folder"):
        check_writable("--json", tmp_path)


def test_file_without_permission_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(ValueError, match="may not be written"):
        check_writable("--json", tmp_path / "rows.json")
