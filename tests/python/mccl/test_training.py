"""What trains on torch.distributed trains on mccl: results equal those of one process with the whole batch."""

import copy

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

NUM_STEPS = 3
LEARNING_RATE = 0.1
# Sums of 8 to 32 products of order one in f32, in another order than the reference, over three steps.
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}


def make_model() -> torch.nn.Sequential:
    torch.manual_seed(5)
    # Odd sizes, so that shards are uneven.
    return torch.nn.Sequential(torch.nn.Linear(7, 13), torch.nn.Tanh(), torch.nn.Linear(13, 5), torch.nn.Linear(5, 3))


def make_batches(num_rows: int = 8) -> list[tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(6)
    return [(torch.randn(num_rows, 7), torch.randn(num_rows, 3)) for _ in range(NUM_STEPS)]


def train(model: torch.nn.Module, rank: int, world: int) -> list[float]:
    """SGD on the rank's rows of each batch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=0.9)
    losses = []
    for x, y in make_batches():
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x.chunk(world)[rank]), y.chunk(world)[rank])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def reference_state() -> dict[str, torch.Tensor]:
    model = make_model()
    train(model, 0, 1)
    return model.state_dict()


def full(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def assert_equals_reference(state: dict[str, torch.Tensor]) -> None:
    for name, want in reference_state().items():
        torch.testing.assert_close(full(state[name]).detach(), want, msg=lambda m, n=name: f"{n}: {m}", **TOLERANCE)


def shard(model: torch.nn.Sequential, mesh, **options) -> torch.nn.Module:
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


@pytest.mark.parametrize("world", [1, 2, 4])
def test_fsdp2_equals_one_process(run_ranks, world):
    def body(rank, world):
        model = shard(make_model(), init_device_mesh("cpu", (world,)))
        losses = train(model, rank, world)
        assert_equals_reference(model.state_dict())
        return losses

    first, second = run_ranks(world, body), run_ranks(world, body)
    assert first == second, "losses are the same bits in every run"


def test_hsdp_on_a_mesh_of_two_by_two(run_ranks):
    def body(rank, world):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
        model = shard(make_model(), mesh)
        train(model, rank, world)
        assert_equals_reference(model.state_dict())
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        return full(norm).item()

    assert len(set(run_ranks(4, body))) == 1


def test_fsdp2_in_bfloat16_with_a_divide_factor(run_ranks):
    def body(rank, world):
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        model = shard(make_model(), init_device_mesh("cpu", (world,)), mp_policy=policy)
        for module in (model, model[0], model[2], model[3]):
            module.set_gradient_divide_factor(4.0)
        x, y = make_batches()[0]
        torch.nn.functional.mse_loss(model(x).float(), y).backward()
        single = make_model()
        torch.nn.functional.mse_loss(single.bfloat16()(x.bfloat16()).float(), y).backward()
        for parameter, want in zip(model.parameters(), single.parameters(), strict=True):
            # The same rows on both ranks: the sum is twice the gradient, and bfloat16 has 8 bits.
            torch.testing.assert_close(full(parameter.grad), want.grad.float() * 2 / 4, rtol=2**-6, atol=2**-8)

    run_ranks(2, body)


@pytest.mark.parametrize("world", [2, 3])
def test_ddp_equals_one_process(run_ranks, world):
    def body(rank, world):
        model = DistributedDataParallel(make_model(), bucket_cap_mb=0.0001)
        optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=0.9)
        for x, y in make_batches(num_rows=4 * world):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x.chunk(world)[rank]), y.chunk(world)[rank]).backward()
            optimizer.step()
        single = make_model()
        optimizer = torch.optim.SGD(single.parameters(), lr=LEARNING_RATE, momentum=0.9)
        for x, y in make_batches(num_rows=4 * world):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(single(x), y).backward()
            optimizer.step()
        for got, want in zip(model.module.parameters(), single.parameters(), strict=True):
            torch.testing.assert_close(got, want, **TOLERANCE)

    run_ranks(world, body)


def test_ddp_with_a_communication_hook(run_ranks):
    def body(rank, world):
        model = DistributedDataParallel(make_model())

        def average(_state, bucket):
            future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
            return future.then(lambda done: done.value()[0] / world)

        model.register_comm_hook(None, average)
        train(model, rank, world)
        assert_equals_reference(model.module.state_dict())

    run_ranks(2, body)


@pytest.mark.parametrize("world", [2, 3, 4])
def test_dtensor_changes_placements(run_ranks, world):
    def body(rank, world):
        mesh = init_device_mesh("cpu", (world,))
        torch.manual_seed(7)
        a, b = torch.randn(5, 7), torch.randn(7, 6)  # Not divisible by any of the worlds.
        rows = distribute_tensor(a, mesh, [Shard(0)])
        torch.testing.assert_close(rows.full_tensor(), a, rtol=0, atol=0)
        columns = rows.redistribute(placements=[Shard(1)])
        torch.testing.assert_close(columns.full_tensor(), a, rtol=0, atol=0)
        product = columns @ distribute_tensor(b, mesh, [Shard(0)])
        torch.testing.assert_close(product.full_tensor(), a @ b, **TOLERANCE)
        scattered = product.redistribute(placements=[Shard(0)])
        torch.testing.assert_close(scattered.redistribute(placements=[Replicate()]).to_local(), a @ b, **TOLERANCE)

    run_ranks(world, body)


def test_checkpoint_saves_and_loads_across_world_sizes(run_ranks, tmp_path):
    folder = str(tmp_path / "checkpoint")

    def save(rank, world):
        model = shard(make_model(), init_device_mesh("cpu", (world,)))
        train(model, rank, world)
        checkpoint.save(get_model_state_dict(model), checkpoint_id=folder)

    def load(rank, world):
        model = shard(make_model(), init_device_mesh("cpu", (world,)))
        state = get_model_state_dict(model)
        checkpoint.load(state, checkpoint_id=folder)
        assert_equals_reference(state)

    run_ranks(4, save)
    run_ranks(2, load)


def test_asynchronous_checkpoint(run_ranks, tmp_path):
    folder = str(tmp_path / "checkpoint")

    def body(rank, world):
        model = shard(make_model(), init_device_mesh("cpu", (world,)))
        saved = copy.deepcopy({name: full(value) for name, value in model.state_dict().items()})
        checkpoint.async_save(get_model_state_dict(model), checkpoint_id=folder).result()
        state = {name: torch.zeros_like(value) for name, value in saved.items()}
        checkpoint.load(state, checkpoint_id=folder)
        for name, value in saved.items():
            torch.testing.assert_close(state[name], value, rtol=0, atol=0)

    run_ranks(2, body)


def test_pipeline_stages(run_ranks):
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    def body(rank, world):
        model = make_model()
        halves = [model[:2], model[2:]]
        stage = PipelineStage(halves[rank], rank, world, torch.device("cpu"))
        schedule = ScheduleGPipe(stage, n_microbatches=4, loss_fn=torch.nn.functional.mse_loss)
        x, y = make_batches()[0]
        losses = []
        if rank == 0:
            schedule.step(x)
        else:
            schedule.step(target=y, losses=losses)
        single = make_model()
        torch.nn.functional.mse_loss(single(x), y).backward()
        wants = [single[:2], single[2:]][rank]
        for got, want in zip(halves[rank].parameters(), wants.parameters(), strict=True):
            torch.testing.assert_close(got.grad, want.grad, **TOLERANCE)

    run_ranks(2, body)
