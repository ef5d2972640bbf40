"""Norms, softmax, losses, activations, RoPE, embedding, order and sampling: against a copy of the same bytes out of the
cache, against torch in it; elementary functions against torch's."""

import contextlib
import functools
from collections.abc import Iterator

import torch
from quincunx._library import load_operators
from quincunx.cli.bench.capability import Context, Task
from quincunx.cli.bench.rounds import interleave
from quincunx.cli.bench.row import Measurement, Work

from .kept_memory import kept_memory
from .row_operators import FUNCTIONS, SELECTING, STREAMED, Case

THREADS = (1, 2)
DTYPES = {"": torch.float32, "bfloat16": torch.bfloat16}
# 48 MiB read and as much written; 384 KiB read and as much written stay in a second-level cache of 1 MiB.
BYTES_OUT_OF_CACHE = 48 << 20
ELEMENTS_IN_CACHE = 3 << 15
# The results differ by roundings of their own size: of bfloat16 or of a chain of f32.
_LARGEST_DIFFERENCE = {torch.float32: 1e-3, torch.bfloat16: 0.13}


@contextlib.contextmanager
def _threads(count: int) -> Iterator[None]:
    load_operators()
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with torch.inference_mode():
            yield
    finally:
        torch.set_num_threads(before)


def _first(result: object) -> torch.Tensor:
    return result[0] if isinstance(result, tuple) else result


def _check(name: str, case: Case, dtype: torch.dtype) -> None:
    """A wrong result is not worth timing. Draws of two generators cannot be compared."""
    if name == "sampling":
        return
    difference = (_first(case.ours()).double() - _first(case.torch()).double()).abs().max().item()
    if not difference <= _LARGEST_DIFFERENCE[dtype]:
        raise RuntimeError(f"{name}: ours and torch's results differ by {difference:.3g}")


def _rounds(threads: int, context: Context, sample_s: float = 0.02):
    return context.rounds(pause_s=0.01 if threads > 1 else 0.0, sample_s=sample_s)


# An element, roughly: these kernels wait for memory, so the number matters little.
_OPERATIONS = 8


def measure_out_of_cache(name: str, threads: int, context: Context) -> list[Measurement]:
    rows = []
    with _threads(threads), kept_memory():
        for variant, dtype in DTYPES.items():
            case = STREAMED[name](BYTES_OUT_OF_CACHE // dtype.itemsize, dtype)
            calls = {"ours": case.ours, "a copy": case.copied.clone}
            seconds = interleave(calls, _rounds(threads, context))
            label = f"{name}, out of cache"
            row = Measurement(
                f"{name}_memory",
                label,
                "ms",
                seconds["ours"],
                {"a copy": seconds["a copy"]},
                threads,
                variant,
                lambda cost: cost * 1e3,
                Work(_OPERATIONS * BYTES_OUT_OF_CACHE / dtype.itemsize, 2 * BYTES_OUT_OF_CACHE),
            )
            rows.append(row)
    return rows


def measure_in_cache(name: str, threads: int, context: Context) -> list[Measurement]:
    rows = []
    with _threads(threads), kept_memory():
        for variant, dtype in DTYPES.items():
            case = (STREAMED | SELECTING)[name](ELEMENTS_IN_CACHE, dtype)
            _check(name, case, dtype)
            seconds = interleave({"ours": case.ours, "torch": case.torch}, _rounds(threads, context))
            row = Measurement(
                f"{name}_cache",
                f"{name}, in cache",
                "us",
                seconds["ours"],
                {"torch": seconds["torch"]},
                threads,
                variant,
                lambda cost: cost * 1e6,
            )
            rows.append(row)
    return rows


def measure_function(name: str, threads: int, context: Context) -> list[Measurement]:
    with _threads(threads), kept_memory():
        x = torch.rand(ELEMENTS_IN_CACHE, generator=torch.Generator().manual_seed(0)) * 8 + 0.01
        calls = {"ours": lambda: torch.ops.quincunx.unary(x, name), "torch": lambda: FUNCTIONS[name](x)}
        seconds = interleave(calls, _rounds(threads, context))
    label = f"{name} of {ELEMENTS_IN_CACHE} numbers"
    peers = {f"torch's {name}": seconds["torch"]}
    return [
        Measurement(f"{name}_function", label, "us", seconds["ours"], peers, threads, value_of=lambda cost: cost * 1e6)
    ]


def _tasks() -> Iterator[Task]:
    for threads in THREADS:
        for name in STREAMED:
            measure = functools.partial(measure_out_of_cache, name, threads)
            yield Task((f"{name}_memory",), measure, threads, cores=threads)
        for name in STREAMED | SELECTING:
            yield Task((f"{name}_cache",), functools.partial(measure_in_cache, name, threads), threads, cores=threads)
        for name in FUNCTIONS:
            measure = functools.partial(measure_function, name, threads)
            yield Task((f"{name}_function",), measure, threads, cores=threads)


TASKS = tuple(_tasks())
