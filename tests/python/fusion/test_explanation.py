"""explain(): every region, every candidate with its guard, and the drawings."""

import xml.etree.ElementTree as ElementTree

import pytest
import torch
from quincunx.fusion import Settings, explain, pattern_names
from quincunx.fusion.drawing import draw
from torch import fx, nn
from torch.nn import functional


def rms_norm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * weight


def test_a_recognised_pattern_and_its_switch():
    x, weight = torch.randn(3, 16), torch.randn(16)
    assert "rms_norm" in pattern_names()
    found = explain(rms_norm, x, weight)
    assert found.patterns.get("rms_norm") == 1
    without = explain(rms_norm, x, weight, settings=Settings(disable=["rms_norm"]))
    assert "rms_norm" not in without.patterns
    assert without.num_regions > 0


def test_a_failed_guard_is_told():
    def norm_of_rows(x, weight):
        return x * torch.rsqrt(x.pow(2).mean(0, keepdim=True) + 1e-5) * weight

    found = explain(norm_of_rows, torch.randn(3, 16), torch.randn(16))
    assert "rms_norm" not in found.patterns
    reasons = [entry.reason for graph in found.graphs for entry in graph.report.candidates if not entry.fused]
    assert reasons and all(reasons)


def test_forward_and_backward_are_told_and_no_gradient_is_left():
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8))
    found = explain(model, torch.randn(4, 8))
    assert [graph.report.name.split()[0] for graph in found.graphs] == ["forward", "backward"]
    assert all(parameter.grad is None for parameter in model.parameters())
    assert "aten.addmm.default" in found.graphs[0].report.left
    assert "left to PyTorch: 1 x aten.addmm.default" in str(found)


def test_each_region_has_a_time_and_its_bytes():
    found = explain(lambda x, y: functional.gelu(x) * y, torch.randn(64, 8), torch.randn(64, 8))
    (graph,) = found.graphs
    (region,) = graph.report.regions
    time = graph.times[region.key]
    assert 0 < time.seconds < 1
    assert time.num_bytes == 3 * 64 * 8 * 4
    assert "us, 0.006 MB, " in str(found)


def test_the_page_shows_both_graphs(tmp_path):
    found = explain(lambda x: functional.gelu(x) * torch.sigmoid(x) + 1, torch.randn(4, 8))
    found.write_html(tmp_path / "fusion.html")
    page = (tmp_path / "fusion.html").read_text()
    assert page.count("<svg") == 2
    assert found.graphs[0].report.regions[0].name in page
    before, after = (
        ElementTree.fromstring(found.graphs[0].before_svg),
        ElementTree.fromstring(found.graphs[0].after_svg),
    )
    boxes = [len(list(picture.iter("{http://www.w3.org/2000/svg}rect"))) for picture in (before, after)]
    assert boxes[0] > boxes[1] >= 1


def test_a_wide_graph_is_drawn_in_lines():
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output([graph.call_function(torch.sin, (x,)) for _ in range(30)])
    picture = ElementTree.fromstring(draw(graph, {"sin": 0}, {"sin": "a & b"}))
    assert float(picture.get("width")) < 2100
    assert len(list(picture.iter("{http://www.w3.org/2000/svg}rect"))) == 30


def test_what_cannot_be_called_is_refused():
    with pytest.raises(ValueError, match="function is 3; expected a module"):
        explain(3)
