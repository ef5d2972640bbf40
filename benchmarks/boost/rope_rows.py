"""Rotary embedding alone and after the norm of queries and keys.

Shape suffixes: B batch, S tokens, H heads, D head size.
"""

from collections.abc import Callable

import torch
from quincunx.boost import rms_norm, rope
from quincunx.cli.bench.capability import Context, Task
from quincunx.cli.bench.rounds import interleave
from quincunx.cli.bench.row import Measurement

from .attention_rows import HEADS, LATENT, TOKENS, check, one_thread

HEAD_DIM = 128
_PAIRS = (22, 21, 21)  # of frames, height and width
_LARGEST_DIFFERENCE = 2e-6  # of elements below 6: three roundings of their size


def _frequencies() -> list[torch.Tensor]:
    """complex128 [positions, pairs] of each axis, made once as Wan does."""
    angles = []
    for pairs, size in zip(_PAIRS, LATENT, strict=True):
        steps = 10000.0 ** (-torch.arange(pairs, dtype=torch.float64) / pairs)
        angles.append(torch.outer(torch.arange(size, dtype=torch.float64), steps))
    return [torch.polar(torch.ones_like(a), a) for a in angles]


def _table(frequencies: list[torch.Tensor]) -> torch.Tensor:
    """[tokens, 1, pairs] of the grid."""
    shapes = [(-1, 1, 1), (1, -1, 1), (1, 1, -1)]
    spread = [f.view(*s, f.shape[1]).expand(*LATENT, f.shape[1]) for f, s in zip(frequencies, shapes, strict=True)]
    return torch.cat(spread, dim=-1).reshape(TOKENS, 1, -1)


def by_complex(x_BSHD: torch.Tensor, frequencies: list[torch.Tensor]) -> torch.Tensor:
    """Wan's form: the table of the grid put together, a product of complex128, back to float32."""
    pairs = torch.view_as_complex(x_BSHD.to(torch.float64).unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * _table(frequencies)).flatten(3).float()


def by_halves(x_BSHD: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """The form of diffusers: real tables, two strided writes."""
    first, second = x_BSHD.unflatten(-1, (-1, 2)).unbind(-1)
    result = torch.empty_like(x_BSHD)
    result[..., 0::2] = first * cos - second * sin
    result[..., 1::2] = first * sin + second * cos
    return result


def _input(seed: int = 0) -> torch.Tensor:
    return torch.randn(1, TOKENS, HEADS, HEAD_DIM, generator=torch.Generator().manual_seed(seed))


def measure_rope(context: Context) -> list[Measurement]:
    x, frequencies = _input(), _frequencies()
    with one_thread():
        calls: dict[str, Callable[[], torch.Tensor]] = {
            "ours": lambda: rope(x, LATENT),
            "complex128": lambda: by_complex(x, frequencies),
        }
        check(calls, _LARGEST_DIFFERENCE)
        error = (rope(x, LATENT).double() - by_complex(x, frequencies).double()).abs().max().item()
        seconds = interleave(calls | {"a copy": x.clone}, context.rounds())
    name = f"rope, {TOKENS} tokens, {HEADS} heads of {HEAD_DIM}"
    return [
        Measurement("rope", name, "s", seconds["ours"], {"complex128": seconds["complex128"]}),
        Measurement("rope_copy", name, "s", seconds["ours"], {"a copy": seconds["a copy"]}),
        Measurement("rope_error", f"{name}: largest error", "absolute", [error]),
    ]


def measure_norm_and_rope(context: Context) -> list[Measurement]:
    """Queries and keys from their projections to what attention takes."""
    query, key = _input(0).flatten(2), _input(1).flatten(2)
    weight = 1 + 0.1 * torch.randn(HEADS * HEAD_DIM, generator=torch.Generator().manual_seed(2))
    table = _table(_frequencies())
    cos, sin = table.real.float().contiguous(), table.imag.float().contiguous()

    def ours() -> torch.Tensor:
        parts = [rope(rms_norm(x, weight, eps=1e-6).unflatten(2, (HEADS, -1)), LATENT) for x in (query, key)]
        return parts[1]

    def theirs() -> torch.Tensor:
        norm = torch.nn.functional.rms_norm
        parts = [
            by_halves(norm(x, weight.shape, weight, 1e-6).unflatten(2, (HEADS, -1)), cos, sin) for x in (query, key)
        ]
        return parts[1]

    with one_thread():
        calls = {"ours": ours, "diffusers' sequence": theirs}
        check(calls, 4 * _LARGEST_DIFFERENCE)
        seconds = interleave(calls, context.rounds())
    peers = {"diffusers' sequence": seconds["diffusers' sequence"]}
    return [Measurement("norm_rope", "RMSNorm and rope of queries and keys", "s", seconds["ours"], peers)]


TASKS = (Task(("rope", "rope_copy", "rope_error"), measure_rope), Task(("norm_rope",), measure_norm_and_rope))
