"""A .qxm file written and opened from Python."""

import json

import numpy as np
import pytest
import torch
from quincunx._graph import import_graph, open_qxm, write_qxm
from torch import nn


@pytest.fixture(scope="module")
def graphs():
    torch.manual_seed(0)
    module = nn.Linear(3, 5).eval()
    program = torch.export.export(module, (torch.randn(2, 3),))
    return module, [import_graph(program, name=name).graph for name in ("prefill", "decode")]


def test_round_trip(graphs, tmp_path):
    module, methods = graphs
    path = tmp_path / "model.qxm"
    write_qxm(path, methods, metadata={"model": "linear"}, tokenizer=b"\x00words")
    opened = open_qxm(path)
    assert [str(method) for method in opened.methods] == [str(method) for method in methods]
    assert json.loads(opened.metadata) == {"model": "linear"}
    assert opened.tokenizer == b"\x00words"
    for method in opened.methods:
        index = next(value.constant for value in method.values if value.name == "p_weight")
        weight = method.constant_bytes(index)[: 15 * 4].view(np.float32).reshape(5, 3)
        np.testing.assert_array_equal(weight, module.weight.detach().numpy())


def test_weights_of_both_methods_are_written_once(graphs, tmp_path):
    _, methods = graphs
    write_qxm(tmp_path / "one.qxm", methods[:1])
    write_qxm(tmp_path / "two.qxm", methods)
    one, two = ((tmp_path / name).read_bytes() for name in ("one.qxm", "two.qxm"))
    weight = graphs[0].weight.detach().numpy().tobytes()
    assert one.count(weight) == two.count(weight) == 1


def test_a_damaged_file_is_one_clear_error(graphs, tmp_path):
    path = tmp_path / "model.qxm"
    write_qxm(path, graphs[1])
    damaged = bytearray(path.read_bytes())
    damaged[-100] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(RuntimeError, match='model.qxm" is damaged: the checksum of section "weights"'):
        open_qxm(path)
    path.write_bytes(b"PK\x03\x04" + bytes(100))
    with pytest.raises(RuntimeError, match="is no .qxm file"):
        open_qxm(path)
    with pytest.raises(RuntimeError, match="No such file"):
        open_qxm(tmp_path / "missing.qxm")


def test_two_methods_of_one_name_are_an_error(graphs, tmp_path):
    with pytest.raises(ValueError, match='methods: expected different names, got "prefill" twice'):
        write_qxm(tmp_path / "model.qxm", [graphs[1][0], graphs[1][0]])
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_graph_is_refused(tmp_path):
    with pytest.raises(TypeError, match="expected graphs, got None"):
        write_qxm(tmp_path / "none.qxm", [None])
