import json
import re

import plotly.graph_objects as go
import pytest
from quincunx.report import Report


def line_figure():
    figure = go.Figure()
    figure.add_scatter(x=[1, 2, 3], y=[2.0, 1.0, 1.5])
    return figure


def new_report():
    return Report(title="A report", summary="What it is about.")


def test_text_is_escaped():
    report = Report(title="a < b", summary="<script>alert(1)</script>")
    report.add_section("<i>section</i>", "x & y")
    report.add_table(["<th>"], [["<td>"]], caption="<em>")
    report.add_sample(given="<b>", text="</pre>", note="<u>")
    page = report.to_html()
    assert "a &lt; b" in page
    for raw in ("<script>alert", "<i>section", "<th><th>", "<td><td>", "<em>", "<b><b>", "</pre></pre>", "<u>"):
        assert raw not in page


def test_chart_data_cannot_end_its_script_element():
    report = new_report()
    figure = line_figure()
    figure.update_traces(name="</script><script>alert(1)</script>")
    report.add_chart(figure, name="line", title="Line", caption="A line.")
    data = re.search(r'data-chart-of="line">(.*?)</script>', report.to_html(), re.DOTALL).group(1)
    assert json.loads(data)["data"][0]["name"] == "</script><script>alert(1)</script>"


def test_chart_data_cannot_keep_its_script_element_open():
    """After "<!--<script" a browser takes the next end tag for a part of the text."""
    figure = line_figure()
    figure.update_traces(name="<!--<script>")
    report = new_report()
    report.add_chart(figure, name="line", title="Line", caption="A line.")
    data = re.search(r'data-chart-of="line">(.*?)</script>', report.to_html(), re.DOTALL).group(1)
    assert "<" not in data
    assert json.loads(data)["data"][0]["name"] == "<!--<script>"


def test_file_refers_to_nothing_outside_itself(tmp_path):
    report = new_report()
    report.add_chart(line_figure(), name="line", title="Line", caption="A line.")
    page = report.write(tmp_path / "report.html").read_text()
    assert "default-src 'none'" in page
    # Before the charting library only the report's own elements stand; none of them loads anything.
    head = page[: page.index("<body>")]
    assert not re.findall(r'(?:src|href)="(?!data:,)', head)
    assert "<script src" not in page
    assert "@import" not in head


def test_blocks_keep_their_order_and_charts_their_names():
    report = new_report()
    report.add_key_figures([("loss", "1.25", "nats")])
    report.add_chart(line_figure(), name="second", title="Second", caption="c")
    report.add_section("Third")
    report.add_chart(line_figure(), name="fourth", title="Fourth", caption="c")
    page = report.to_html()
    places = [page.index(text) for text in (">1.25<", ">Second<", ">Third<", ">Fourth<")]
    assert places == sorted(places)
    assert report.chart_names == ["second", "fourth"]


def test_write_replaces_the_file_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "report.html"
    path.write_text("old")
    assert new_report().write(path) == path
    assert path.read_text().startswith("<!DOCTYPE html>")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("argument", ["title", "summary"])
@pytest.mark.parametrize("value", ["", "  ", None, 3])
def test_report_rejects_missing_text(argument, value):
    arguments = {"title": "t", "summary": "s"} | {argument: value}
    with pytest.raises(ValueError, match=f"{argument}: expected a non-empty string, got {value!r}"):
        Report(**arguments)


def test_chart_rejects_what_is_not_a_figure():
    with pytest.raises(TypeError, match="figure: expected a plotly Figure, got dict"):
        new_report().add_chart({"data": []}, name="line", title="t", caption="c")


def test_chart_rejects_a_figure_without_traces():
    with pytest.raises(ValueError, match="the chart 'line' has no traces"):
        new_report().add_chart(go.Figure(), name="line", title="t", caption="c")


@pytest.mark.parametrize("name", ["", "Line", "a b", 'a"b', "1a", "line\n"])
def test_chart_rejects_names_that_are_no_identifiers(name):
    with pytest.raises(ValueError, match="name: expected lower_snake_case"):
        new_report().add_chart(line_figure(), name=name, title="t", caption="c")


def test_chart_rejects_a_second_use_of_a_name():
    report = new_report()
    report.add_chart(line_figure(), name="line", title="t", caption="c")
    with pytest.raises(ValueError, match="has a chart 'line' already"):
        report.add_chart(line_figure(), name="line", title="t", caption="c")


def test_chart_needs_a_caption():
    with pytest.raises(ValueError, match="caption: expected a non-empty string"):
        new_report().add_chart(line_figure(), name="line", title="t", caption="")


def test_table_rejects_ragged_rows():
    with pytest.raises(ValueError, match=r"rows: expected 2 cells .* got \['1'\]"):
        new_report().add_table(["a", "b"], [["1", "2"], ["1"]])


def test_key_figures_reject_none_at_all():
    with pytest.raises(ValueError, match="figures: expected at least one"):
        new_report().add_key_figures([])
