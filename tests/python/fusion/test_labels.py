"""Parts of a model that the user names."""

import pytest
import quincunx.fusion
import torch
from fusion.reference import assert_close
from quincunx.fusion import Settings
from quincunx.fusion.backend import compile_with
from quincunx.fusion.labels import label_of
from torch import fx


def labelled(x):
    with quincunx.fusion.region("first"):
        y = torch.sigmoid(x) * x
    with quincunx.fusion.region("second"):
        z = torch.tanh(y) + 1
    return torch.exp(z) * 2


def regions_of(function, *inputs):
    reports = []
    backend = compile_with(Settings(), lambda report, _before, _after: reports.append(report))
    result = torch.compile(function, backend=backend, fullgraph=True)(*inputs)
    return result, [region for report in reports for region in report.regions]


def test_labels_part_regions_and_name_them():
    x = torch.randn(4, 9)
    result, regions = regions_of(labelled, x)
    assert_close(result, labelled(x.double()))
    names = [region.name for region in regions]
    assert [name.rsplit("_", 1)[0] for name in names[:2]] == ["first", "second"]
    assert len(names) == 3 and names[2].startswith("fused_")


def test_no_pattern_crosses_a_label():
    def function(x, y):
        with quincunx.fusion.region("activation"):
            x = torch.nn.functional.silu(x)
        return x * y + 1

    _, regions = regions_of(function, torch.randn(4, 9), torch.randn(4, 9))
    assert sorted(region.name.rsplit("_", 1)[0] for region in regions)[0] == "activation"
    assert len(regions) == 2 and not any("swiglu" in region.patterns for region in regions)


def test_without_labels_it_is_one_region():
    _, regions = regions_of(lambda x: torch.exp(torch.tanh(torch.sigmoid(x) * x) + 1) * 2, torch.randn(4, 9))
    assert len(regions) == 1


def test_a_single_operator_may_be_labelled():
    def function(x):
        with quincunx.fusion.region("alone"):
            return torch.tanh(x)

    _, regions = regions_of(function, torch.randn(4, 9))
    assert [region.name for region in regions] == ["alone_0"]


def test_labels_reach_the_backward_graph():
    _, regions = regions_of(lambda x: labelled(x).sum(), torch.randn(4, 9, requires_grad=True))
    assert {region.name.rsplit("_", 1)[0] for region in regions} >= {"first", "second"}


def test_outside_of_a_compilation_it_does_nothing():
    x = torch.randn(3)
    with quincunx.fusion.region("nothing"):
        assert_close(torch.relu(x) + 1, x.double().clamp(min=0) + 1)


@pytest.mark.parametrize("name", [3, "", "two words", "x" * 65])
def test_a_wrong_name_is_refused(name):
    with pytest.raises(ValueError, match="expected an identifier"):
        quincunx.fusion.region(name)


def test_the_label_of_a_node_without_one_is_empty():
    assert label_of(fx.Graph().placeholder("x")) == ""
