"""Saving on two ranks and loading on one, two, three and four, through torch.distributed.checkpoint."""

import numpy as np
import torch
import torch.distributed.checkpoint as dcp
from muon.reference import random_matrix
from quincunx.muon import build_optimizer
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

BATCH = 12  # divides by every world size


def build(world: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(7, 5), nn.Linear(5, 3), nn.GELU(), nn.Linear(3, 7))
    mesh = init_device_mesh("cpu", (world,))
    for layer in (model[1], model[3], model):
        fully_shard(layer, mesh=mesh)
    return model, build_optimizer(model)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, rank: int, world: int, steps: range) -> None:
    for step in steps:
        tokens = torch.randint(7, (BATCH,), generator=torch.Generator().manual_seed(step)).chunk(world)[rank]
        nn.functional.cross_entropy(model(tokens), tokens.roll(1)).backward()
        optimizer.step()
        optimizer.zero_grad()


def whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def snapshot(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, np.ndarray]:
    """Every parameter and every state tensor, whole."""
    values = {}
    for name, param in model.named_parameters():
        values[name] = whole(param.detach()).numpy().copy()
        for key, value in optimizer.state[param].items():
            values[f"{name}.{key}"] = whole(value).numpy().copy()
    return values


def test_save_on_two_ranks_and_load_on_others(run_ranks, tmp_path, backend):
    check_save_and_load(run_ranks, tmp_path, backend, is_flat=False, worlds=(1, 2, 3, 4))


def test_flattened_states_load_too(run_ranks, tmp_path):
    check_save_and_load(run_ranks, tmp_path, "gloo", is_flat=True, worlds=(2, 3))


def check_save_and_load(run_ranks, tmp_path, backend: str, is_flat: bool, worlds: tuple[int, ...]) -> None:
    path = str(tmp_path / "checkpoint")
    options = StateDictOptions(flatten_optimizer_state_dict=is_flat)

    def save(rank, world):
        model, optimizer = build(world)
        train(model, optimizer, rank, world, range(2))
        model_state, optimizer_state = get_state_dict(model, optimizer, options=options)
        dcp.save({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=path)
        saved = snapshot(model, optimizer)
        train(model, optimizer, rank, world, range(2, 5))
        keys = sorted(optimizer_state if is_flat else optimizer_state["state"])
        return saved, snapshot(model, optimizer), keys

    def load(rank, world):
        model, optimizer = build(world)
        model_state, optimizer_state = get_state_dict(model, optimizer, options=options)
        dcp.load({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=path)
        set_state_dict(
            model, optimizer, model_state_dict=model_state, optim_state_dict=optimizer_state, options=options
        )
        loaded = snapshot(model, optimizer)
        train(model, optimizer, rank, world, range(2, 5))
        return loaded, snapshot(model, optimizer)

    (saved, finished, keys), other = run_ranks(2, save, backend=backend)
    assert keys == other[2]
    assert any(value.any() for name, value in saved.items() if name.endswith("momentum_buffer"))
    for world in worlds:
        loaded, resumed = run_ranks(world, load, backend=backend)[0]
        assert loaded.keys() == saved.keys()
        for name, value in saved.items():
            assert np.array_equal(loaded[name], value), (world, name)
        for name, value in finished.items() if world == 2 else ():
            assert np.array_equal(resumed[name], value), name


def test_plain_state_survives_torch_save(tmp_path):
    model = nn.Linear(4, 3)
    optimizer = build_optimizer(model)
    model.weight.grad, model.bias.grad = random_matrix(3, 4), torch.ones(3)
    optimizer.step()
    torch.save(optimizer.state_dict(), tmp_path / "state.pt")
    other = build_optimizer(model)
    other.load_state_dict(torch.load(tmp_path / "state.pt"))
    for param in model.parameters():
        for key, value in optimizer.state[param].items():
            assert torch.equal(other.state[param][key], value)
