"""Inside Inductor: the pass, its cache in a second process, and failures that leave the graph as it was."""

import json
import subprocess
import sys

import pytest
import quincunx.fusion
import torch
from fusion.reference import assert_close, doubled, value_and_gradients
from quincunx.fusion import fuser, inductor
from torch import nn

SCRIPT = """
import json, sys, torch, quincunx.fusion
from torch._dynamo.utils import counters
def norm(x, w):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * w
x = torch.linspace(-1, 1, 60).reshape(3, 20)
f = torch.compile(norm, backend=sys.argv[1])
with torch.no_grad():
    y = f(x, torch.ones(20))
c = quincunx.fusion.counters()
print(json.dumps({"error": (y - norm(x, torch.ones(20))).abs().max().item(), "graphs": c["graphs"],
  "loaded": c["regions_loaded"], "run": c["regions_run"], "aten": c["regions_run_by_aten"],
  "compiled": c["kernels_compiled"], "hits": counters["inductor"]["fxgraph_cache_hit"]}))
"""


def run_script(environment, tmp_path, backend="inductor", **variables):
    caches = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"), "QX_CACHE_DIR": str(tmp_path / "kernels")}
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, backend],
        env=environment | caches | variables,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return json.loads(result.stdout.splitlines()[-1])


@pytest.mark.timeout(240)
def test_the_environment_switches_it_on_and_a_second_process_finds_graph_and_kernel(tmp_path, child_environment):
    first = run_script(child_environment, tmp_path, QUINCUNX_FUSION="1")
    assert (first["graphs"], first["run"], first["aten"]) == (1, 1, 0)
    assert first["compiled"] > 0 and first["error"] < 1e-6
    second = run_script(child_environment, tmp_path, QUINCUNX_FUSION="1")
    assert second["hits"] == 1 and second["graphs"] == 0
    assert (second["loaded"], second["run"], second["aten"], second["compiled"]) == (1, 1, 0, 0)
    assert second["error"] < 1e-6


def test_a_block_trains_as_in_float64(new_counts):
    block = nn.Sequential(nn.LayerNorm(24), nn.Linear(24, 24), nn.GELU())
    x = torch.randn(5, 24)
    compiled = torch.compile(block, options=quincunx.fusion.inductor_options())
    values, gradients = value_and_gradients(compiled, x)
    expected, expected_gradients = value_and_gradients(block.double(), *doubled([x]))
    assert_close(values[0], expected[0])
    assert_close(gradients[0], expected_gradients[0])
    assert new_counts()["graphs"] == 2
    assert new_counts()["regions_run"] >= 2


def test_inside_of_the_context_regions_are_fused_and_outside_none(new_counts):
    with quincunx.fusion.enabled():
        actual = torch.compile(lambda x: x.sin() * 2 + 1)(torch.ones(3))
    torch.testing.assert_close(actual, torch.ones(3).sin() * 2 + 1)
    assert new_counts()["regions_run"] == 1
    torch.compile(lambda x: x.sin() * 2 + 1)(torch.ones(3))
    assert new_counts()["graphs"] == 1


def test_a_failure_leaves_the_graph_and_is_logged(monkeypatch, caplog):
    def fail(*_args, **_kwargs):
        raise RuntimeError("no kernel today")

    monkeypatch.setattr(fuser, "_fuse", fail)
    x = torch.randn(4, 5)
    actual = torch.compile(lambda t: t.sin() * 2, backend="quincunx")(x)
    torch.testing.assert_close(actual, x.sin() * 2)
    assert "stays as it is: no kernel today" in caplog.text


def test_the_identity_of_the_pass_follows_its_settings():
    plain, checked = (inductor.FusionPass(quincunx.fusion.Settings(check=check)) for check in (False, True))
    assert plain.uuid() == inductor.FusionPass(quincunx.fusion.Settings()).uuid()
    assert plain.uuid() != checked.uuid()


def test_no_compiler_is_needed_by_the_backend(tmp_path, child_environment):
    found = run_script(child_environment, tmp_path, backend="quincunx", PATH=str(tmp_path), CXX="/nonexistent")
    assert found["run"] == 1 and found["compiled"] > 0


@pytest.mark.parametrize("key", [12345, 2**62])
def test_a_region_of_an_unknown_program_runs_through_aten(key, new_counts):
    program = (
        '{"symbols":[],"inputs":[["float32",[3]]],"nodes":[["aten.cumsum.default",[{"value":0},0],{}]],'
        '"outputs":[[1,[0]]]}'
    )
    (result,) = torch.ops.quincunx.fused_region([torch.ones(3)], key, program)
    assert result.tolist() == [1, 2, 3]
    assert new_counts()["regions_run_by_aten"] == 1
