"""The tour's video diffusion: a tiny Wan-style pipeline learns moving shapes, and runs as it is and boosted."""

import dataclasses
import math
import pathlib
import sys
from collections.abc import Callable

import numpy
import torch
from guards import GuardError
from quincunx import boost
from quincunx.report import Picture, Report, png
from settings import Settings

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "boost"))
import train_tiny_video as tiny  # noqa: E402 (the folder of another example)

_ENLARGED_DIFFERENCE = 4.0
PICTURES = ("video_unboosted", "video_boosted", "video_difference")


@dataclasses.dataclass(frozen=True)
class Video:
    quality: boost.Quality
    num_training_steps: int
    last_loss: float


def run(settings: Settings, progress: Callable[[str], None]) -> Video:
    """Trains the pipeline for settings.video_steps, then makes one video twice from the same noise."""
    # A tiny model gives a second thread little to do but wait.
    torch.set_num_threads(1)
    last = tiny.Progress(0, math.inf, 0.0)

    def show(now: tiny.Progress) -> None:
        nonlocal last
        last = now
        if now.step % 20 == 0:
            progress(f"video step {now.step}/{settings.video_steps}  loss {now.loss:.3f}")

    pipe = tiny.train(num_steps=settings.video_steps, seed=settings.seed, progress=show)
    config = tiny.BOOST_CONFIG | {"sparsity": settings.video_sparsity}
    quality = boost.quality(pipe, config, seed=settings.seed, generate=tiny.generate)
    return Video(quality, settings.video_steps, last.loss)


def check(video: Video, settings: Settings) -> None:
    """Boosted attention must have left pairs out, and the video must still be nearly the same."""
    quality = video.quality
    if not 0.0 < quality.density < 1.0:
        raise GuardError(
            f"guard: boosted attention used a part of {quality.density:.3f} of all pairs of tokens; expected less than "
            "1, because sparse attention is what boosting is for"
        )
    if not math.isfinite(quality.psnr):
        raise GuardError(f"guard: the boosted video has a PSNR of {quality.psnr} dB, so boosting changed nothing")
    if settings.video_psnr_bound is not None and quality.psnr < settings.video_psnr_bound:
        raise GuardError(
            f"guard: the boosted video has a PSNR of {quality.psnr:.1f} dB to the unboosted one, below the bound of "
            f"{settings.video_psnr_bound} dB"
        )


def _strip(frames: torch.Tensor) -> bytes:
    """The frames side by side."""
    frames_FHWC = frames.numpy()
    return png(numpy.concatenate(list(frames_FHWC), axis=1))


def add_to(report: Report, video: Video) -> None:
    quality = video.quality
    report.add_section(
        "Video",
        "A diffusion transformer of diffusers' Wan class learned videos of moving shapes. It makes one as it is, and "
        "one from the same noise with boosted attention.",
    )
    before, after = quality.frames
    difference = ((after - before) * _ENLARGED_DIFFERENCE + 0.5).clamp(0.0, 1.0)
    report.add_pictures(
        [
            Picture(PICTURES[0], "as it is", _strip(before)),
            Picture(PICTURES[1], "boosted", _strip(after)),
            Picture(PICTURES[2], f"difference x {_ENLARGED_DIFFERENCE:.0f}, grey is none", _strip(difference)),
        ],
        title=f"{len(before)} frames of {before.shape[2]} x {before.shape[1]} pixels",
        caption=f"PSNR {quality.psnr:.1f} dB, SSIM {quality.ssim:.3f}. Of all pairs of tokens, self-attention used "
        f"{quality.density:.1%}. The model was trained for {video.num_training_steps} steps.",
        pixelated=True,
    )
    rows = [(name, f"{plain:.2f}", f"{boosted:.2f}") for name, (plain, boosted) in quality.parts.items()]
    rows.append(("all", f"{quality.seconds['unboosted']:.2f}", f"{quality.seconds['boosted']:.2f}"))
    report.add_table(
        ["part", "seconds, as it is", "seconds, boosted"],
        rows,
        caption="One run each. A video this small gains little: attention is a small part of its time.",
    )
