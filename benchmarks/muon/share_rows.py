"""How near Newton-Schulz is to its limit, and which part of a training step Muon takes; one process, one thread."""

import functools
import statistics
import time

import torch
from quincunx.cli.bench.capability import Context, Task
from quincunx.cli.bench.rounds import interleave
from quincunx.cli.bench.row import Measurement
from torch import nn
from torch.nn import functional

from ..kernels.newton_schulz_rows import BATCHES, by_ours

# (width, tokens): the rows of the table.
STEPS = ((256, 8192), (512, 8192), (256, 32768), (512, 32768))
_LAYERS, _HEAD_DIM, _SEQUENCE = 4, 64, 512
_VOCABULARY = 4096
_SQUARE = 1024


def planned_flops(params: list[nn.Parameter]) -> float:
    """Operations of Newton-Schulz on all of them, in the form that is chosen for each."""
    from quincunx.muon import Muon

    optimizer = Muon(params)
    return float(sum(sum(grid.plan.rank_flops) for grid, _ in optimizer._grids))


def measure_limit(row_id: str, context: Context) -> list[Measurement]:
    count, rows, columns = BATCHES[row_id]
    batch = torch.randn(count, rows, columns, generator=torch.Generator().manual_seed(0))
    flops = planned_flops([nn.Parameter(batch)])
    a, b = torch.randn(2, _SQUARE, _SQUARE, generator=torch.Generator().manual_seed(0))
    output = torch.empty(_SQUARE, _SQUARE)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.inference_mode():
            calls = {"ours": lambda: by_ours(batch), "sgemm": lambda: torch.mm(a, b, out=output)}
            seconds = interleave(calls, context.rounds())
    finally:
        torch.set_num_threads(before)
    at_best_rate = [min(seconds["sgemm"]) * flops / (2.0 * _SQUARE**3)] * len(seconds["ours"])
    name = f"Newton-Schulz against its FLOPs at the best sgemm rate, {count} x ({rows}, {columns})"
    peers = {"FLOPs / sgemm rate": at_best_rate}
    return [Measurement("newton_schulz_limit", name, "ms", seconds["ours"], peers, value_of=lambda cost: cost * 1e3)]


class _Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        heads = self.qkv(self.norm(x)).view(batch, length, 3, width // _HEAD_DIM, _HEAD_DIM).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norm(x))))


class _Gpt(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(_VOCABULARY, width)
        self.blocks = nn.Sequential(*(_Block(width) for _ in range(_LAYERS)))
        self.head = nn.Linear(width, _VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits = self.head(self.blocks(self.embedding(tokens[:, :-1])))
        return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def _step_flops(width: int, num_matrix_elements: int, tokens: int) -> float:
    """Forward and twice that backward: products with weights and the head, causal attention at half its square."""
    weights = num_matrix_elements + width * _VOCABULARY
    return 3.0 * tokens * (2.0 * weights + 2.0 * _LAYERS * _SEQUENCE * width)


def measure_share(width: int, tokens: int, context: Context) -> list[Measurement]:
    from quincunx.muon import Muon

    torch.manual_seed(0)
    model = _Gpt(width)
    matrices = [param for param in model.blocks.parameters() if param.ndim == 2]
    muon = Muon(matrices)
    chosen = {id(param) for param in matrices}
    rest = torch.optim.AdamW([param for param in model.parameters() if id(param) not in chosen])
    batch = torch.randint(_VOCABULARY, (tokens // _SEQUENCE, _SEQUENCE + 1))
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    shares = []
    try:
        for _ in range(1 + (1 if context.quick else 3)):
            start = time.perf_counter()
            model(batch).backward()
            rest.step()
            begin_muon = time.perf_counter()
            muon.step()
            end = time.perf_counter()
            model.zero_grad()
            shares.append(100 * (end - begin_muon) / (end - start))
    finally:
        torch.set_num_threads(before)
    shares = shares[1:]  # the first step warms up
    elements = sum(param.numel() for param in matrices)
    ideal = 100 * planned_flops(matrices) / _step_flops(width, elements, tokens)
    name = f"Muon's share of a training step, GPT, d = {width}, {tokens // 1024}k tokens"
    measured = [Measurement("share_of_step", name, "%", shares, {"share of FLOPs": [ideal] * len(shares)})]
    if (width, tokens) == (256, 32768):
        measured.append(Measurement("share_of_step_256_32k", name, "%", [statistics.median(shares)]))
    return measured


def _ids(width: int, tokens: int) -> tuple[str, ...]:
    return ("share_of_step", "share_of_step_256_32k") if (width, tokens) == (256, 32768) else ("share_of_step",)


TASKS = (
    *(Task(("newton_schulz_limit",), functools.partial(measure_limit, row_id)) for row_id in BATCHES),
    *(Task(_ids(*step), functools.partial(measure_share, *step)) for step in STEPS),
)
