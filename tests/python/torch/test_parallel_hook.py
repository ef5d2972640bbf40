"""Inside PyTorch the core's loops run on PyTorch's intra-op threads."""

import os
import pathlib
import subprocess
import sys

import pytest
import torch
from quincunx._library import load_operators


@pytest.fixture(autouse=True)
def operators():
    load_operators()
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def own_pool_threads() -> list[str]:
    names = [path.read_text().strip() for path in pathlib.Path("/proc/self/task").glob("*/comm")]
    return [name for name in names if name.startswith("qx-pool")]


def orthogonalised(x: torch.Tensor) -> torch.Tensor:
    return torch.ops.quincunx.newton_schulz(x, [3.4445, -4.7750, 2.0315] * 5, 1e-7, "direct")


@pytest.mark.parametrize("count", [1, 2, 3])
def test_num_threads_follows_torch(count):
    torch.set_num_threads(count)
    assert torch.ops.quincunx.num_threads() == count


def test_torch_threads_serve_the_loops():
    torch.set_num_threads(2)
    orthogonalised(torch.randn(256, 256))
    assert own_pool_threads() == []


def test_results_keep_their_bits_for_any_thread_count():
    x = torch.randn(200, 136, generator=torch.Generator().manual_seed(0))
    results = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        results.append(orthogonalised(x))
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_the_environment_of_the_own_pool_is_not_consulted():
    program = (
        "import torch\nfrom quincunx._library import load_operators\nload_operators()\n"
        "torch.set_num_threads(2)\nprint(torch.ops.quincunx.num_threads())"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "QX_NUM_THREADS": "nonsense"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "2"
    assert "QX_NUM_THREADS" not in result.stderr
