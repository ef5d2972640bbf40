"""examples/mccl: the losses of every way to share work, against one process, gloo, a second run and a restart."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
from mccl.ranks import SECONDS, free_port

EXAMPLE = pathlib.Path(__file__).resolve().parents[3] / "examples" / "mccl" / "parallel_training.py"
GLOO = dist.distributed_c10d.ProcessGroupGloo  # before tests are forbidden to use it
NUM_STEPS = 8
# Sums of up to 64 products of order one in f32 in other orders, through eight steps of AdamW.
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("parallel_training", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def losses_of(example, run_ranks, tmp_path):
    """losses_of(kind, world, backend=..., ...) -> the losses that each rank saw."""
    num_calls = 0

    def run(kind, world, *, backend="mccl", **options):
        nonlocal num_calls
        num_calls += 1
        urls = {"mccl": f"mccl://127.0.0.1:{free_port()}", "gloo": f"file://{tmp_path}/gloo{num_calls}"}

        def start(rank, world):
            dist.distributed_c10d.ProcessGroupGloo = GLOO if backend == "gloo" else None
            dist.init_process_group(backend, urls[backend], rank=rank, world_size=world, timeout=SECONDS)

        return run_ranks(world, lambda rank, world: example.train(kind, **options), start=start)

    return run


def losses_of_one_process(example) -> list[float]:
    model = example.build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=example.LEARNING_RATE)
    losses = []
    for step in range(NUM_STEPS):
        x_BD, y_BD = example.batch_of(step)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x_BD), y_BD)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize(
    ("kind", "world"),
    [
        ("ddp", 2),
        ("fsdp", 2),
        ("hsdp", 4),
        ("tensor", 2),
        ("pipeline", 4),
        *(pytest.param(*more, marks=pytest.mark.nightly) for more in [("ddp", 4), ("fsdp", 4), ("tensor", 4)]),
        *(pytest.param(*more, marks=pytest.mark.nightly) for more in [("hsdp", 2), ("pipeline", 2)]),
    ],
)
def test_losses_are_those_of_one_process_of_gloo_and_of_every_run(example, losses_of, kind, world):
    first, second = losses_of(kind, world), losses_of(kind, world)
    assert first == second, "the same bits in every run"
    assert all(of_rank == first[0] for of_rank in first), "and on every rank"
    losses = list(first[0].values())
    assert losses[-1] < 0.5 * losses[0]
    torch.testing.assert_close(losses, losses_of_one_process(example), **TOLERANCE)
    torch.testing.assert_close(losses, list(losses_of(kind, world, backend="gloo")[0].values()), **TOLERANCE)


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_job_that_goes_on_from_its_checkpoint_has_the_losses_of_one_that_never_stopped(losses_of, tmp_path, kind):
    whole = losses_of(kind, 2)[0]
    losses_of(kind, 2, num_steps=5, folder=tmp_path / "run")  # saved after the fourth step
    after = losses_of(kind, 2, folder=tmp_path / "run")[0]
    assert after == {step: whole[step] for step in range(4, NUM_STEPS)}


def run_torchrun(world: int, *arguments: str, max_restarts: int = 0) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(world)]
    command += ["--max-restarts", str(max_restarts), "--monitor-interval", "0.1", str(EXAMPLE), *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=280, env=environment)


@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("kind", "world"), [("ddp", 2), ("fsdp", 2), ("hsdp", 4), ("tensor", 2), ("pipeline", 4)])
def test_it_runs_under_torchrun(losses_of, kind, world):
    result = run_torchrun(world, kind)
    assert result.returncode == 0, result.stderr[-3000:]
    lines = [f"step {step}: loss {loss!r}" for step, loss in losses_of(kind, world)[0].items()]
    assert result.stdout.splitlines() == lines


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_torchrun_starts_a_failed_job_again_from_its_checkpoint(losses_of, tmp_path):
    result = run_torchrun(2, "fsdp", "--checkpoint", str(tmp_path / "run"), "--fail-at", "5", max_restarts=1)
    assert result.returncode == 0, result.stderr[-3000:]
    lines = [f"step {step}: loss {loss!r}" for step, loss in losses_of("fsdp", 2)[0].items() if step >= 4]
    assert result.stdout.splitlines() == lines


def _spawned(rank: int, url: str, folder: str) -> None:
    sys.path.insert(0, str(EXAMPLE.parent))
    import parallel_training

    torch.set_num_threads(1)
    dist.init_process_group("mccl", url, rank=rank, world_size=2, timeout=SECONDS)
    losses = parallel_training.train("ddp")
    pathlib.Path(folder, f"rank{rank}").write_text(repr(losses))
    dist.destroy_process_group()


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_it_runs_in_processes_that_were_spawned(losses_of, tmp_path):
    url = f"mccl://127.0.0.1:{free_port()}"
    torch.multiprocessing.spawn(_spawned, args=(url, str(tmp_path)), nprocs=2)
    assert [(tmp_path / f"rank{rank}").read_text() for rank in range(2)] == [repr(losses_of("ddp", 2)[0])] * 2
