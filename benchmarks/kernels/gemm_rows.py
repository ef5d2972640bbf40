"""The f32 matrix product with a packed weight against the best of MKL, OpenBLAS, oneDNN and libxsmm."""

import functools
import math
import statistics
from collections.abc import Sequence

import torch
from quincunx._library import load_operators
from quincunx.cli.bench.capability import Context, Task
from quincunx.cli.bench.rounds import Rounds, interleave
from quincunx.cli.bench.row import Measurement, Work, best_peer

from .gemm_peers import calls_for, load_peers, ours, threads_of
from .gemm_shapes import SHAPES, Shape

THREADS = (1, 2)
# After a call the threads of each library spin on the cores of the next one: OpenBLAS's for 2^26 cycles, about 25 ms.
_PAUSE_S, _QUICK_PAUSE_S = 0.06, 0.03
# Products of this many operations take a quarter of a second: fewer rounds.
_MANY_OPERATIONS = 1e10
GEOMEAN_ID = "gemm_geomean"
OPERATOR_ID = "gemm_operator_call"
# Rows of the sequences and images of batch 1, and weights that the L3 cache holds.
_MKL_ROWS = range(128, 198)
_CACHED_WEIGHT_BYTES = 10 << 20


def mkl_id(shape: Shape) -> str:
    return f"{shape.row_id}_mkl"


def vector_id(shape: Shape, threads: int) -> str:
    return f"{shape.row_id}_vector" + ("" if threads == 1 else f"_{threads}_threads")


def rounds_for(shape: Shape, threads: int, context: Context) -> Rounds:
    pause_s = (_QUICK_PAUSE_S if context.quick else _PAUSE_S) if threads > 1 else 0.0
    rounds = context.rounds(pause_s=pause_s)
    return Rounds(3, 0.0, pause_s) if shape.operations > _MANY_OPERATIONS else rounds


def _against_mkl(
    shape: Shape, threads: int, our_seconds: list[float], peers: dict[str, list[float]]
) -> list[Measurement]:
    """The rows that name MKL alone as their peer."""
    mkl = {name: costs for name, costs in peers.items() if name.startswith("MKL")}
    giga_of = functools.partial(_giga_operations, shape)
    rows = []
    if shape.rows in _MKL_ROWS and mkl:
        rows.append(
            Measurement(mkl_id(shape), f"{_name(shape)}, MKL", "GF/s", our_seconds, mkl, threads, value_of=giga_of)
        )
    if shape.rows == 1 and shape.weight_bytes <= _CACHED_WEIGHT_BYTES and mkl:
        row_id = vector_id(shape, threads)
        rows.append(Measurement(row_id, f"{_name(shape)}, MKL", "GF/s", our_seconds, mkl, threads, value_of=giga_of))
    return rows


def _name(shape: Shape) -> str:
    return f"gemm f32 {shape.rows} x {shape.columns} x {shape.inner} ({shape.network}), packed weight"


def _giga_operations(shape: Shape, seconds: float) -> float:
    return 1e-9 * shape.operations / seconds


# Threads -> shape -> (ours, best peer): what the row of the mean is made of.
_taken: dict[int, dict[Shape, tuple[float, float]]] = {count: {} for count in THREADS}


def measure(shape: Shape, threads: int, context: Context) -> list[Measurement]:
    peers = load_peers(context.checkout)
    with threads_of(peers, threads), torch.inference_mode():
        seconds = interleave(calls_for(shape, peers, context.checkout), rounds_for(shape, threads, context))
    our_seconds = seconds.pop("ours")
    giga_of = functools.partial(_giga_operations, shape)
    work = Work(shape.operations, shape.weight_bytes + 4 * shape.rows * (shape.inner + shape.columns))
    row = Measurement(shape.row_id, _name(shape), "GF/s", our_seconds, seconds, threads, value_of=giga_of, work=work)
    best = best_peer(row)
    _taken[threads][shape] = statistics.median(our_seconds), statistics.median(seconds[best])
    return [row, *_against_mkl(shape, threads, our_seconds, seconds)]


def geomean(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(math.log(value) for value in values))


def measure_geomean(threads: int, context: Context) -> list[Measurement]:
    """The mean of the rows before it; fails where one of them is missing."""
    del context
    taken = _taken[threads]
    missing = [str(shape) for shape in SHAPES if shape not in taken]
    if missing:
        raise RuntimeError(f"no time was taken of {', '.join(missing)}")
    our_mean, peers = geomean([pair[0] for pair in taken.values()]), geomean([pair[1] for pair in taken.values()])
    name = f"gemm f32, geometric mean of {len(taken)} shapes"
    return [
        Measurement(
            GEOMEAN_ID,
            name,
            "us",
            [our_mean],
            {"best of each shape": [peers]},
            threads,
            value_of=lambda cost: cost * 1e6,
        )
    ]


def measure_operator(context: Context) -> list[Measurement]:
    """What a call through PyTorch takes more than the C function: a product of one number."""
    load_operators()
    one = torch.ones(1, 1)
    packed, output = torch.ops.quincunx.pack_linear_weight(one), torch.empty(1, 1)
    linear = torch.ops.quincunx.packed_linear_out.default
    calls = {"ours": lambda: linear(one, packed, out=output), "C function": ours(context.checkout, one, packed, 1)}
    with torch.inference_mode():
        seconds = interleave(calls, context.rounds())
    row = Measurement(
        OPERATOR_ID,
        "gemm f32 1 x 1 x 1, the call through PyTorch",
        "us",
        seconds.pop("ours"),
        seconds,
        value_of=lambda cost: cost * 1e6,
    )
    return [row]


def _ids(shape: Shape, threads: int) -> tuple[str, ...]:
    ids = [shape.row_id]
    if shape.rows in _MKL_ROWS:
        ids.append(mkl_id(shape))
    if shape.rows == 1 and shape.weight_bytes <= _CACHED_WEIGHT_BYTES:
        ids.append(vector_id(shape, threads))
    return tuple(ids)


TASKS = (
    *(
        Task(_ids(shape, threads), functools.partial(measure, shape, threads), threads, cores=threads)
        for shape in SHAPES
        for threads in THREADS
    ),
    Task((OPERATOR_ID,), measure_operator),
    *(Task((GEOMEAN_ID,), functools.partial(measure_geomean, threads), threads, cores=0) for threads in THREADS),
)
