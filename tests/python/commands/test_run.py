"""`qx run`: a converted model on .npy files, in a process without Python."""

import os
import pathlib
import subprocess

import numpy as np
import pytest
import torch
from quincunx._graph import import_graph, write_qxm

ROOT = pathlib.Path(__file__).resolve().parents[3]
QX = pathlib.Path(os.environ.get("QUINCUNX_BUILD_DIR", ROOT / "build" / "release")) / "bin" / "qx"
pytestmark = pytest.mark.skipif(not QX.exists(), reason=f"no {QX}")

# Sums of some f32 products.
TOLERANCE = 2e-5


def qx_run(*arguments):
    command = [QX, "run", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.GELU(), torch.nn.Linear(12, 3)).eval()
    rows = torch.export.Dim("rows", min=1, max=64)
    program = torch.export.export(module, (torch.randn(4, 6),), dynamic_shapes=({0: rows},))
    graph = import_graph(program, name="forward").graph
    path = tmp_path_factory.mktemp("model") / "model.qxm"
    write_qxm(path, [graph])
    return module, path, graph.values[graph.inputs[0]].name, graph.values[graph.outputs[0]].name, graph.symbols[0].name


def test_outputs_equal_eager(model, tmp_path):
    module, path, x_name, y_name, _ = model
    x = torch.randn(5, 6)
    np.save(tmp_path / "x.npy", x.numpy())
    done = qx_run(path, "--input", f"{x_name}={tmp_path / 'x.npy'}", "--output-dir", tmp_path / "out", "--threads", 1)
    assert done.returncode == 0, done.stderr
    y = np.load(tmp_path / "out" / f"{y_name}.npy")
    np.testing.assert_allclose(y, module(x).detach().numpy(), rtol=TOLERANCE, atol=TOLERANCE)
    assert "wrote" in done.stdout and "ran     forward" in done.stdout


def test_inputs_are_random_where_none_are_given(model):
    _, path, x_name, _, symbol = model
    done = qx_run(path, "--size", f"{symbol}=7", "--profile", "--runs", 2)
    assert done.returncode == 0, done.stderr
    assert f"input   {x_name} float32[7, 6] (random)" in done.stdout
    assert "float32[7, 3], mean" in done.stdout
    assert "qx.linear" in done.stdout and done.stdout.count("ran     forward") == 2


def test_a_trace_names_the_operators(model, tmp_path):
    _, path, *_ = model
    done = qx_run(path, "--trace", tmp_path / "trace.json")
    assert done.returncode == 0, done.stderr
    assert "qx.linear" in (tmp_path / "trace.json").read_text()


def test_bad_input_is_one_clear_error(model, tmp_path):
    _, path, x_name, *_ = model
    np.save(tmp_path / "wide.npy", np.zeros((5, 7), np.float32))
    np.save(tmp_path / "double.npy", np.zeros((5, 6)))
    np.save(tmp_path / "columns.npy", np.asfortranarray(np.zeros((5, 6), np.float32)))
    (tmp_path / "text.npy").write_text("hello")
    (tmp_path / "cut.npy").write_bytes((tmp_path / "wide.npy").read_bytes()[:-1])
    broken = tmp_path / "broken.qxm"
    broken.write_bytes(path.read_bytes()[:100])

    def error_of(*arguments):
        done = qx_run(*arguments)
        assert done.returncode == 1 and done.stderr.startswith("qx run: ") and done.stderr.count("\n") == 1, done
        return done.stderr

    def with_file(name):
        return error_of(path, "--input", f"{x_name}={tmp_path / name}")

    assert "got [5, 7]" in with_file("wide.npy")
    assert "got float64[5, 6]" in with_file("double.npy")
    assert "column-major" in with_file("columns.npy")
    assert "it is not an .npy file" in with_file("text.npy")
    assert "it holds 139 bytes" in with_file("cut.npy")
    assert "nothing.npy" in with_file("nothing.npy")
    assert "broken.qxm" in error_of(broken)
    assert "missing.qxm" in error_of(tmp_path / "missing.qxm")
    assert f"has no input 'z', expected one of {x_name}" in error_of(path, "--input", "z=x.npy")
    assert "expected name=value, got 'x'" in error_of(path, "--input", "x")
    assert "expected symbol=number" in error_of(path, "--size", "q=3")
    assert "expected one of 'forward'" in error_of(path, "--method", "decode")
    assert "--runs: expected at least 1, got 0" in error_of(path, "--runs", 0)
    assert qx_run().returncode == 2


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64"])
def test_files_of_every_dtype_survive(dtype, tmp_path):
    module = torch.nn.Identity()
    x = torch.arange(6).reshape(2, 3).to(getattr(torch, dtype))
    graph = import_graph(torch.export.export(module, (x,)), name="forward").graph
    write_qxm(tmp_path / "identity.qxm", [graph])
    np.save(tmp_path / "x.npy", x.numpy())
    name, output = (graph.values[ids[0]].name for ids in (graph.inputs, graph.outputs))
    arguments = ["--input", f"{name}={tmp_path / 'x.npy'}", "--output-dir", tmp_path]
    done = qx_run(tmp_path / "identity.qxm", *arguments)
    assert done.returncode == 0, done.stderr
    assert np.array_equal(np.load(tmp_path / f"{output}.npy"), x.numpy())


def test_sizes_beyond_memory_are_errors(model):
    _, path, x_name, _, symbol = model
    for size in (2**46, 2**62):
        wide = qx_run(path, "--size", f"{symbol}={size}")
        assert wide.returncode == 1 and wide.stderr.startswith("qx run: ") and wide.stderr.count("\n") == 1, wide


@pytest.mark.parametrize("verb", ["run", "inspect"])
def test_output_that_cannot_be_written_is_an_error(verb, model):
    with open("/dev/full", "w") as full:
        done = subprocess.run([QX, verb, model[1]], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (1, f"qx {verb}: standard output cannot be written\n")
