"""Training with a compiled model has the losses of eager: alone, and in layers under FSDP2 with checkpoints."""

import json
import pathlib
import subprocess
import sys

import pytest
import torch
from model import Llama, ModelConfig
from quincunx.fusion import explain
from torch.nn import functional

# Float32 rounding in another order, fed back through 20 steps.
LOSS_RELATIVE = 1e-4
CONFIG = ModelConfig(vocab_size=64, dim=32, num_layers=2, num_heads=2, hidden_dim=48)


def losses(compiled, num_steps=20):
    model = Llama(CONFIG)
    model.initialize(0)
    step_model = torch.compile(model, backend="quincunx") if compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(1)
    text = torch.randint(0, CONFIG.vocab_size, (4, 17), generator=generator)
    result = []
    for _ in range(num_steps):
        loss = functional.cross_entropy(step_model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        result.append(loss.item())
    return result


def test_twenty_steps_of_the_tours_model(new_counts):
    expected = losses(compiled=False)
    assert losses(compiled=True) == pytest.approx(expected, rel=LOSS_RELATIVE, abs=0)
    assert expected[-1] < 0.8 * expected[0]
    # Two norms, an activation and two rotations a layer, forward and backward.
    assert new_counts()["regions"] >= 10
    assert new_counts()["regions_run"] >= 20 * new_counts()["regions"]
    assert new_counts()["regions_run_by_aten"] == 0


@pytest.mark.parametrize("name", ["rms_norm", "layer_norm"])
def test_a_norm_that_saves_its_statistics_is_recognised(name):
    norm = torch.nn.RMSNorm(24) if name == "rms_norm" else torch.nn.LayerNorm(24)
    x, y = torch.randn(5, 24, requires_grad=True), torch.randn(5, 24)
    found = explain(lambda x, y: norm(x + y), x, y)
    assert [graph.report.name.split()[0] for graph in found.graphs] == ["forward", "backward"]
    assert found.patterns == {name: 1}
    # The sums over the rows, for weight and bias, stand in the region of the operand's gradient.
    assert [len(graph.report.regions) for graph in found.graphs] == [1, 1]


@pytest.mark.timeout(200)
def test_layers_compiled_under_fsdp2_on_mccl_with_checkpoints(tmp_path, child_environment):
    worker = pathlib.Path(__file__).with_name("sharded_training_worker.py")
    output = tmp_path / "losses.json"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    result = subprocess.run(
        [*command, str(worker), str(output), "10"],
        capture_output=True,
        text=True,
        timeout=180,
        env=child_environment,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    found = json.loads(output.read_text())
    assert len(found["eager"]) == 11
    assert found["compiled"] == pytest.approx(found["eager"], rel=LOSS_RELATIVE, abs=0)
    assert found["checkpointed"] == pytest.approx(found["eager"], rel=LOSS_RELATIVE, abs=0)
    assert found["counters"]["regions_run"] > 0
    assert found["counters"]["regions_run_by_aten"] == 0
    # A packed copy of a gathered weight would keep in memory what FSDP frees.
    assert found["counters"]["weights_packed"] == 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_maximum_that_was_stored_is_found_again_by_its_gradient(dtype):
    def function(x, weight):
        return (x + weight).amax(0), (x - weight).mean(1), x.abs().sum()

    generator = torch.Generator().manual_seed(3)
    x, weight = torch.randn(5, 24, generator=generator).to(dtype), torch.randn(24, generator=generator).to(dtype)
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="quincunx")
    leaf = x.clone().requires_grad_()
    maximum, mean, total = compiled(leaf, weight.requires_grad_())
    (maximum.sum() + mean.sum() + total).backward()
    # The sum's rounding decides which element is the largest: the exact gradient of the rounded sum.
    chosen = ((x + weight) == (x + weight).amax(0)).double()
    expected = chosen / chosen.sum(0) + 1 / 24 + x.double().sign()
    assert torch.allclose(leaf.grad.double(), expected, rtol=0, atol=4 * torch.finfo(dtype).eps)
