"""quality: both runs from one seed, and what is said about them."""

import math

import pytest
import torch
from boost.tiny_wan import everything_in, generate, tiny_pipeline
from quincunx import boost


def test_a_run_is_compared_with_itself_boosted():
    pipe = tiny_pipeline()
    generate(pipe, steps=1)  # The first run leaves hooks of diffusers' own.
    before = everything_in(pipe.transformer)
    config = {"sparsity": 0.5, "tile": (1, 2, 2), "dense_blocks": 1}
    result = boost.quality(pipe, config, generate=generate, seed=3, steps=2, size=(2, 6, 6))
    assert everything_in(pipe.transformer) == before
    assert result.frames.unboosted.shape == result.frames.boosted.shape == (2, 12, 12, 3)
    assert result.frames.unboosted.dtype == torch.float32
    alone = generate(pipe, torch.Generator().manual_seed(3), steps=2, size=(2, 6, 6))
    assert torch.equal(result.frames.unboosted, alone)
    with boost.boosted(pipe, config):
        alone = generate(pipe, torch.Generator().manual_seed(3), steps=2, size=(2, 6, 6))
    assert torch.equal(result.frames.boosted, alone)
    error = (result.frames.unboosted.double() - result.frames.boosted.double()).square().mean().item()
    assert result.psnr == pytest.approx(-10 * math.log10(error))
    assert 0 < result.ssim < 1
    assert result.density == pytest.approx(0.75)


def test_times_of_the_parts_add_up():
    result = boost.quality(tiny_pipeline(), generate=generate, steps=2, size=(2, 6, 6))
    assert set(result.parts) == {"self-attention", "cross-attention", "feed-forward", "rest"}
    for i, run in enumerate(("unboosted", "boosted")):
        assert all(part[i] > 0 for part in result.parts.values())
        assert sum(part[i] for part in result.parts.values()) == pytest.approx(result.seconds[run])
    assert result.speedup == result.seconds["unboosted"] / result.seconds["boosted"]
    text = str(result)
    assert text.startswith(f"PSNR {result.psnr:.2f} dB, SSIM {result.ssim:.4f}, attained density {result.density:.3f}")
    assert "self-attention" in text and "all" in text
    assert "sparse self-attention" in result.explanation


def test_a_pipeline_generates_by_itself():
    class Output:
        frames = [torch.rand(2, 12, 12, 3, generator=torch.Generator().manual_seed(0)).numpy()]

    class WanPipeline:  # named like one that is registered
        def __init__(self):
            self.transformer = tiny_pipeline().transformer
            self.calls = []

        def __call__(self, **arguments):
            self.calls.append(arguments)
            return Output()

    pipe = WanPipeline()
    result = boost.quality(pipe, seed=5, prompt="a disc")
    assert result.psnr == math.inf
    for call in pipe.calls:
        assert call["prompt"] == "a disc" and call["output_type"] == "np" and call["generator"].initial_seed() == 5


def test_bad_arguments_cost_no_run_and_leave_the_pipeline_alone():
    pipe = tiny_pipeline()
    before = everything_in(pipe.transformer)

    def never(*_, **__):
        raise AssertionError("was run")

    with pytest.raises(ValueError, match="config: expected options among"):
        boost.quality(pipe, {"speed": 2}, generate=never)
    with pytest.raises(ValueError, match="seed: expected an integer of at least 0, got -1"):
        boost.quality(pipe, seed=-1, generate=never)
    with pytest.raises(ValueError, match="generate: expected finite frames"):
        boost.quality(pipe, generate=lambda *_: torch.full((1, 11, 11, 1), math.nan))
    with pytest.raises(ValueError, match="generate: expected finite frames .*, got shape \\[11, 11\\]"):
        boost.quality(pipe, generate=lambda *_: torch.zeros(11, 11))
    assert everything_in(pipe.transformer) == before
