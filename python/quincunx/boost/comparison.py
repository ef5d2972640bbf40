"""A pipeline run as it is and boosted, from the same seed: how much faster, how alike, and at which density."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ._arguments import integer
from .handle import Config, boost
from .similarity import psnr, ssim


class Frames(NamedTuple):
    """float32 [frames, height, width, channels], values 0 to 1."""

    unboosted: Tensor
    boosted: Tensor


@dataclasses.dataclass(frozen=True)
class Quality:
    """What quality() found. Times are of one run each: compare runs on an idle machine."""

    psnr: float
    ssim: float
    density: float
    seconds: dict[str, float]
    parts: dict[str, tuple[float, float]]
    frames: Frames
    explanation: str

    @property
    def speedup(self) -> float:
        return self.seconds["unboosted"] / self.seconds["boosted"]

    def __str__(self) -> str:
        lines = [
            f"PSNR {self.psnr:.2f} dB, SSIM {self.ssim:.4f}, attained density {self.density:.3f}",
            f"{'seconds':<16} {'unboosted':>10} {'boosted':>10} {'times':>7}",
        ]
        rows = {**self.parts, "all": (self.seconds["unboosted"], self.seconds["boosted"])}
        for name, (before, after) in rows.items():
            ratio = f"{before / after:7.2f}" if after > 0 else f"{'-':>7}"
            lines.append(f"{name:<16} {before:>10.3f} {after:>10.3f} {ratio}")
        return "\n".join(lines)


@contextlib.contextmanager
def _timed(parts: Mapping[str, list[nn.Module]]) -> Iterator[dict[str, float]]:
    """Seconds inside the forward of each part's modules; filled while the context is open."""
    seconds = dict.fromkeys(parts, 0.0)
    starts: list[float] = []

    def leave(name: str) -> Callable:
        def hook(*_):
            seconds[name] += time.perf_counter() - starts.pop()

        return hook

    with contextlib.ExitStack() as hooks:
        for name, modules in parts.items():
            for module in modules:
                enter = module.register_forward_pre_hook(lambda *_: starts.append(time.perf_counter()), prepend=True)
                hooks.callback(enter.remove)
                hooks.callback(module.register_forward_hook(leave(name)).remove)
        yield seconds


def _generate(pipe: Any, generator: torch.Generator, **arguments) -> Any:
    return pipe(generator=generator, output_type="np", **arguments).frames[0]


def _frames(video: Any) -> Tensor:
    tensor = torch.as_tensor(video).detach().float()
    if tensor.dim() != 4 or not tensor.isfinite().all():
        raise ValueError(
            f"generate: expected finite frames [frames, height, width, channels], got shape {list(tensor.shape)}"
        )
    return tensor.clone()


def _run(pipe: Any, generate: Callable, seed: int, arguments: dict[str, Any], parts: dict) -> tuple:
    with _timed(parts) as seconds, torch.no_grad():
        start = time.perf_counter()
        video = generate(pipe, torch.Generator().manual_seed(seed), **arguments)
        total = time.perf_counter() - start
    return _frames(video), total, seconds | {"rest": max(0.0, total - sum(seconds.values()))}


def quality(
    pipe: Any, config: Config = None, *, seed: int = 0, generate: Callable[..., Any] | None = None, **arguments
) -> Quality:
    """Runs the pipeline unboosted and boosted from one seed and compares the videos.

    pipe, config: as for boost(); pipe is left as it was. generate(pipe, generator, **arguments) gives a video
    [frames, height, width, channels] with values 0 to 1; absent: the pipeline called with the arguments. SSIM needs
    frames of at least 11 x 11.
    """
    integer("seed", seed, 0)
    generate = generate or _generate
    handle = boost(pipe, config)  # First, so that a bad argument costs no run.
    handle.undo()
    before, before_s, before_parts = _run(pipe, generate, seed, arguments, handle.parts)
    handle = boost(pipe, config)
    try:
        after, after_s, after_parts = _run(pipe, generate, seed, arguments, handle.parts)
        explanation = handle.explain()
    finally:
        handle.undo()
    return Quality(
        psnr=psnr(before, after),
        ssim=ssim(before, after),
        density=handle.density,
        seconds={"unboosted": before_s, "boosted": after_s},
        parts={name: (before_parts[name], after_parts[name]) for name in before_parts},
        frames=Frames(before, after),
        explanation=explanation,
    )
