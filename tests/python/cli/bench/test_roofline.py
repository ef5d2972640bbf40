import pathlib

import pytest
from quincunx.cli.bench import command
from quincunx.cli.bench.capability import Capability, Task
from quincunx.cli.bench.command import main
from quincunx.cli.bench.demand import load_demands
from quincunx.cli.bench.roofline import Limits, drawn_rows, figure, read_limits, write_html
from quincunx.cli.bench.row import Measurement, Work, judge
from quincunx.report import find_browser, inspect

CHECKOUT = pathlib.Path(__file__).resolve().parents[4]
LIMITS = [Limits(1, 100e9, 20e9, 80e9), Limits(2, 200e9, 40e9, 160e9)]


def row(name: str, operations: float, moved_bytes: float, seconds: float, threads: int = 1):
    work = Work(operations, moved_bytes)
    return judge("kernels", Measurement(name, name, "s", [seconds], threads=threads, work=work), None)


def test_roof_is_the_lower_of_bandwidth_and_peak():
    assert LIMITS[0].attainable(0.5) == 10e9
    assert LIMITS[0].attainable(5) == 100e9
    assert LIMITS[0].attainable(1000) == 100e9


def test_points_stand_at_their_intensity_and_rate():
    chart = figure([row("product", 4e9, 1e8, 0.05), row("sum", 1e6, 4e6, 0.001, threads=2)], LIMITS)
    points = {trace.name: trace for trace in chart.data if trace.mode == "markers"}
    assert list(points["kernels, 1 thread"].x) == [40] and list(points["kernels, 1 thread"].y) == [80]
    assert points["kernels, 1 thread"].text[0] == "product<br>80 % of the roof"
    assert list(points["kernels, 2 threads"].x) == [0.25] and list(points["kernels, 2 threads"].y) == [1]
    assert points["kernels, 2 threads"].text[0] == "sum<br>10 % of the roof"


def test_roofs_bend_where_bandwidth_reaches_the_peak():
    chart = figure([row("product", 4e9, 1e8, 0.05)], LIMITS)
    roofs = {trace.name: trace for trace in chart.data if trace.mode == "lines"}
    assert (roofs["1 thread, memory"].x[1], roofs["1 thread, memory"].y[1]) == (5, 100)
    assert (roofs["1 thread, L2 cache"].x[1], roofs["1 thread, L2 cache"].y[1]) == (1.25, 100)
    assert roofs["2 threads, memory"].y[-1] == 200


def test_rows_without_work_are_left_out():
    plain = judge("kernels", Measurement("plain", "plain", "s", [1.0]), None)
    product = row("product", 4e9, 1e8, 0.05)
    assert drawn_rows([plain, product]) == [product]


def test_page_needs_a_row(tmp_path):
    with pytest.raises(ValueError, match="rows: expected at least one measured row"):
        write_html(tmp_path / "page.html", {"cpu": "none"}, [], LIMITS)
    assert not (tmp_path / "page.html").exists()


def test_page_draws_in_a_browser(tmp_path):
    path = tmp_path / "page.html"
    write_html(path, {"cpu": "some"}, [row("product <b>", 4e9, 1e8, 0.05)], LIMITS)
    text = path.read_text()
    assert "cpu: some" in text and "product &lt;b&gt;" in text and "80 %" in text
    if find_browser() is None:
        pytest.skip("no Chromium")
    state = inspect(path)
    assert not state.errors
    assert [chart.name for chart in state.charts] == ["roofline"]


def test_command_writes_the_page(tmp_path, monkeypatch):
    measurement = Measurement("gemm_512x768x768", "gemm", "s", [1.0], {"peer": [1.0]}, work=Work(1e9, 1e7))
    task = Task((measurement.id,), lambda context: [measurement])
    demanded = load_demands(CHECKOUT / "benchmarks" / "demands.toml")["kernels"]
    rest = dict.fromkeys((row_id for row_id in demanded if row_id != measurement.id), "left out")
    monkeypatch.chdir(CHECKOUT)
    monkeypatch.setattr(
        command, "load_capability", lambda name, checkout: Capability("kernels", (task,), rest, lambda checkout: None)
    )
    monkeypatch.setattr(command, "load_reader", lambda checkout: lambda threads: 100.0)
    monkeypatch.setattr(command, "read_limits", lambda checkout: LIMITS)
    assert main(["kernels", "--quick", "--html", str(tmp_path / "page.html")]) == 0
    assert "Roofline" in (tmp_path / "page.html").read_text()


def test_page_is_for_kernels_alone(tmp_path, capsys):
    assert main(["muon", "--html", str(tmp_path / "page.html")]) == 2
    assert "--html: expected the capability kernels or all, got muon" in capsys.readouterr().err


def test_machine_is_read_where_the_loops_are_built():
    try:
        limits = read_limits(CHECKOUT)
    except RuntimeError as error:
        pytest.skip(str(error))
    assert [limit.threads for limit in limits] == [1, 2]
    for limit in limits:
        assert limit.operations > 1e9
        assert limit.cache_bytes > 1e9 and limit.memory_bytes > 1e8
