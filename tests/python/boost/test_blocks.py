"""The denoising step as Run tells it from timesteps, and the norms that norm_by_kernel leaves alone."""

import pytest
import torch
from quincunx.boost.blocks import Run, norm_by_kernel
from quincunx.boost.counters import Counters
from torch import nn


@pytest.mark.parametrize(
    ("timesteps", "steps"),
    [
        ([900, 900, 500, 500, 100, 100], [0, 0, 1, 1, 2, 2]),  # two branches of guidance
        ([900, 500, 900, 500], [0, 1, 0, 1]),  # two runs
        ([1000], [0]),
        ([0.0, 0.0], [0, 0]),
    ],
)
def test_a_smaller_timestep_is_the_next_step(timesteps, steps):
    run, seen = Run(dense_steps=1), []
    for timestep in timesteps:
        run.see(torch.tensor([float(timestep)]))
        seen.append(run.step)
        assert run.is_dense == (run.step < 1)
    assert seen == steps


def test_a_timestep_a_token_counts_by_its_greatest():
    run = Run()
    run.see(torch.tensor([[0.0, 900.0]]))
    run.see(torch.tensor([[0.0, 800.0]]))
    assert run.step == 1


def test_norms_that_are_not_plain_run_as_they_are():
    counters, x = Counters(), torch.randn(2, 8)
    plain = nn.RMSNorm(8)
    hooked = nn.RMSNorm(8)
    hooked.register_forward_hook(lambda module, args, output: output + 1)
    torch.testing.assert_close(norm_by_kernel(plain, x, counters), plain(x), rtol=0, atol=6 * 8 * 2**-24)
    assert torch.equal(norm_by_kernel(hooked, x, counters), hooked(x))
    layer = nn.LayerNorm(8)
    assert torch.equal(norm_by_kernel(layer, x, counters), layer(x))
    mixed = norm_by_kernel(plain, x.bfloat16(), counters)
    assert mixed.dtype == plain(x.bfloat16()).dtype
    assert counters.calls == {"RMSNorm": 1, "RMSNorm by the model": 2, "LayerNorm by the model": 1}
