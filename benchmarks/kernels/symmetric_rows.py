"""Symmetric products against our general one, and two threads against one in Newton-Schulz."""

import functools
from collections.abc import Callable

import torch
from quincunx._library import load_operators
from quincunx.cli.bench.capability import Context, Task
from quincunx.cli.bench.rounds import interleave
from quincunx.cli.bench.row import Measurement

from . import newton_schulz_rows

SIZES = (256, 512, 1024)
_STEP = (3.4445, -4.7750, 2.0315)
_SCALED = ("newton_schulz_24x1024", "newton_schulz_24x10240")
_PAUSE_S = 0.02


def gram_calls(size: int) -> dict[str, Callable[[], torch.Tensor]]:
    """x x^T, by symmetry and as any product of two matrices."""
    load_operators()
    x = torch.randn(size, size, generator=torch.Generator().manual_seed(0))
    a, b = x[None], x.t()[None]
    return {
        "ours": lambda: torch.ops.quincunx.gram(x),
        "general product": lambda: torch.ops.quincunx.batched_gemm(a, b)[0],
    }


def polynomial_calls(size: int) -> dict[str, Callable[[], torch.Tensor]]:
    """a I + b G + c G^2, by symmetry and as any product with its epilogue, which adds the rest."""
    load_operators()
    x = torch.randn(size, size, generator=torch.Generator().manual_seed(0)) / size
    gram = torch.ops.quincunx.gram(x)
    a, b, c = _STEP
    rest = b * gram + a * torch.eye(size)
    batch, residual = gram[None], rest[None]
    return {
        "ours": lambda: torch.ops.quincunx.symmetric_polynomial(gram, a, b, c),
        "general product": lambda: torch.ops.quincunx.batched_gemm(batch, batch, residual=residual, scale=c)[0],
    }


KINDS = {"gram": gram_calls, "polynomial": polynomial_calls}


def measure(kind: str, size: int, context: Context) -> list[Measurement]:
    calls = KINDS[kind](size)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.inference_mode():
            seconds = interleave(calls, context.rounds())
    finally:
        torch.set_num_threads(before)
    row_id, name = f"symmetric_{kind}_{size}", f"symmetric {kind}, {size} x {size}"
    return [Measurement(row_id, name, "us", seconds.pop("ours"), seconds, value_of=lambda cost: cost * 1e6)]


def scaling_id(row_id: str) -> str:
    return f"{row_id}_two_threads"


def measure_scaling(row_id: str, context: Context) -> list[Measurement]:
    """The same batch on two threads and on one."""
    load_operators()
    batch = torch.randn(newton_schulz_rows.BATCHES[row_id], generator=torch.Generator().manual_seed(0))

    def on(threads: int) -> Callable[[], torch.Tensor]:
        def call() -> torch.Tensor:
            torch.set_num_threads(threads)
            return newton_schulz_rows.by_ours(batch)

        return call

    before = torch.get_num_threads()
    try:
        with torch.inference_mode():
            seconds = interleave({"ours": on(2), "one thread": on(1)}, context.rounds(pause_s=_PAUSE_S))
    finally:
        torch.set_num_threads(before)
    name = f"Newton-Schulz alone, {' x '.join(str(size) for size in batch.shape)}, two threads"
    ours = seconds.pop("ours")
    return [Measurement(scaling_id(row_id), name, "ms", ours, seconds, 2, value_of=lambda cost: cost * 1e3)]


TASKS = (
    *(Task((f"symmetric_{kind}_{size}",), functools.partial(measure, kind, size)) for kind in KINDS for size in SIZES),
    *(Task((scaling_id(row_id),), functools.partial(measure_scaling, row_id), 2, cores=2) for row_id in _SCALED),
)
