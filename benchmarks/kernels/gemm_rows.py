"""The f32 matrix product with a packed weight against MKL (plain and with its own packing) and OpenBLAS."""

import functools
from collections.abc import Callable

import torch
from quincunx._library import load_operators
from quincunx.cli.bench.capability import Context, Task
from quincunx.cli.bench.rounds import interleave
from quincunx.cli.bench.row import Measurement

from . import openblas

# Rows, columns, inner: linear layers of transformers, a vector, a square, a Newton-Schulz product.
SHAPES = (
    (512, 768, 768),
    (2048, 2048, 2048),
    (128, 3072, 768),
    (128, 768, 3072),
    (197, 768, 768),
    (1, 3072, 768),
    (24, 24, 10240),
)
THREADS = (1, 2)
# After a call the threads of each library spin on the cores of the next one: OpenBLAS's for 2^26 cycles, about 25 ms.
_PAUSE_S = 0.06


def row_id(shape: tuple[int, int, int]) -> str:
    return "gemm_" + "x".join(str(size) for size in shape)


def _mkl_packed(a: torch.Tensor, weight: torch.Tensor) -> Callable[[], torch.Tensor] | None:
    """torch's linear with a weight in MKL's own packing, where this torch has MKL."""
    if not torch.backends.mkl.is_available():
        return None
    packed = torch.ops.mkl._mkl_reorder_linear_weight(weight, a.shape[0])
    return lambda: torch.ops.mkl._mkl_linear(a, packed, weight, None, a.shape[0])


def _check(calls: dict[str, Callable[[], torch.Tensor]], expected: torch.Tensor, inner: int) -> None:
    """A wrong product is not worth timing. Bound: `inner` roundings of sums of normal numbers, far from tight."""
    for name, call in calls.items():
        difference = (call().double() - expected).abs().max().item()
        if not difference <= inner * 2.0**-20:
            raise RuntimeError(f"{name} computes another product: it differs by {difference:.3g}")


def calls_for(shape: tuple[int, int, int], peer: openblas.OpenBlas) -> dict[str, Callable[[], torch.Tensor]]:
    """The same product by ours and by each peer."""
    load_operators()
    rows, columns, inner = shape
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(rows, inner, generator=generator)
    b = torch.randn(inner, columns, generator=generator)
    weight = b.t().contiguous()
    packed = torch.ops.quincunx.pack_linear_weight(weight)
    mkl_output, blas_output = torch.empty(rows, columns), torch.empty(rows, columns)

    def call_openblas() -> torch.Tensor:
        peer.matmul(a, b, blas_output)
        return blas_output

    calls = {
        "ours": lambda: torch.ops.quincunx.packed_linear(a, packed, columns),
        "MKL": lambda: torch.mm(a, b, out=mkl_output),
        peer.name: call_openblas,
    }
    if (mkl_packed := _mkl_packed(a, weight)) is not None:
        calls["MKL, packed"] = mkl_packed
    _check(calls, a.double() @ b.double(), inner)
    return calls


def measure(shape: tuple[int, int, int], threads: int, context: Context) -> list[Measurement]:
    peer = openblas.load(context.checkout)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    peer.set_num_threads(threads)
    try:
        pause_s = _PAUSE_S if threads > 1 else 0.0
        with torch.inference_mode():
            seconds = interleave(calls_for(shape, peer), context.rounds(pause_s=pause_s))
    finally:
        torch.set_num_threads(before)
        peer.set_num_threads(1)
    rows, columns, inner = shape
    gflop = 2e-9 * rows * columns * inner
    name = f"gemm f32 {rows} x {columns} x {inner}, packed weight"
    ours = seconds.pop("ours")
    return [Measurement(row_id(shape), name, "GF/s", ours, seconds, threads, value_of=lambda cost: gflop / cost)]


TASKS = tuple(
    Task((row_id(shape),), functools.partial(measure, shape, threads), threads, cores=threads)
    for shape in SHAPES
    for threads in THREADS
)
