"""Attention of video diffusion, rotary embedding and a boosted block, against SDPA, FlexAttention and diffusers."""

import importlib.util
import pathlib

from quincunx.cli.bench.capability import Capability

from . import attention_rows, block_rows, rope_rows

_NO_VAE = "there is no slicing of a VAE to measure"


def check_ready(checkout: pathlib.Path) -> None:
    if importlib.util.find_spec("diffusers") is None:
        raise RuntimeError("the Python package diffusers is missing; `make tour` or cmake/setup.sh python installs it")


CAPABILITY = Capability(
    name="boost",
    tasks=(*attention_rows.TASKS, *rope_rows.TASKS, *block_rows.TASKS),
    unmeasured={
        "bf16_linear": "there is no linear layer in bf16 to measure",
        "vae_memory": _NO_VAE,
        "vae_speed": _NO_VAE,
        "usp": "attention over parts of a sequence gathers the keys; its speed is not measured",
        "quality_psnr": "needs trained weights: examples/boost/train_tiny_video.py trains them and prints the figure",
        "quality_ssim": "needs trained weights: examples/boost/train_tiny_video.py trains them and prints the figure",
    },
    check_ready=check_ready,
)
