"""Steps on sharded parameters of two ranks: ours, the naive one and torch.optim.Muon on the same DTensors."""

import functools
import time
from collections.abc import Callable

import torch
from quincunx.cli.bench.capability import Context, Task
from quincunx.cli.bench.rounds import Rounds, slowest
from quincunx.cli.bench.row import Measurement
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from ..kernels.newton_schulz_rows import by_torch
from ..mccl.groups import BACKENDS, connect, in_step

_RANKS = 2
# id -> (parameters, shape of each)
SETS = {
    "step_74x24x1024": (74, (24, 1024)),
    "step_8x8x512x256": (8, (8, 512, 256)),
    "step_6x768x3072": (6, (768, 3072)),
}
_MANY_RANKS = 4
_LEARNING_RATE, _MOMENTUM, _WEIGHT_DECAY, _RMS = 1e-3, 0.95, 0.1, 0.2
# One step in f32 from the same parameters; the sides round differently.
_LARGEST_DIFFERENCE = 1e-4


def parameters(set_id: str, mesh: DeviceMesh) -> list[nn.Parameter]:
    """Sharded on dimension 0, with gradients, and the same on every call."""
    count, shape = SETS[set_id]
    generator = torch.Generator().manual_seed(0)
    made = []
    for _ in range(count):
        values, grads = torch.randn(shape, generator=generator), torch.randn(shape, generator=generator)
        param = nn.Parameter(distribute_tensor(values, mesh, [Shard(0)], src_data_rank=None))
        param.grad = distribute_tensor(grads, mesh, [Shard(0)], src_data_rank=None)
        made.append(param)
    return made


def _orthogonalized(update: torch.Tensor) -> torch.Tensor:
    if update.ndim == 2:
        return by_torch(update)
    return torch.stack([by_torch(matrix) for matrix in update])


class NaiveMuon:
    """What is written first: every rank gathers every update, orthogonalises all of it and keeps its part."""

    def __init__(self, params: list[nn.Parameter]) -> None:
        self.params = params
        self.momenta = [torch.zeros_like(param.detach()) for param in params]

    @torch.no_grad()
    def step(self) -> None:
        for param, momentum in zip(self.params, self.momenta, strict=True):
            momentum.lerp_(param.grad, 1 - _MOMENTUM)
            update: DTensor = param.grad.lerp(momentum, _MOMENTUM)
            whole = _orthogonalized(update.full_tensor())
            part = distribute_tensor(whole, param.device_mesh, param.placements, src_data_rank=None)
            scale = _RMS * max(param.shape[-2:]) ** 0.5
            param.mul_(1 - _LEARNING_RATE * _WEIGHT_DECAY).add_(part, alpha=-_LEARNING_RATE * scale)


def _ours(params: list[nn.Parameter]) -> torch.optim.Optimizer:
    from quincunx.muon import Muon

    return Muon(params, lr=_LEARNING_RATE, momentum=_MOMENTUM, weight_decay=_WEIGHT_DECAY, matched_adamw_rms=_RMS)


