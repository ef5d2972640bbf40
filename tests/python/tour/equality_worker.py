"""One rank of the comparison: the tour's training against DDP on gloo with the reference Muon, on the same data.

torchrun --nproc-per-node 2 equality_worker.py OUTPUT.json STEPS
"""

import datetime
import json
import pathlib
import sys

import memory
import optimizers
import quincunx.mccl  # noqa: F401 (registers the backend)
import settings as tour_settings
import torch
import torch.distributed as dist
import train
from model import Llama, ModelConfig
from muon_reference import ReferenceMuon
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

SETTINGS = tour_settings.Settings(
    steps=1000,
    sequences_per_rank=4,
    sequence_length=32,
    checkpoint_every=1,
    kill_after_step=2,
    trace_step=3,
    vocab_size=128,
    model=ModelConfig(vocab_size=128, dim=48, num_layers=2, num_heads=4, hidden_dim=112),
)


def sources() -> torch.Tensor:
    """Tokens that can be learned: four of five follow from the one before them, the others are noise."""
    generator = torch.Generator().manual_seed(5)
    noise = torch.randint(0, 128, (40000,), generator=generator)
    is_noise = torch.rand(40000, generator=generator) < 0.2
    tokens = [1]
    for index in range(1, 40000):
        following = (37 * tokens[-1] + 11) % 128
        tokens.append(int(noise[index]) if is_noise[index] else following)
    return torch.tensor(tokens, dtype=torch.int32)


def losses(model, optimizer_list, batches: train.Batches, num_steps: int) -> list[float]:
    result = []
    for step in range(1, num_steps + 1):
        loss = train.next_token_loss(model, *batches.of_step(step))
        loss.backward()
        for optimizer in optimizer_list:
            optimizer.step()
            optimizer.zero_grad()
        result.append(train.mean_over_ranks(loss))
    return result


def reference_model() -> Llama:
    model = Llama(SETTINGS.model)
    model.initialize(SETTINGS.seed)
    return model


def main(output: pathlib.Path, num_steps: int) -> None:
    torch.set_num_threads(1)
    timeout = datetime.timedelta(seconds=100)
    dist.init_process_group("mccl", timeout=timeout)
    batches = train.Batches(sources().numpy(), SETTINGS, dist.get_rank())
    folder = output.parent
    policy = memory.policy_for(SETTINGS, folder)
    sharded = train.build_model(SETTINGS, init_device_mesh("cpu", (2,)), policy=policy, kernels=folder / "kernels")
    ours = losses(sharded, [optimizers.build_optimizer(sharded, SETTINGS)], batches, num_steps)

    replica = reference_model()
    matrices = optimizers.layer_matrices(replica)
    rest = [parameter for parameter in replica.parameters() if all(parameter is not matrix for matrix in matrices)]
    reference = [
        ReferenceMuon(matrices, lr=SETTINGS.muon_lr, weight_decay=SETTINGS.muon_weight_decay),
        torch.optim.AdamW(rest, lr=SETTINGS.adamw_lr, betas=(0.9, 0.95), weight_decay=0.0),
    ]
    gloo = dist.new_group(backend="gloo", timeout=timeout)
    theirs = losses(DistributedDataParallel(replica, process_group=gloo), reference, batches, num_steps)
    if dist.get_rank() == 0:
        output.write_text(json.dumps({"ours": ours, "reference": theirs}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), int(sys.argv[2]))
