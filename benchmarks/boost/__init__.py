"""Attention of video diffusion, rotary embedding and a boosted block, against SDPA, FlexAttention and diffusers."""

import importlib.util
import pathlib

from quincunx.cli.bench.capability import Capability

from ..mccl import check_ready as check_mccl_ready
from . import attention_rows, block_rows, parallel_rows, quality_rows, rope_rows

_NO_VAE = "there is no slicing of a VAE to measure"


def check_ready(checkout: pathlib.Path) -> None:
    check_mccl_ready(checkout)
    if importlib.util.find_spec("diffusers") is None:
        raise RuntimeError("the Python package diffusers is missing; `make tour` or cmake/setup.sh python installs it")


CAPABILITY = Capability(
    name="boost",
    tasks=(*attention_rows.TASKS, *rope_rows.TASKS, *block_rows.TASKS, *parallel_rows.TASKS, *quality_rows.TASKS),
    unmeasured={
        "bf16_linear": "there is no linear layer in bf16 to measure",
        "vae_memory": _NO_VAE,
        "vae_speed": _NO_VAE,
    },
    check_ready=check_ready,
)
