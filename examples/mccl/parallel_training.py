"""Trains one small model on CPUs in each of torch's ways to share work between processes, over mccl:

    torchrun --nproc-per-node 4 examples/mccl/parallel_training.py hsdp

`ddp` copies the model, `fsdp` and `hsdp` shard it, `tensor` splits its matrices, `pipeline` its layers. All see the
same batches, so that their losses are those of one process but for the order of sums. With --checkpoint FOLDER the
job saves while it trains, and goes on from there when torchrun starts it again:

    torchrun --nproc-per-node 2 --max-restarts 1 examples/mccl/parallel_training.py fsdp --checkpoint run --fail-at 5

Shape suffixes: B batch, D features.
"""

import argparse
import datetime
import os
import pathlib
import sys
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from quincunx import mccl
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

NUM_BLOCKS, WIDTH, HIDDEN, BATCH = 4, 16, 32, 16
LEARNING_RATE = 0.02
SAVE_EVERY = 2

Step = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # (x_BD, y_BD) of all ranks -> the loss of all ranks


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def forward(self, x_BD: torch.Tensor) -> torch.Tensor:
        return x_BD + self.down(torch.nn.functional.gelu(self.up(x_BD)))


def build_model() -> nn.Sequential:
    torch.manual_seed(0)  # The same weights on every rank.
    return nn.Sequential(*(Block() for _ in range(NUM_BLOCKS)))


def batch_of(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    x_BD = torch.randn(BATCH, WIDTH, generator=generator)
    return x_BD, x_BD.flip(1)


def step_on_rows(model: nn.Module) -> Step:
    """Each rank has its rows of the batch; the mean of the losses is the loss of the whole."""

    def step(x_BD: torch.Tensor, y_BD: torch.Tensor) -> torch.Tensor:
        rank, world = dist.get_rank(), dist.get_world_size()
        loss = nn.functional.mse_loss(model(x_BD.chunk(world)[rank]), y_BD.chunk(world)[rank])
        loss.backward()
        mean = loss.detach().clone()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        return mean

    return step


def ddp() -> tuple[nn.Module, Step]:
    model = DistributedDataParallel(build_model())
    return model, step_on_rows(model)


def _sharded(shape: tuple[int, ...]) -> tuple[nn.Module, Step]:
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard")[-len(shape) :])
    model = build_model()
    for module in (*model, model):
        fully_shard(module, mesh=mesh)
        # Buffers that the other ranks of this host read where they lie.
        module.set_allocate_memory_from_process_group_for_comm(dist.get_backend() == "mccl")
    return model, step_on_rows(model)


def fsdp() -> tuple[nn.Module, Step]:
    return _sharded((dist.get_world_size(),))


def hsdp() -> tuple[nn.Module, Step]:
    return _sharded((dist.get_world_size() // 2, 2))


def tensor() -> tuple[nn.Module, Step]:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = build_model()
    for block in model:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})

    def step(x_BD: torch.Tensor, y_BD: torch.Tensor) -> torch.Tensor:
        loss = nn.functional.mse_loss(model(x_BD), y_BD)
        loss.backward()
        return loss.detach()

    return model, step


def pipeline() -> tuple[nn.Module, Step]:
    rank, world = dist.get_rank(), dist.get_world_size()
    per_rank = NUM_BLOCKS // world
    part = build_model()[rank * per_rank : (rank + 1) * per_rank]
    stage = PipelineStage(part, rank, world, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, n_microbatches=4, loss_fn=nn.functional.mse_loss)

    def step(x_BD: torch.Tensor, y_BD: torch.Tensor) -> torch.Tensor:
        losses: list[torch.Tensor] = []
        inputs = (x_BD,) if rank == 0 else ()
        schedule.step(*inputs, **({"target": y_BD, "losses": losses} if rank == world - 1 else {}))
        mean = torch.stack(losses).mean() if losses else torch.zeros(())
        dist.broadcast(mean, src=world - 1)
        return mean

    return part, step


KINDS = {"ddp": ddp, "fsdp": fsdp, "hsdp": hsdp, "tensor": tensor, "pipeline": pipeline}


class Checkpoints:
    """Model and optimizer in one folder a save; the last complete one is where a job goes on."""

    def __init__(self, folder: pathlib.Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._folder, self._model, self._optimizer = folder, model, optimizer
        self._latest = folder / "latest"

    def save(self, step: int) -> None:
        model_state, optimizer_state = get_state_dict(self._model, self._optimizer)
        state = {"model": model_state, "optimizer": optimizer_state}
        # Tensors are copied at once and written in the background, while the ranks may go on.
        checkpoint.async_save(state, checkpoint_id=self._folder / f"step{step}").result()
        if dist.get_rank() == 0:
            self._latest.with_suffix(".new").write_text(str(step))
            self._latest.with_suffix(".new").rename(self._latest)

    def load(self) -> int:
        """The number of steps that are done."""
        found = [int(self._latest.read_text()) if dist.get_rank() == 0 and self._latest.exists() else 0]
        dist.broadcast_object_list(found, src=0)
        if found[0] == 0:
            return 0
        model_state, optimizer_state = get_state_dict(self._model, self._optimizer)
        state = {"model": model_state, "optimizer": optimizer_state}
        checkpoint.load(state, checkpoint_id=self._folder / f"step{found[0]}")
        set_state_dict(
            self._model, self._optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
        )
        return found[0]


def train(
    kind: str, *, num_steps: int = 8, folder: pathlib.Path | None = None, fail_at: int | None = None
) -> dict[int, float]:
    """Step -> loss, of the steps that this start of the job has done. Needs the default group."""
    model, step_of = KINDS[kind]()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    checkpoints = Checkpoints(folder, model, optimizer) if folder else None
    losses = {}
    for step in range(checkpoints.load() if checkpoints else 0, num_steps):
        if step == fail_at and dist.get_rank() == dist.get_world_size() - 1:
            sys.exit("this rank fails, as it was told to")
        optimizer.zero_grad()
        losses[step] = step_of(*batch_of(step)).item()
        optimizer.step()
        if checkpoints and (step + 1) % SAVE_EVERY == 0:
            checkpoints.save(step + 1)
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--checkpoint", type=pathlib.Path)
    parser.add_argument("--fail-at", type=int, help="the last rank of the first start ends before this step")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    mccl.init_from_environment(timeout=datetime.timedelta(seconds=60))
    first_start = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
    fail_at = arguments.fail_at if first_start else None
    losses = train(arguments.kind, num_steps=arguments.steps, folder=arguments.checkpoint, fail_at=fail_at)
    for step, loss in losses.items() if dist.get_rank() == 0 else ():
        print(f"step {step}: loss {loss!r}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
