"""Attention of 4,096 tokens: ours to lists of blocks and with a mask of padding, against SDPA and FlexAttention.

Shape suffixes: B batch, H heads, S tokens, D head size.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from quincunx.boost import attention, rain_fusion_attention, sparse_attention
from quincunx.cli.bench.capability import Context, Task
from quincunx.cli.bench.rounds import interleave
from quincunx.cli.bench.row import Measurement
from torch.nn import functional
from torch.nn.attention import flex_attention

HEADS, LATENT = 12, (4, 32, 32)
TOKENS = LATENT[0] * LATENT[1] * LATENT[2]
BLOCK = 128
BLOCKS = TOKENS // BLOCK
DENSITIES = (0.5, 0.2, 0.1)
_PADDING = 3000  # keys that count of 4,096
# Two sides that sum in other orders: 30 roundings of weights on values below 6.
_LARGEST_DIFFERENCE = 6 * 30 * 6 * 2**-24


@contextmanager
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.inference_mode():
            yield
    finally:
        torch.set_num_threads(before)


def tensors(head_dim: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(1, HEADS, TOKENS, head_dim, generator=generator) for _ in range(3)]


def block_mask(density: float) -> torch.Tensor:
    """[H, query blocks, key blocks]: random blocks, rows of 6 and 7 by turns where a density asks for 6.4."""
    generator = torch.Generator().manual_seed(1)
    mask = torch.zeros(HEADS, BLOCKS, BLOCKS, dtype=torch.bool)
    for head in range(HEADS):
        for row in range(BLOCKS):
            count = int((row + 1) * density * BLOCKS) - int(row * density * BLOCKS)
            mask[head, row, torch.randperm(BLOCKS, generator=generator)[:count]] = True
    return mask


def by_lists(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> Callable[[], torch.Tensor]:
    num_HQ = mask.sum(-1)
    order = mask.to(torch.int8).sort(dim=-1, descending=True, stable=True).indices
    idx, num = order.transpose(0, 1).contiguous(), num_HQ.transpose(0, 1).contiguous()
    return lambda: rain_fusion_attention(q, k, v, idx, num, (BLOCK, BLOCK))[0]


@functools.cache
def _compiled_flex() -> Callable:
    return torch.compile(flex_attention.flex_attention, dynamic=False)


def by_flex(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> Callable[[], torch.Tensor]:
    kept = mask.clone()

    def keeps(batch, head, query, key):
        return kept[head, query // BLOCK, key // BLOCK]

    blocks = flex_attention.create_block_mask(keeps, 1, HEADS, TOKENS, TOKENS, device="cpu", BLOCK_SIZE=BLOCK)
    attend = _compiled_flex()
    return lambda: attend(q, k, v, block_mask=blocks)


def check(calls: dict[str, Callable[[], torch.Tensor]], bound: float = _LARGEST_DIFFERENCE) -> None:
    """A wrong result is not worth timing."""
    results = {name: call() for name, call in calls.items()}
    first = next(iter(results))
    for name, result in results.items():
        difference = (result - results[first]).abs().max().item()
        if not difference <= bound:
            raise RuntimeError(f"{name} computes something else than {first}: it differs by {difference:.3g}")


def measure_all_blocks(head_dim: int, context: Context) -> list[Measurement]:
    """Every block listed, and the whole with order, choice and inverse at sparsity 0, against SDPA."""
    q, k, v = tensors(head_dim)
    everything = torch.ones(HEADS, BLOCKS, BLOCKS, dtype=torch.bool)
    with one_thread():
        calls = {
            "kernel": by_lists(q, k, v, everything),
            "whole": lambda: sparse_attention(q, k, v, latent_shape=LATENT, sparsity=0.0).output,
            "SDPA": lambda: functional.scaled_dot_product_attention(q, k, v),
        }
        check(calls)
        seconds = interleave(calls, context.rounds())
    peers = {"SDPA": seconds["SDPA"]}
    shape = f"{TOKENS} tokens, {HEADS} heads of {head_dim}"
    rows = [Measurement(f"sparse_0_d{head_dim}", f"sparse kernel, all blocks, {shape}", "s", seconds["kernel"], peers)]
    if head_dim == 128:
        rows.append(Measurement("whole_0", f"sparse_attention, sparsity 0, {shape}", "s", seconds["whole"], peers))
    return rows


def measure_density(density: float, context: Context) -> list[Measurement]:
    """Lists of random blocks, and the whole at the sparsity that leaves as many or more, against dense SDPA."""
    q, k, v = tensors(128)
    mask = block_mask(density)
    with one_thread():
        attained = sparse_attention(q, k, v, latent_shape=LATENT, sparsity=1 - density).density.item()
        calls = {
            "kernel": by_lists(q, k, v, mask),
            "whole": lambda: sparse_attention(q, k, v, latent_shape=LATENT, sparsity=1 - density).output,
            "SDPA": lambda: functional.scaled_dot_product_attention(q, k, v),
        }
        seconds = interleave(calls, context.rounds())
    peers, percent = {"SDPA": seconds["SDPA"]}, round(100 * density)
    kept = f"{mask.float().mean():.3f}"
    return [
        Measurement(f"sparse_{percent}", f"sparse kernel, density {kept}, lists given", "s", seconds["kernel"], peers),
        Measurement(f"whole_{percent}", f"sparse_attention, density {attained:.3f}", "s", seconds["whole"], peers),
    ]


def measure_flex(density: float, context: Context) -> list[Measurement]:
    """The same blocks by FlexAttention, compiled."""
    q, k, v = tensors(128)
    mask = block_mask(density)
    with one_thread():
        calls = {"ours": by_lists(q, k, v, mask), "FlexAttention": by_flex(q, k, v, mask)}
        check(calls)
        seconds = interleave(calls, context.rounds())
    name = f"sparse kernel, density {mask.float().mean():.3f}, lists given"
    peers = {"FlexAttention": seconds["FlexAttention"]}
    return [Measurement(f"flex_{round(100 * density)}", name, "s", seconds["ours"], peers)]


def measure_padding(context: Context) -> list[Measurement]:
    """Dense attention under a bool mask of padding, the same mask for both."""
    q, k, v = tensors(128)
    mask = (torch.arange(TOKENS) < _PADDING)[None, None, None]
    with one_thread():
        calls = {
            "ours": lambda: attention(q, k, v, attn_mask=mask),
            "SDPA with a bool mask": lambda: functional.scaled_dot_product_attention(q, k, v, attn_mask=mask),
        }
        check(calls)
        seconds = interleave(calls, context.rounds())
    peers = {"SDPA with a bool mask": seconds["SDPA with a bool mask"]}
    return [Measurement("padding", f"dense, {_PADDING} of {TOKENS} keys count", "s", seconds["ours"], peers)]


TASKS = (
    Task(("sparse_0_d64",), functools.partial(measure_all_blocks, 64)),
    Task(("sparse_0_d128", "whole_0"), functools.partial(measure_all_blocks, 128)),
    *(
        Task((f"sparse_{round(100 * d)}", f"whole_{round(100 * d)}"), functools.partial(measure_density, d))
        for d in DENSITIES
    ),
    *(Task((f"flex_{round(100 * d)}",), functools.partial(measure_flex, d)) for d in DENSITIES),
    Task(("padding",), measure_padding),
)
