import pytest
import torch
from quincunx.cli.bench import instruction_set
from quincunx.cli.bench.instruction_set import LEVELS, restrict_to


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


def test_dispatch_that_is_out_of_reach_is_said(monkeypatch):
    monkeypatch.setattr(instruction_set, "load_operators", lambda: None)
    monkeypatch.setattr(instruction_set, "_LIBRARY", "libnone.so")
    with pytest.raises(RuntimeError, match="--instruction-set: the kernels' dispatch cannot be restricted"):
        restrict_to("AVX2")
