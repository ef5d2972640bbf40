"""One worker of the tour's training. Start it with torchrun:

    torchrun --nproc-per-node 2 --max-restarts 1 examples/tour/train.py RUN_DIRECTORY [--await-kill]

RUN_DIRECTORY holds settings.json and corpus.json, both written by tour.py; records and checkpoints go there. A
worker that finds a checkpoint resumes from it, so a restart by torchrun goes on where the last one was taken. With
--await-kill rank 0 stops after settings.kill_after_step until it is killed, while the others run into a collective.
"""

import argparse
import datetime
import json
import os
import pathlib
import sys
import time

import checkpoint
import compiled
import guards
import memory
import model as llama
import numpy
import quincunx.mccl
import settings as tour_settings
import step_trace
import torch
import torch.distributed as dist
from optimizers import build_optimizer, matrices_orthogonalized, num_matrices
from quincunx.activation import Policy
from records import Recorder
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional


class Batches:
    """Windows of the training text in an order that depends on the seed alone: step s always reads the same ones."""

    def __init__(self, tokens: numpy.ndarray, settings: tour_settings.Settings, rank: int):
        self._tokens = tokens
        self._length = settings.sequence_length
        self._per_rank = settings.sequences_per_rank
        self._per_step = settings.sequences_per_rank * settings.world_size
        self._rank = rank
        num_windows = (len(tokens) - 1) // self._length
        if num_windows < 1:
            raise ValueError(f"train text: {len(tokens)} tokens are fewer than a window of {self._length} and the next")
        generator = torch.Generator().manual_seed(settings.seed)
        self._order = torch.randperm(num_windows, generator=generator).tolist()

    def of_step(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        first = (step - 1) * self._per_step + self._rank * self._per_rank
        chosen = [self._order[(first + index) % len(self._order)] for index in range(self._per_rank)]
        return windows(self._tokens, chosen, self._length)


def windows(tokens: numpy.ndarray, chosen: list[int], length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and next tokens, both [len(chosen), length]."""
    rows = numpy.stack([tokens[index * length : index * length + length + 1] for index in chosen])
    ids = torch.from_numpy(rows.astype(numpy.int64))
    return ids[:, :-1], ids[:, 1:]


def next_token_loss(model: torch.nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


def mean_over_ranks(value: torch.Tensor) -> float:
    total = value.detach().clone()
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


def learning_rate_factor(step: int, settings: tour_settings.Settings) -> float:
    """Linear warm-up, a plateau, a linear decay to zero over the last `decay_fraction` of the steps."""
    remaining = (settings.steps - step) / max(1.0, settings.decay_fraction * settings.steps)
    return min(1.0, (step + 1) / settings.warmup_steps, remaining)


def build_model(
    settings: tour_settings.Settings,
    mesh: DeviceMesh,
    *,
    policy: Policy | None = None,
    kernels: pathlib.Path | None = None,
) -> torch.nn.Module:
    """The model with the same weights on every run, sharded over the mesh; its layers are under the policy if there is
    one, and compiled if there is a folder for kernels."""
    model = llama.Llama(settings.model)
    model.initialize(settings.seed)
    if kernels is not None:
        compiled.compile_layers(model.layers, settings, kernels)
    memory.wrap(model.layers, policy)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


class Worker:
    def __init__(self, run_directory: pathlib.Path, *, await_kill: bool):
        self.settings = tour_settings.read(run_directory / "settings.json")
        corpus = json.loads((run_directory / "corpus.json").read_text())
        self.rank = dist.get_rank()
        self.held_out = numpy.load(corpus["held_out_path"], mmap_mode="r")
        self.batches = Batches(numpy.load(corpus["train_path"], mmap_mode="r"), self.settings, self.rank)
        attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
        self.await_kill = await_kill and attempt == 0 and self.rank == 0
        self.recorder = Recorder(run_directory / "records", attempt=attempt, rank=self.rank)
        self.mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        self.model = build_model(
            self.settings,
            self.mesh,
            policy=memory.policy_for(self.settings, run_directory),
            kernels=run_directory / "kernels",
        )
        self.optimizer = build_optimizer(self.model, self.settings)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: learning_rate_factor(step, self.settings)
        )
        self.checkpoints = checkpoint.Checkpoints(
            run_directory / "checkpoints", self.model, self.optimizer, self.scheduler
        )

    def run(self) -> None:
        first_step = self.checkpoints.load_latest() + 1
        self.recorder.write(
            "start",
            pid=os.getpid(),
            first_step=first_step,
            num_parameters=llama.num_parameters(self.model),
            num_matrices=num_matrices(self.model),
        )
        for step in range(first_step, self.settings.steps + 1):
            self._step(step)
            if self.await_kill and step == self.settings.kill_after_step:
                self._wait_for_the_kill()
            if step % self.settings.evaluate_every == 0 and step < self.settings.steps:
                self._evaluate(step, whole=False)
            if step % self.settings.checkpoint_every == 0 or step == self.settings.steps:
                self.checkpoints.save(step)
                self.recorder.write("checkpoint", step=step)
        self._evaluate(self.settings.steps, whole=self.settings.evaluate_all_at_end)

    def _wait_for_the_kill(self) -> None:
        """Otherwise a short run can be over, or past its next checkpoint, before tour.py reads the step's record."""
        time.sleep(self.settings.collective_timeout_s)
        raise RuntimeError(
            f"step {self.settings.kill_after_step}: --await-kill was given, and nobody killed this worker within "
            f"{self.settings.collective_timeout_s} s"
        )

    def _step(self, step: int) -> None:
        start_s = time.perf_counter()
        wanted = step == self.settings.trace_step
        with (
            step_trace.recorded(self.recorder, step, wanted=wanted),
            memory.recorded(self.recorder, step, wanted=wanted) as begins,
        ):
            begins("forward")
            with step_trace.phase("forward"):
                loss = next_token_loss(self.model, *self.batches.of_step(step))
            begins("backward")
            with step_trace.phase("backward"):
                loss.backward()
            begins("optimizer")
            with step_trace.phase("optimizer"):
                self.optimizer.step()
        self.optimizer.zero_grad()
        self.scheduler.step()
        mean_loss = mean_over_ranks(loss)
        if not numpy.isfinite(mean_loss):
            raise RuntimeError(f"the loss of step {step} is {mean_loss}")
        self.recorder.write(
            "step",
            step=step,
            loss=mean_loss,
            seconds=time.perf_counter() - start_s,
            matrices_orthogonalized=matrices_orthogonalized(self.optimizer),
        )

    @torch.no_grad()
    def _evaluate(self, step: int, *, whole: bool) -> None:
        """Mean loss over held-out windows: evenly spaced ones, or all of them. Every rank takes every n-th window."""
        length = self.settings.sequence_length
        num_windows = (len(self.held_out) - 1) // length
        num_chosen = num_windows if whole else min(num_windows, self.settings.evaluation_windows)
        # All ranks run the same number of forward passes, because each gathers parameters from the others.
        world_size = dist.get_world_size()
        num_chosen -= num_chosen % world_size
        if num_chosen == 0:
            raise ValueError(f"held-out text: {num_windows} windows of {length} tokens for {world_size} workers")
        chosen = [index * num_windows // num_chosen for index in range(self.rank, num_chosen, world_size)]
        total = torch.zeros((), dtype=torch.float64)
        for first in range(0, len(chosen), 8):
            part = chosen[first : first + 8]
            total += next_token_loss(self.model, *windows(self.held_out, part, length)).double() * len(part)
        loss = mean_over_ranks(total / len(chosen))
        self.recorder.write("evaluation", step=step, loss=loss, num_windows=num_chosen, whole=whole)


def collective_calls(mesh: DeviceMesh) -> dict[str, int]:
    """Calls by operation on the mesh, as counted by mccl itself; none where another backend serves the mesh."""
    group = mesh.get_group()
    if dist.get_backend(group) != "mccl":
        return {}
    operations = quincunx.mccl.statistics(group)["operations"]
    return {name: counts["calls"] for name, counts in operations.items()}


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run_directory", type=pathlib.Path, metavar="RUN_DIRECTORY")
    parser.add_argument("--await-kill", action="store_true", help="rank 0 stops after settings.kill_after_step")
    return parser.parse_args(arguments)


def main(run_directory: pathlib.Path, *, await_kill: bool) -> None:
    # Two ranks share the machine's cores.
    torch.set_num_threads(1)
    settings = tour_settings.read(run_directory / "settings.json")
    with guards.gloo_refused():
        dist.init_process_group(settings.backend, timeout=datetime.timedelta(seconds=settings.collective_timeout_s))
        worker = Worker(run_directory, await_kill=await_kill)
        worker.run()
        worker.recorder.write(
            "done",
            collective_calls=collective_calls(worker.mesh),
            activation=memory.counts(),
            fusion=compiled.counts(settings),
        )
        dist.destroy_process_group()


if __name__ == "__main__":
    options = parse_arguments(sys.argv[1:])
    main(options.run_directory, await_kill=options.await_kill)
