"""torch.compiler.save_cache_artifacts: another process, with empty caches, compiles no graph."""

import json
import subprocess
import sys

import pytest

SCRIPT = """
import json, pathlib, sys, torch, quincunx.fusion
from torch._dynamo.utils import counters
path = pathlib.Path(sys.argv[1])
if path.exists():
    torch.compiler.load_cache_artifacts(path.read_bytes())
def norm(x, w):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * w
x = torch.linspace(-1, 1, 60).reshape(3, 20)
f = torch.compile(norm, options=quincunx.fusion.inductor_options(cache_directory=sys.argv[2]))
with torch.no_grad():
    y = f(x, torch.ones(20))
if not path.exists():
    path.write_bytes(torch.compiler.save_cache_artifacts()[0])
c = quincunx.fusion.counters()
print(json.dumps({"error": (y - norm(x, torch.ones(20))).abs().max().item(), "graphs": c["graphs"],
  "loaded": c["regions_loaded"], "run": c["regions_run"], "aten": c["regions_run_by_aten"],
  "hits": counters["inductor"]["fxgraph_cache_hit"]}))
"""


def run(environment, artifacts, caches):
    directories = {"TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"), "QX_CACHE_DIR": str(caches / "kernels")}
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(artifacts), str(caches / "kernels")],
        env=environment | directories,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return json.loads(result.stdout.splitlines()[-1])


@pytest.mark.timeout(240)
def test_saved_artifacts_bring_the_graph_with_its_regions(tmp_path, child_environment):
    artifacts = tmp_path / "artifacts"
    first = run(child_environment, artifacts, tmp_path / "here")
    assert (first["graphs"], first["run"], first["aten"]) == (1, 1, 0)
    second = run(child_environment, artifacts, tmp_path / "there")
    assert second["hits"] == 1 and second["graphs"] == 0
    assert (second["loaded"], second["run"], second["aten"]) == (1, 1, 0)
    assert second["error"] < 1e-6
