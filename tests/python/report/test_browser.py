import time

import plotly.graph_objects as go
import pytest
from quincunx.report import BrowserError, Report, find_browser, inspect


def write_report(path):
    report = Report(title="A report", summary="With three kinds of chart.")
    lines = go.Figure()
    lines.add_scatter(x=[1, 2, 3], y=[2.0, 1.0, 1.5], mode="lines")
    bars = go.Figure()
    bars.add_bar(x=[1, 2], y=[3, 4])
    spans = go.Figure()
    spans.add_bar(orientation="h", y=["rank 0", "rank 1"], base=[0.0, 1.0], x=[1.0, 2.0])
    for name, figure in (("lines", lines), ("bars", bars), ("spans", spans)):
        report.add_chart(figure, name=name, title=name, caption="c")
    return report.write(path)


def fake_browser(path, script):
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(0o755)
    return str(path)


def test_every_chart_of_a_good_report_is_drawn(tmp_path, browser):
    folder = tmp_path / "a folder \u00e4"  # spaces and letters beyond ASCII must survive in the address
    folder.mkdir()
    state = inspect(write_report(folder / "re port.html"), browser=browser)
    assert {chart.name: chart.num_marks for chart in state.charts} == {"lines": 1, "bars": 2, "spans": 2}
    assert state.errors == []
    assert state.problems() == []


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        ("this is not javascript(", "SyntaxError"),
        ("nothing.here();", "ReferenceError"),
        ("Promise.reject(new Error('rejected in the page'));", "rejected in the page"),
        ("fetch('http://127.0.0.1:9/data.json');", "blocked"),
    ],
)
def test_broken_script_is_detected(tmp_path, browser, broken, expected):
    path = write_report(tmp_path / "report.html")
    path.write_text(path.read_text().replace("</body>", f"<script>{broken}</script></body>"))
    state = inspect(path, browser=browser)
    assert any(expected in error for error in state.errors)
    assert any(problem.startswith("script error: ") for problem in state.problems())


def test_missing_library_leaves_every_chart_undrawn(tmp_path, browser):
    path = write_report(tmp_path / "report.html")
    path.write_text(path.read_text().replace("Plotly.newPlot", "Missing.newPlot"))
    problems = inspect(path, browser=browser).problems()
    for name in ("lines", "bars", "spans"):
        assert f"the chart '{name}' is not drawn" in problems


def test_chart_that_draws_nothing_is_detected(tmp_path, browser):
    report = Report(title="A report", summary="Its chart has no points.")
    empty = go.Figure()
    empty.add_scatter(x=[], y=[])
    report.add_chart(empty, name="empty", title="t", caption="c")
    state = inspect(report.write(tmp_path / "report.html"), browser=browser)
    assert state.problems() == ["the chart 'empty' is not drawn"]


def test_damaged_data_spoils_only_its_own_chart(tmp_path, browser):
    path = write_report(tmp_path / "report.html")
    path.write_text(path.read_text().replace('data-chart-of="bars">{', 'data-chart-of="bars">{{'))
    state = inspect(path, browser=browser)
    assert {chart.name for chart in state.charts if chart.num_marks == 0} == {"bars"}
    assert any("chart bars" in error for error in state.errors)


def test_page_that_is_no_report_is_refused(tmp_path, browser):
    path = tmp_path / "page.html"
    path.write_text("<!DOCTYPE html><p>text</p>")
    with pytest.raises(BrowserError, match="is not a report"):
        inspect(path, browser=browser)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"path: expected a report file, got .*absent\.html"):
        inspect(tmp_path / "absent.html")


def test_browser_that_hangs_is_ended(tmp_path):
    path = write_report(tmp_path / "report.html")
    hanging = fake_browser(tmp_path / "hanging", "exec sleep 60")
    start = time.monotonic()
    with pytest.raises(BrowserError, match="did not end within 1 s"):
        inspect(path, browser=hanging, timeout_s=1.0)
    assert time.monotonic() - start < 10.0


def test_browser_that_fails_is_quoted(tmp_path):
    path = write_report(tmp_path / "report.html")
    failing = fake_browser(tmp_path / "failing", "echo no display >&2; exit 3")
    with pytest.raises(BrowserError, match="ended with code 3:\nno display"):
        inspect(path, browser=failing)


def test_missing_browser_is_an_error_that_names_the_package(tmp_path, monkeypatch):
    path = write_report(tmp_path / "report.html")
    monkeypatch.setenv("QX_BROWSER", str(tmp_path / "absent"))
    assert find_browser() is None
    with pytest.raises(BrowserError, match="install Debian's package chromium"):
        inspect(path)


def test_browser_is_taken_from_the_environment(tmp_path, monkeypatch):
    mine = fake_browser(tmp_path / "mine", "true")
    monkeypatch.setenv("QX_BROWSER", mine)
    assert find_browser() == mine