def _torch_muon(params: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Muon(
        params, lr=_LEARNING_RATE, momentum=_MOMENTUM, weight_decay=_WEIGHT_DECAY, adjust_lr_fn="match_rms_adamw"
    )


def _check_equal(set_id: str, mesh: DeviceMesh) -> None:
    """A step that computes something else is not worth timing."""
    ours, naive = parameters(set_id, mesh), parameters(set_id, mesh)
    _ours(ours).step()
    NaiveMuon(naive).step()
    for a, b in zip(ours, naive, strict=True):
        difference = (a.to_local() - b.to_local()).abs().max().item()
        if not difference <= _LARGEST_DIFFERENCE:
            raise RuntimeError(f"our step and the naive one differ by {difference:.3g}")


def time_steps(
    rank: int, num_ranks: int, store: str, *, set_id: str, backend: str, peer: str, rounds: int
) -> dict[str, list[float]]:
    """Runs on each rank. Each side owns its parameters."""
    mesh = DeviceMesh.from_group(connect(rank, num_ranks, store)[backend], "cpu")
    make_peer: Callable = NaiveMuon if peer == "naive" else _torch_muon
    if peer == "naive":
        _check_equal(set_id, mesh)
    calls = {"ours": _ours(parameters(set_id, mesh)).step, peer: make_peer(parameters(set_id, mesh)).step}
    return in_step(calls, Rounds(rounds), 1, time.perf_counter)


def count_matrices(rank: int, num_ranks: int, store: str, *, set_id: str) -> tuple[int, int]:
    """Matrices that a step orthogonalises on this rank, and all that there are."""
    mesh = DeviceMesh.from_group(connect(rank, num_ranks, store)["mccl"], "cpu")
    optimizer = _ours(parameters(set_id, mesh))
    optimizer.step()
    return int(optimizer.counters["matrices_orthogonalized"]), int(optimizer.counters["matrices_total"])


def count_work(rank: int, num_ranks: int, store: str, *, set_id: str) -> tuple[float, float]:
    """FLOPs of the most loaded rank by the plan, and those of the naive step, which does all in the direct form."""
    mesh = DeviceMesh.from_group(connect(rank, num_ranks, store)["gloo"], "cpu")
    optimizer = _ours(parameters(set_id, mesh))
    planned = max(sum(values) for values in zip(*[grid.plan.rank_flops for grid, _ in optimizer._grids], strict=True))
    count, shape = SETS[set_id]
    small, large = sorted(shape[-2:])
    num_matrices = count * (shape[0] if len(shape) == 3 else 1)
    return float(planned), float(num_matrices * 5 * (4 * small**2 * large + 2 * small**3))


def _milliseconds(cost: float) -> float:
    return cost * 1e3


def _name(set_id: str) -> str:
    count, shape = SETS[set_id]
    return f"step, {count} x ({','.join(map(str, shape))}), {_RANKS} ranks"


def _measured(set_id: str, backend: str, peer: str, row_id: str, context: Context) -> Measurement:
    of_ranks = context.workers(_RANKS).run(
        __name__, "time_steps", set_id=set_id, backend=backend, peer=peer, rounds=context.num_steps
    )
    seconds = {name: slowest([values[name] for values in of_ranks]) for name in of_ranks[0]}
    peers = {peer: seconds[peer]}
    return Measurement(
        row_id, _name(set_id), "ms", seconds["ours"], peers, variant=f"over {backend}", value_of=_milliseconds
    )


def measure_step(set_id: str, backend: str, context: Context) -> list[Measurement]:
    return [_measured(set_id, backend, "naive", set_id, context)]


def measure_torch_muon(context: Context) -> list[Measurement]:
    return [_measured("step_74x24x1024", "gloo", "torch.optim.Muon", "torch_muon", context)]


def measure_redundancy(context: Context) -> list[Measurement]:
    counts = context.workers(_RANKS).run(__name__, "count_matrices", set_id="step_8x8x512x256")
    done, there_are = sum(own for own, _ in counts), counts[0][1]
    name = "orthogonalised matrices over all ranks, 8 x (8,512,256), 2 ranks"
    return [Measurement("redundancy", name, "matrices", [float(done)], {"matrices": [float(there_are)]})]


def measure_work(context: Context) -> list[Measurement]:
    planned, naive = context.workers(_MANY_RANKS).run(__name__, "count_work", set_id="step_6x768x3072")[0]
    name = f"step, 6 x (768,3072), {_MANY_RANKS} ranks, FLOPs of the most loaded one"
    return [Measurement("step_6x768x3072_4_ranks", name, "GFLOP", [planned * 1e-9], {"naive": [naive * 1e-9]})]


TASKS = (
    *(
        Task((set_id,), functools.partial(measure_step, set_id, backend), cores=_RANKS)
        for set_id in SETS
        for backend in BACKENDS
    ),
    Task(("torch_muon",), measure_torch_muon, cores=_RANKS),
    Task(("redundancy",), measure_redundancy, cores=0),
    Task(("step_6x768x3072_4_ranks",), measure_work, cores=0),
)
