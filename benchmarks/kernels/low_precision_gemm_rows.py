"""Products with low-precision weights against our own f32 product, and bf16 against torch's bf16 linear.

Many rows: the arithmetic decides. One row out of cache: the bytes of the weights decide, so each call takes the next of
several weights that together exceed the L3 cache.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable

import torch
from quincunx._library import load_operators
from quincunx.cli.bench.capability import Context, Task
from quincunx.cli.bench.rounds import interleave
from quincunx.cli.bench.row import Measurement, Work

# Rows, columns, inner.
MANY_ROWS = ((128, 3072, 768), (512, 768, 3072))
ONE_ROW = (1, 4096, 4096)
# Bytes of weights that a pass takes in turn: twice a large L3 cache.
_OUT_OF_CACHE_BYTES = 64 << 20
_PAUSE_S = 0.03

Call = Callable[[], torch.Tensor]


@dataclasses.dataclass(frozen=True)
class Kind:
    """A format and what happens to the activations, which are of `dtype`."""

    row_id: str
    format: str
    input: str = "none"
    dtype: torch.dtype = torch.float32

    @property
    def name(self) -> str:
        activations = {"none": "", "dynamic": ", activations in 8 bits", "static": ", activations in 8 bits (static)"}
        halves = ", bf16 activations" if self.dtype == torch.bfloat16 else ""
        return f"{self.format} weights{activations[self.input]}{halves}"


KINDS = (
    Kind("bf16", "bfloat16"),
    Kind("bf16_both", "bfloat16", dtype=torch.bfloat16),
    Kind("f16", "float16"),
    Kind("int8", "int8", "dynamic"),
    Kind("int8_static", "int8", "static"),
    Kind("int8_untouched", "int8"),
    Kind("int8_grouped", "int8_grouped", "dynamic"),
    Kind("int8_grouped_untouched", "int8_grouped"),
    Kind("int4_grouped", "int4_grouped", "dynamic"),
    Kind("int4_grouped_untouched", "int4_grouped"),
)
# Relative to the largest result of normal numbers: far from tight, a wrong product is not worth timing.
_TOLERANCE = {"bfloat16": 0.02, "float16": 0.01, "int8": 0.1, "int8_grouped": 0.1, "int4_grouped": 0.5}


def many_rows_id(kind: Kind, shape: tuple[int, int, int]) -> str:
    return f"low_precision_{kind.row_id}_{shape[0]}x{shape[1]}x{shape[2]}"


def one_row_id(kind: Kind) -> str:
    return f"low_precision_{kind.row_id}_one_row"


def _ours(kind: Kind, x: torch.Tensor, packed: torch.Tensor, columns: int) -> torch.Tensor:
    # Normal activations within 4 standard deviations.
    return torch.ops.quincunx.low_precision_linear(
        x.to(kind.dtype), packed, columns, kind.format, input=kind.input, input_scale=4 / 127
    )


def _in_turn(call: Callable[[torch.Tensor], torch.Tensor], weights: list[torch.Tensor]) -> Call:
    turns = itertools.cycle(weights)
    return lambda: call(next(turns))


def _copies(packed: torch.Tensor, out_of_cache: bool) -> list[torch.Tensor]:
    bytes_of_one = packed.numel() * packed.element_size()
    count = -(-_OUT_OF_CACHE_BYTES // bytes_of_one) if out_of_cache else 1
    return [packed, *(packed.clone() for _ in range(count - 1))]


def calls_for(kind: Kind, shape: tuple[int, int, int], *, out_of_cache: bool) -> dict[str, Call]:
    """The same product by the kind, by our f32 and, for bf16, by torch."""
    load_operators()
    rows, columns, inner = shape
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, inner, generator=generator)
    weight = torch.randn(columns, inner, generator=generator)
    ops = torch.ops.quincunx
    packed = ops.pack_low_precision_weight(weight, kind.format)
    packed_f32 = ops.pack_linear_weight(weight)
    typed = x.to(kind.dtype)
    calls = {
        "ours": _in_turn(lambda w: _ours(kind, typed, w, columns), _copies(packed, out_of_cache)),
        "our f32": _in_turn(lambda w: ops.packed_linear(x, w, columns), _copies(packed_f32, out_of_cache)),
    }
    if kind.dtype == torch.bfloat16:
        halves = _copies(weight.bfloat16(), out_of_cache)
        calls["torch bf16 linear"] = _in_turn(lambda w: torch.nn.functional.linear(typed, w), halves)
    expected = x.double() @ weight.double().t()
    for name, call in calls.items():
        difference = ((call().double() - expected).abs().max() / expected.abs().max()).item()
        if not difference <= _TOLERANCE[kind.format]:
            raise RuntimeError(f"{name} computes another product: it differs by {difference:.3g} of the largest value")
    return calls


# Groups of 32 weights have a scale of 32 bits.
_WEIGHT_BYTES = {"bfloat16": 2.0, "float16": 2.0, "int8": 1.0, "int8_grouped": 1.125, "int4_grouped": 0.625}


def _moved_bytes(kind: Kind, shape: tuple[int, int, int]) -> float:
    rows, columns, inner = shape
    return _WEIGHT_BYTES[kind.format] * columns * inner + kind.dtype.itemsize * rows * (inner + columns)


def measure(kind: Kind, shape: tuple[int, int, int], threads: int, context: Context) -> list[Measurement]:
    rows, columns, inner = shape
    is_vector = rows == 1
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.inference_mode():
            rounds = context.rounds(pause_s=_PAUSE_S if threads > 1 else 0.0)
            seconds = interleave(calls_for(kind, shape, out_of_cache=is_vector), rounds)
    finally:
        torch.set_num_threads(before)
    gflop = 2e-9 * rows * columns * inner
    name = f"{kind.name}, {rows} x {columns} x {inner}" + (", out of cache" if is_vector else "")
    row_id = one_row_id(kind) if is_vector else many_rows_id(kind, shape)
    ours = seconds.pop("ours")
    peers = {"our f32": seconds.pop("our f32")}

    def giga_of(cost: float) -> float:
        return gflop / cost

    work = Work(1e9 * gflop, _moved_bytes(kind, shape))
    measurements = [Measurement(row_id, name, "GF/s", ours, peers, threads, value_of=giga_of, work=work)]
    if seconds:
        measurements.append(Measurement(f"{row_id}_torch", name, "GF/s", ours, seconds, threads, value_of=giga_of))
    return measurements


def _task(kind: Kind, shape: tuple[int, int, int], threads: int) -> Task:
    row_id = one_row_id(kind) if shape[0] == 1 else many_rows_id(kind, shape)
    ids = (row_id, f"{row_id}_torch") if kind.dtype == torch.bfloat16 else (row_id,)
    return Task(ids, functools.partial(measure, kind, shape, threads), threads, cores=threads)


def _tasks() -> tuple[Task, ...]:
    """Every kind with both numbers of rows; the second large shape and two threads for the three most used."""
    tasks = [_task(kind, shape, 1) for kind in KINDS for shape in (MANY_ROWS[0], ONE_ROW)]
    most_used = [kind for kind in KINDS if kind.row_id in ("bf16", "int8", "int4_grouped")]
    tasks += [_task(kind, MANY_ROWS[1], 1) for kind in most_used]
    tasks += [_task(kind, shape, 2) for kind in most_used for shape in (MANY_ROWS[0], ONE_ROW)]
    return tuple(tasks)


TASKS = _tasks()
