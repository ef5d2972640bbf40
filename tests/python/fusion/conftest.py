import os
import pathlib
import sys

import pytest
import torch
from quincunx.fusion import counters

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
# The tour's model is a plain module beside its program.
sys.path.insert(0, str(REPOSITORY / "examples" / "tour"))


@pytest.fixture(autouse=True)
def fresh_compiler(tmp_path_factory, monkeypatch):
    """Every test compiles anew; kernels and Inductor's graphs, which skip the pass, stay in the session's folders."""
    monkeypatch.setenv("QX_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "kernels"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "inductor"))
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


@pytest.fixture
def new_counts():
    """new_counts() -> how much each counter has grown since the test began."""
    before = counters()

    def grown():
        return {name: value - before[name] for name, value in counters().items() if isinstance(value, int)}

    return grown


@pytest.fixture(scope="session")
def child_environment():
    """For Python processes of a test."""
    path = os.pathsep.join(filter(None, [str(REPOSITORY / "examples" / "tour"), os.environ.get("PYTHONPATH")]))
    return os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
