"""How alike two videos are: PSNR, and SSIM as Wang et al. defined it (2004)."""

import math

import torch
from torch import Tensor

_WINDOW = 11
_SIGMA = 1.5
_K1, _K2 = 0.01, 0.03


def _check_pair(first: Tensor, second: Tensor) -> None:
    for name, video in (("first", first), ("second", second)):
        if not isinstance(video, Tensor) or not video.is_floating_point():
            kind = video.dtype if isinstance(video, Tensor) else type(video).__name__
            raise TypeError(f"{name}: expected a tensor of floating-point values, got {kind}")
        if video.dim() != 4 or video.numel() == 0:
            raise ValueError(f"{name}: expected [frames, height, width, channels], got shape {list(video.shape)}")
    if first.shape != second.shape:
        raise ValueError(f"second: expected the shape of first, {list(first.shape)}, got {list(second.shape)}")


def psnr(first: Tensor, second: Tensor) -> float:
    """10 log10(1 / mean squared difference) in dB of two videos with values 0 to 1; inf where they are equal."""
    _check_pair(first, second)
    error = (first.double() - second.double()).square().mean().item()
    return math.inf if error == 0 else -10 * math.log10(error)


def _window_means(planes: Tensor) -> Tensor:
    """Gaussian means of [N, 1, H, W] over the windows that lie inside."""
    offsets = torch.arange(_WINDOW, dtype=planes.dtype) - _WINDOW // 2
    weights = torch.exp(-offsets.square() / (2 * _SIGMA**2))
    weights = weights / weights.sum()
    rows = torch.nn.functional.conv2d(planes, weights.view(1, 1, -1, 1))
    return torch.nn.functional.conv2d(rows, weights.view(1, 1, 1, -1))


def ssim(first: Tensor, second: Tensor) -> float:
    """Mean structural similarity of two videos [frames, height, width, channels] with values 0 to 1.

    Gaussian windows of 11 x 11 with sigma 1.5 that lie inside the frame, each frame and channel by itself; in f64.
    Frames need 11 rows and columns.
    """
    _check_pair(first, second)
    if min(first.shape[1:3]) < _WINDOW:
        raise ValueError(f"first: expected frames of at least {_WINDOW} x {_WINDOW}, got {list(first.shape[1:3])}")
    height, width = first.shape[1:3]
    x, y = (video.double().movedim(-1, 1).reshape(-1, 1, height, width) for video in (first, second))
    mean_x, mean_y = _window_means(x), _window_means(y)
    var_x = _window_means(x * x) - mean_x.square()
    var_y = _window_means(y * y) - mean_y.square()
    covariance = _window_means(x * y) - mean_x * mean_y
    c1, c2 = _K1**2, _K2**2
    similarity = (2 * mean_x * mean_y + c1) * (2 * covariance + c2)
    similarity /= (mean_x.square() + mean_y.square() + c1) * (var_x + var_y + c2)
    return similarity.mean().item()
