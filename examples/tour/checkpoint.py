"""Checkpoints of a training run through torch.distributed.checkpoint."""

import pathlib
import shutil
import warnings
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

LATEST = "latest"


def latest(directory: pathlib.Path) -> tuple[int, pathlib.Path] | None:
    """Step and folder of the last checkpoint that was written completely."""
    marker = directory / LATEST
    if not marker.exists():
        return None
    name = marker.read_text()
    return int(name.removeprefix("step")), directory / name


class Checkpoints:
    """Saves and loads model, optimizer and schedule together; all ranks call each method."""

    def __init__(
        self,
        directory: pathlib.Path,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        scheduler: torch.optim.lr_scheduler.LRScheduler,
    ):
        self._directory = directory
        self._model = model
        self._optimizer = optimizer
        self._scheduler = scheduler

    def _state(self) -> dict[str, Any]:
        model_state, optimizer_state = get_state_dict(self._model, self._optimizer)
        return {"model": model_state, "optimizer": optimizer_state, "scheduler": self._scheduler.state_dict()}

    def save(self, step: int) -> None:
        name = f"step{step:06d}"
        dcp.save(self._state(), checkpoint_id=self._directory / name)
        # The marker moves only when every rank's file is there, so a kill at any moment leaves a whole checkpoint.
        dist.barrier()
        if dist.get_rank() == 0:
            previous = latest(self._directory)
            temporary = self._directory / f"{LATEST}.new"
            temporary.write_text(name)
            temporary.replace(self._directory / LATEST)
            if previous is not None and previous[1].name != name:
                shutil.rmtree(previous[1])

    def load_latest(self) -> int:
        """Loads the last whole checkpoint and returns its step; 0 where there is none."""
        found = latest(self._directory)
        if found is None:
            return 0
        step, path = found
        state = self._state()
        dcp.load(state, checkpoint_id=path)
        set_state_dict(
            self._model, self._optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
        )
        self._scheduler.load_state_dict(state["scheduler"])
        return step


def load_model(directory: pathlib.Path, model: torch.nn.Module) -> int:
    """Loads the weights of the last whole checkpoint into a plain model in one process; returns the step."""
    found = latest(directory)
    if found is None:
        raise FileNotFoundError(f"no complete checkpoint in {directory}")
    step, path = found
    state = {"model": model.state_dict()}
    with warnings.catch_warnings():
        # Loading in one process is what is wanted here, and torch warns of just that.
        warnings.filterwarnings("ignore", message="torch.distributed is disabled", category=UserWarning)
        dcp.load(state, checkpoint_id=path, no_dist=True)
    model.load_state_dict(state["model"])
    return step
