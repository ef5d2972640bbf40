"""What half of the pairs of tokens costs a video: a tiny model is trained, and run boosted and not."""

import importlib.util
import pathlib
import sys
import types

import torch
from quincunx import boost
from quincunx.cli.bench.capability import Context, Task
from quincunx.cli.bench.row import Measurement

_PROMPTS = (("disc", "red"), ("square", "blue"), ("disc", "green"))


def load_example(checkout: pathlib.Path) -> types.ModuleType:
    path = checkout / "examples" / "boost" / "train_tiny_video.py"
    spec = importlib.util.spec_from_file_location("train_tiny_video", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def measure(context: Context, num_steps: int = 300) -> list[Measurement]:
    """The root mean squared error and 1 - SSIM of each of several videos; the median is what counts."""
    example = load_example(context.checkout)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        pipe = example.train(num_steps=num_steps)
        results = [
            boost.quality(pipe, example.BOOST_CONFIG, seed=seed, generate=example.generate, shape=shape, colour=colour)
            for seed, (shape, colour) in enumerate(_PROMPTS)
        ]
    finally:
        torch.set_num_threads(before)
    errors = [10 ** (-result.psnr / 20) for result in results]
    density = f"trained tiny model, {len(results)} videos, attained density {results[0].density:.2f}"
    return [
        Measurement("quality_psnr", f"{density}, root mean squared error", "of full scale", errors),
        Measurement("quality_ssim", f"{density}, 1 - SSIM", "of full scale", [1 - result.ssim for result in results]),
    ]


TASKS = (Task(("quality_psnr", "quality_ssim"), measure, cores=0),)
