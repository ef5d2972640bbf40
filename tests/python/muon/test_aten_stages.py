"""quincunx.muon.aten_stages, which serve devices other than CPUs: the same steps as the C++ operators."""

import pytest
import torch
from muon.reference import NEWTON_SCHULZ_ERROR, random_matrix, relative_error
from quincunx.muon import Muon, aten_stages, grid
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

SHAPES = [(5, 6), (7, 3), (1, 4), (3, 4, 6), (6, 6)]


def run(params: list[nn.Parameter], num_steps: int = 3) -> tuple[list[torch.Tensor], Muon]:
    optimizer = Muon(params)
    for step in range(num_steps):
        for i, param in enumerate(params):
            grad = random_matrix(*param.shape, seed=100 * step + i)
            if hasattr(param, "device_mesh"):
                grad = distribute_tensor(grad, param.device_mesh, param.placements)
            # The first parameter misses the second step.
            param.grad = None if (step, i) == (1, 0) else grad
        optimizer.step()
    return params, optimizer


def plain() -> list[nn.Parameter]:
    return [nn.Parameter(random_matrix(*shape, seed=i)) for i, shape in enumerate(SHAPES)]


@pytest.fixture
def aten(monkeypatch):
    monkeypatch.setattr(grid, "_NativeStages", aten_stages)


def assert_close(results, expected) -> None:
    for value, reference in zip(results, expected, strict=True):
        whole = value.full_tensor() if hasattr(value, "full_tensor") else value
        assert relative_error(whole, reference.double()) < NEWTON_SCHULZ_ERROR


def test_plain_parameters_equal_the_operators(monkeypatch):
    expected, native = run(plain())
    monkeypatch.setattr(grid, "_NativeStages", aten_stages)
    results, optimizer = run(plain())
    assert_close(results, expected)
    assert optimizer.counters == native.counters


@pytest.mark.parametrize("placements", [(Shard(0),), (Shard(1),), (Replicate(),)])
def test_sharded_parameters_equal_the_operators(run_ranks, placements):
    def body(rank, world):
        expected, _ = run(plain())
        grid._NativeStages = aten_stages
        mesh = init_device_mesh("cpu", (world,))
        results, _ = run([nn.Parameter(distribute_tensor(p.detach(), mesh, placements)) for p in plain()])
        assert_close(results, expected)

    run_ranks(2, body)


def test_half_precision(aten):
    param = nn.Parameter(random_matrix(5, 6).bfloat16())
    param.grad = random_matrix(5, 6, seed=1).bfloat16()
    Muon([param]).step()
    assert param.dtype == torch.bfloat16 and param.isfinite().all()


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1.0, 1e30])
def test_newton_schulz_does_not_depend_on_scale(scale):
    matrix = random_matrix(2, 4, 6)
    coefficients = [[3.4445, -4.7750, 2.0315]] * 5
    result = aten_stages.newton_schulz(matrix * scale, coefficients, 1e-7)
    expected = aten_stages.newton_schulz(matrix, coefficients, 1e-7) if scale else torch.zeros(2, 4, 6)
    assert relative_error(result, expected.double()) < NEWTON_SCHULZ_ERROR


@pytest.mark.parametrize(("is_gradient_there", "expected"), [(True, 0), (False, -1)])
def test_apply_names_the_tensor_whose_replicas_disagree(is_gradient_there, expected):
    held = torch.tensor([[0, 0, 2, 2, -1, -1, 0, 0, 0]])
    param, reply = torch.ones(2, 2), torch.zeros(5)
    rules = torch.tensor([[0.9, 1.0, 0.5, 0.1]], dtype=torch.float64)
    present = torch.tensor([int(is_gradient_there)])
    empty, flags = torch.empty(0), torch.empty(0, dtype=torch.int64)
    arguments = (held, [param], [torch.zeros(2, 2)], [torch.ones(2, 2)], present, rules, reply, empty, flags)
    assert aten_stages.apply(*arguments) == torch.ops.quincunx.muon_apply(*arguments) == expected
    assert torch.equal(param, torch.ones(2, 2))
