"""One rank of a small training under FSDP2 on mccl: eager, compiled layer by layer, and compiled with checkpoints.

torchrun --nproc-per-node 2 sharded_training_worker.py OUTPUT.json STEPS
"""

import datetime
import json
import pathlib
import sys

import quincunx.fusion
import quincunx.mccl  # noqa: F401 (registers the backend)
import torch
import torch.distributed as dist
from model import Llama, ModelConfig
from quincunx.activation import Policy, Rule, checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional

CONFIG = ModelConfig(vocab_size=64, dim=32, num_layers=2, num_heads=2, hidden_dim=48)


def sharded_model(*, compiled: bool, checkpointed: bool) -> torch.nn.Module:
    model = Llama(CONFIG)
    model.initialize(0)
    policy = Policy([Rule(op="aten.mm", action="SAVE")])
    for layer in model.layers:
        if compiled:
            layer.forward = torch.compile(layer.forward, backend="quincunx")
        if checkpointed:
            checkpoint_wrapper(layer, policy)
        fully_shard(layer)
    return fully_shard(model)


def losses(model: torch.nn.Module, num_steps: int) -> list[float]:
    """Of each step, and of an evaluation after them."""
    generator = torch.Generator().manual_seed(dist.get_rank())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    result = []
    for step in range(num_steps + 1):
        tokens = torch.randint(0, CONFIG.vocab_size, (2, 17), generator=generator)
        with torch.set_grad_enabled(step < num_steps):
            loss = functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        if step < num_steps:
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        total = loss.detach().clone()
        dist.all_reduce(total)
        result.append(total.item())
    return result


def main(output: pathlib.Path, num_steps: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("mccl", timeout=datetime.timedelta(seconds=60))
    init_device_mesh("cpu", (2,))
    found = {
        "eager": losses(sharded_model(compiled=False, checkpointed=False), num_steps),
        "compiled": losses(sharded_model(compiled=True, checkpointed=False), num_steps),
        "checkpointed": losses(sharded_model(compiled=True, checkpointed=True), num_steps),
    }
    found["counters"] = quincunx.fusion.counters()
    if dist.get_rank() == 0:
        output.write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), int(sys.argv[2]))
