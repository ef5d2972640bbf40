"""A step of FSDP2 whose communication weighs more than its computation, over mccl and over gloo in turn."""

import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from quincunx.cli.bench.capability import Context, Task
from quincunx.cli.bench.rounds import Rounds, slowest
from quincunx.cli.bench.row import Measurement
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from .groups import BACKENDS, connect, in_step

_RANKS = 2
# Two rows of 1024 features through 24 MiB of weights: moving them takes longer than multiplying.
_FEATURES, _LAYERS, _ROWS = 1024, 6, 2
_LOSS_STEPS = 5


def _toy(group: dist.ProcessGroup) -> nn.Module:
    torch.manual_seed(0)
    layers = [layer for _ in range(_LAYERS) for layer in (nn.Linear(_FEATURES, _FEATURES), nn.Tanh())]
    model = nn.Sequential(*layers)
    mesh = DeviceMesh.from_group(group, "cpu")
    for layer in layers[::2]:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> torch.Tensor:
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def _trainer(group: dist.ProcessGroup, rank: int) -> Callable[[], torch.Tensor]:
    model = _toy(group)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch = torch.randn(_ROWS, _FEATURES, generator=torch.Generator().manual_seed(rank))
    return lambda: _step(model, optimizer, batch)


def time_steps(rank: int, num_ranks: int, store: str, *, rounds: int) -> dict[str, list[float]]:
    """Runs on each rank."""
    groups = connect(rank, num_ranks, store)
    calls = {backend: _trainer(groups[backend], rank) for backend in BACKENDS}
    return in_step(calls, Rounds(rounds), 1, time.perf_counter)


def losses(rank: int, num_ranks: int, store: str) -> list[float]:
    """The losses of a fresh training over mccl on this rank."""
    step = _trainer(connect(rank, num_ranks, store)["mccl"], rank)
    return [step().item() for _ in range(_LOSS_STEPS)]


def measure_step(context: Context) -> list[Measurement]:
    of_ranks = context.workers(_RANKS).run(__name__, "time_steps", rounds=context.rounds().count)
    seconds = {backend: slowest([values[backend] for values in of_ranks]) for backend in BACKENDS}
    name, peers = "FSDP2 step, communication-bound toy, 2 ranks", {"gloo": seconds["gloo"]}
    return [Measurement("fsdp2_step", name, "ms", seconds["mccl"], peers, value_of=lambda cost: cost * 1e3)]


def measure_losses(context: Context) -> list[Measurement]:
    workers = context.workers(_RANKS)
    first, second = (workers.run(__name__, "losses") for _ in range(2))
    pairs = [pair for ranks in zip(first, second, strict=True) for pair in zip(*ranks, strict=True)]
    num_equal = float(sum(a == b for a, b in pairs))
    name = "FSDP2 losses that are bit-equal between two runs"
    return [Measurement("fsdp2_losses", name, "losses", [num_equal], {"all": [float(len(pairs))]})]


TASKS = (
    Task(("fsdp2_step",), measure_step, cores=_RANKS),
    Task(("fsdp2_losses",), measure_losses, cores=0),
)
