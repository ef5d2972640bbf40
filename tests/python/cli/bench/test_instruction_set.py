import os
import pathlib

import pytest
import torch
from quincunx.cli.bench import instruction_set
from quincunx.cli.bench.instruction_set import LEVELS, restrict_as_parent, restrict_to, restricted
from quincunx.cli.bench.workers import Workers

FOLDER = pathlib.Path(__file__).parent


@pytest.fixture
def unrestricted():
    yield
    restrict_to(None)


def exponentials() -> torch.Tensor:
    return torch.ops.quincunx.unary(torch.linspace(-80, 80, 4001), "exp")


@pytest.mark.needs_build
def test_kernels_run_on_the_level_that_was_asked_for(unrestricted):
    found = {}
    for level in (None, *LEVELS):
        restrict_to(level)
        found[level] = exponentials()
    assert not torch.equal(found["portable"], found["AVX2"])  # multiply and add are fused in one of them alone
    restrict_to(None)
    assert torch.equal(exponentials(), found[None])


@pytest.mark.needs_build
def test_ranks_run_on_the_level_of_their_parent():
    with restricted("portable"):
        here, pair = exponentials(), Workers(2, FOLDER)
        try:
            there = pair.run("rank_functions", "exponentials")
        finally:
            pair.close()
    assert all(torch.equal(found, here) for found in there)
    assert not torch.equal(exponentials(), here)


@pytest.mark.needs_build
def test_restriction_ends_with_its_block(unrestricted, monkeypatch):
    monkeypatch.delenv("QX_BENCH_INSTRUCTION_SET", raising=False)
    restrict_to(None)
    free = exponentials()
    with pytest.raises(ValueError, match="within"), restricted("portable"):
        assert os.environ["QX_BENCH_INSTRUCTION_SET"] == "portable"
        raise ValueError("within")
    assert "QX_BENCH_INSTRUCTION_SET" not in os.environ
    assert torch.equal(exponentials(), free)
    restrict_as_parent()  # of which nothing was asked
    assert torch.equal(exponentials(), free)


# As where Highway is linked into the kernels' library: another copy that can be loaded must not pass for theirs.
@pytest.mark.needs_build
@pytest.mark.parametrize("library", ["libnone.so", "libquincunx_fma_peak.so"])
def test_dispatch_that_is_out_of_reach_is_said(library, monkeypatch):
    monkeypatch.setattr(instruction_set, "load_operators", lambda: None)
    monkeypatch.setattr(instruction_set, "_LIBRARY", library)
    with pytest.raises(RuntimeError, match="--instruction-set: the kernels' dispatch cannot be restricted"):
        restrict_to("AVX2")
