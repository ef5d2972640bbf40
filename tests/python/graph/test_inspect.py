"""qx inspect: what a .qxm file holds, from the command line."""

import json
import pathlib
import subprocess

import pytest
import torch
from quincunx._graph import import_graph, write_qxm
from quincunx._library import library_directory


@pytest.fixture(scope="module")
def qx():
    program = library_directory().parent / "bin" / "qx"
    if not program.exists():
        pytest.skip("no qx beside the libraries: the package is installed")
    return program


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    program = torch.export.export(torch.nn.Linear(3, 5).eval(), (torch.randn(2, 3),))
    path = tmp_path_factory.mktemp("inspect") / "model.qxm"
    write_qxm(path, [import_graph(program).graph], metadata={"model": "linear"}, tokenizer=b"abc")
    return path


def inspect(qx: pathlib.Path, *arguments: object) -> subprocess.CompletedProcess:
    command = [str(word) for word in (qx, "inspect", *arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_text_shows_sections_and_nodes(qx, model):
    done = inspect(qx, model)
    assert done.returncode == 0, done.stderr
    assert "section weights: 128 bytes" in done.stdout
    assert 'metadata {"model":"linear"}' in done.stdout
    assert "= aten.linear.default(%2, %0, %1)" in done.stdout


def test_json_describes_the_methods(qx, model):
    done = inspect(qx, model, "--json")
    assert done.returncode == 0, done.stderr
    described = json.loads(done.stdout)
    assert described["bytes"] == model.stat().st_size
    assert described["format"] == "1.0"
    assert described["metadata"] == {"model": "linear"}
    assert described["tokenizer_bytes"] == 3
    (method,) = described["methods"]
    assert method["name"] == "main"
    assert method["inputs"] == [{"name": "input", "type": "float32[2, 3]"}]
    assert method["operators"] == {"aten.linear.default": 1}


def test_a_damaged_file_fails_with_one_line(qx, model, tmp_path):
    damaged = tmp_path / "damaged.qxm"
    damaged.write_bytes(model.read_bytes()[:-1])
    done = inspect(qx, damaged)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("qx inspect: ") and "truncated" in done.stderr
    assert inspect(qx).returncode == 2
