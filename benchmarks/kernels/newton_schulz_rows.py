"""Newton-Schulz on a batch against the loop of f32 torch products over its matrices."""

import functools

import torch
from quincunx._library import load_operators
from quincunx.cli.bench.capability import Context, Task
from quincunx.cli.bench.rounds import interleave
from quincunx.cli.bench.row import Measurement

# id -> (matrices, rows, columns)
BATCHES = {
    "newton_schulz_24x1024": (74, 24, 1024),
    "newton_schulz_24x10240": (74, 24, 10240),
    "newton_schulz_square_512": (1, 512, 512),
}
THREADS = (1, 2)
NUM_STEPS = 5
EPS = 1e-7
# The random matrices are well-conditioned: both sides stay far below this distance from the exact result.
_LARGEST_DIFFERENCE = 1e-3


@functools.cache
def coefficients() -> tuple[float, ...]:
    load_operators()
    return tuple(torch.ops.quincunx.newton_schulz_coefficients("polar_express", NUM_STEPS))


def by_torch(matrix: torch.Tensor) -> torch.Tensor:
    """One matrix by torch's products, the wide way round."""
    is_tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.t() if is_tall else matrix
    x = x / (x.norm() + EPS)
    flat = coefficients()
    for a, b, c in zip(flat[0::3], flat[1::3], flat[2::3], strict=True):
        gram = x @ x.t()
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.t() if is_tall else x


def by_torch_loop(batch: torch.Tensor) -> torch.Tensor:
    return torch.stack([by_torch(matrix) for matrix in batch])


def by_ours(batch: torch.Tensor) -> torch.Tensor:
    return torch.ops.quincunx.newton_schulz(batch, list(coefficients()), EPS, "auto")


def seconds_of(batch: torch.Tensor, threads: int, context: Context) -> dict[str, list[float]]:
    """Interleaved seconds of ours and of the loop, after a comparison of their results."""
    load_operators()
    difference = (by_ours(batch) - by_torch_loop(batch)).abs().max().item()
    if not difference <= _LARGEST_DIFFERENCE:
        raise RuntimeError(f"ours and the torch loop differ by {difference:.3g}")
    calls = {"ours": lambda: by_ours(batch), "torch f32 loop": lambda: by_torch_loop(batch)}
    return interleave(calls, context.rounds(pause_s=0.02 if threads > 1 else 0.0))


def measure(row_id: str, threads: int, context: Context) -> list[Measurement]:
    sizes = BATCHES[row_id]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.inference_mode():
            batch = torch.randn(sizes, generator=torch.Generator().manual_seed(0))
            seconds = seconds_of(batch, threads, context)
    finally:
        torch.set_num_threads(before)
    name = f"Newton-Schulz alone, {sizes[0]} x ({sizes[1]}, {sizes[2]})"
    return [Measurement(row_id, name, "ms", seconds.pop("ours"), seconds, threads, value_of=lambda cost: cost * 1e3)]


TASKS = tuple(
    Task((row_id,), functools.partial(measure, row_id, threads), threads, cores=threads)
    for row_id in BATCHES
    for threads in THREADS
)
