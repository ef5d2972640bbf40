"""PSNR and SSIM against their definitions, written out, and against values that scikit-image gives."""

import math

import pytest
import torch
from quincunx.boost.similarity import psnr, ssim


def pair(frames=2, height=14, width=13, channels=2):
    """Two videos by closed formulas, so that another program can make them too."""
    index = torch.arange(frames * height * width * channels, dtype=torch.float64).view(frames, height, width, channels)
    first = 0.5 + 0.4 * torch.sin(0.37 * index)
    return first, (first + 0.1 * torch.cos(1.7 * index)).clamp(0, 1)


def by_definition(first, second):
    """One window after the other."""
    offsets = torch.arange(11, dtype=torch.float64) - 5
    line = torch.exp(-offsets.square() / (2 * 1.5**2))
    weights = torch.outer(line, line) / line.sum() ** 2
    values = []
    for frame in range(first.shape[0]):
        for channel in range(first.shape[3]):
            for i in range(first.shape[1] - 10):
                for j in range(first.shape[2] - 10):
                    x, y = (v[frame, i : i + 11, j : j + 11, channel] for v in (first, second))
                    mx, my = (weights * x).sum(), (weights * y).sum()
                    vx, vy = (weights * (x - mx) ** 2).sum(), (weights * (y - my) ** 2).sum()
                    cov = (weights * (x - mx) * (y - my)).sum()
                    c1, c2 = 0.01**2, 0.03**2
                    values.append((2 * mx * my + c1) * (2 * cov + c2) / ((mx**2 + my**2 + c1) * (vx + vy + c2)))
    return torch.stack(values).mean().item()


def test_ssim_is_its_definition():
    first, second = pair()
    assert ssim(first, second) == pytest.approx(by_definition(first, second), abs=1e-12)
    assert 0.5 < ssim(first, second) < 0.999


def test_ssim_is_that_of_scikit_image():
    # structural_similarity(gaussian_weights=True, sigma=1.5, use_sample_covariance=False, data_range=1) of
    # scikit-image 0.26, its map without the border of 5, each frame and channel by itself.
    assert ssim(*pair()) == pytest.approx(0.9704069698361466, abs=1e-9)


def test_the_same_video_is_perfect():
    first, _ = pair()
    assert ssim(first, first) == pytest.approx(1.0, abs=1e-12)
    assert psnr(first, first) == math.inf


def test_psnr_of_a_constant_difference():
    first = torch.zeros(1, 2, 3, 1)
    assert psnr(first, first + 0.1) == pytest.approx(20.0, abs=1e-5)


def test_bad_videos_are_named():
    first, second = pair()
    with pytest.raises(ValueError, match="second: expected the shape of first"):
        psnr(first, second[:1])
    with pytest.raises(ValueError, match="first: expected \\[frames, height, width, channels\\], got shape"):
        psnr(first[0], second[0])
    with pytest.raises(TypeError, match="first: expected a tensor of floating-point values, got torch.uint8"):
        psnr(first.byte(), second)
    with pytest.raises(ValueError, match="first: expected frames of at least 11 x 11, got \\[10, 13\\]"):
        ssim(first[:, :10], second[:, :10])
