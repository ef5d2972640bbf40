"""Regions under FSDP2, and with compiled blocks in and beside them."""

import pytest
import torch
from quincunx.activation import Policy, Rule, checkpoint, checkpoint_wrapper
from torch import nn

POLICIES = {
    "recompute": {"default": "RECOMPUTE"},
    "mixed": {"rules": [Rule(op="aten.addmm", action="SAVE"), Rule(op="aten.tanh", action="SWAP")]},
    "swap": {"default": "SWAP"},
}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return x + nn.functional.dropout(self.down(torch.tanh(self.up(x))), 0.2)


def make_model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 8), Block(), Block())


def train(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trace = []
    for step in range(3):
        torch.manual_seed(step)
        loss = model(torch.randn(4, 8)).square().mean()
        loss.backward()
        trace += [loss.detach(), *(getattr(p.grad, "_local_tensor", p.grad).clone() for p in model.parameters())]
        optimizer.step()
        optimizer.zero_grad()
    return trace


@pytest.fixture
def one_process(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield torch.distributed.init_device_mesh("cpu", (1,))
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("reshard", [True, False])
def test_a_region_under_fsdp_trains_bitwise_the_same(one_process, policy, reshard):
    from torch.distributed.fsdp import fully_shard

    model = make_model()
    for block in model[1:]:
        checkpoint_wrapper(block, Policy(**POLICIES[policy]))
        fully_shard(block, mesh=one_process, reshard_after_forward=reshard)
    fully_shard(model, mesh=one_process, reshard_after_forward=reshard)
    got = train(model)
    plain = train(make_model())
    assert all(torch.equal(a, b) for a, b in zip(got, plain, strict=True))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("policy", POLICIES)
def test_a_compiled_block_in_a_region_trains_bitwise_the_same(policy):
    def run(checkpointed):
        torch._dynamo.reset()
        model = make_model()
        compiled = [torch.compile(block, backend="aot_eager") for block in model[1:]]
        policy_object = Policy(**POLICIES[policy])

        def forward(x):
            x = model[0](x)
            for block in compiled:
                x = checkpoint(block, x, policy=policy_object) if checkpointed else block(x)
            return x

        outside = nn.Module()
        outside.forward = forward
        outside.model = model
        return train(outside)

    assert all(torch.equal(a, b) for a, b in zip(run(True), run(False), strict=True))
