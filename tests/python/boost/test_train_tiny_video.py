"""examples/boost/train_tiny_video.py: what it draws, trains and generates."""

import importlib.util
import pathlib
import sys

import pytest
import torch
from quincunx import boost

EXAMPLE = pathlib.Path(__file__).resolve().parents[3] / "examples" / "boost" / "train_tiny_video.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("train_tiny_video", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_shapes_move_and_are_told_by_their_prompts(example):
    video, text = example.moving_shapes(torch.Generator().manual_seed(0), 8)
    assert video.shape == (8, 3, example.FRAMES, example.SIZE, example.SIZE)
    assert -1 <= video.min() and video.max() <= 1
    assert (video[:, :, 1:] - video[:, :, :-1]).abs().amax((1, 2, 3, 4)).min() > 0.1
    assert text.shape == (8, example.TEXT_LENGTH, example.TEXT_DIM)
    brightest = video.amax((2, 3, 4)).argmax(1)  # red, green and blue shapes are that on any background
    for i in range(8):
        colour = example.prompts(torch.tensor([0]), brightest[i : i + 1])[0, 2]
        assert torch.equal(text[i, 2], colour)


def test_training_learns_and_boosting_is_compared(example):
    losses = []
    pipe = example.train(num_steps=12, batch=2, progress=lambda now: losses.append(now.loss))
    assert len(losses) == 12 and sum(losses[-3:]) < 0.9 * sum(losses[:3])
    result = boost.quality(pipe, example.BOOST_CONFIG, generate=example.generate, steps=2)
    assert result.frames.boosted.shape == (example.FRAMES, example.SIZE, example.SIZE, 3)
    assert 0.4 < result.density < 0.6
    assert result.psnr > 20


def test_training_stops_in_time(example):
    steps = []
    example.train(num_steps=1000, seconds=0.5, batch=1, progress=steps.append)
    assert 1 <= len(steps) < 1000
