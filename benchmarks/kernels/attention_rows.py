"""Attention against PyTorch's scaled_dot_product_attention, and decoding against the bandwidth of reading the cache.

Shape suffixes: B batch, H heads, S tokens, D head size.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from quincunx._library import load_operators
from quincunx.cli.bench.capability import Context, Task
from quincunx.cli.bench.rounds import interleave
from quincunx.cli.bench.row import Measurement, Work
from torch.nn.functional import scaled_dot_product_attention

from . import read_bandwidth

HEADS, TOKENS = 2, 4096
HEAD_SIZES = (64, 128)
_BACKWARD_TOKENS = 2048
_PADDING = 3000  # keys that count of 4,096
# Two sides that sum in other orders: 30 roundings of weights on values below 6.
_LARGEST_DIFFERENCE = 6 * 30 * 6 * 2**-24
# A half result is rounded once more, torch's bf16 weights too.
_LARGEST_HALF_DIFFERENCE = 0.05

Call = Callable[[], torch.Tensor]


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def tensors(head_dim: int, dtype: torch.dtype = torch.float32, tokens: int = TOKENS) -> list[torch.Tensor]:
    load_operators()
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(1, HEADS, tokens, head_dim, generator=generator).to(dtype) for _ in range(3)]


def check(calls: dict[str, Call], bound: float = _LARGEST_DIFFERENCE) -> None:
    """A wrong result is not worth timing."""
    results = {name: call().float() for name, call in calls.items()}
    first = next(iter(results))
    for name, result in results.items():
        difference = (result - results[first]).abs().max().item()
        if not difference <= bound:
            raise RuntimeError(f"{name} computes something else than {first}: it differs by {difference:.3g}")


def _against_sdpa(
    row_id: str, name: str, calls: dict[str, Call], context: Context, threads: int, work: Work | None = None
) -> list[Measurement]:
    pause_s = 0.02 if threads > 1 else 0.0
    seconds = interleave(calls, context.rounds(pause_s=pause_s))
    ours = seconds.pop("ours")
    return [Measurement(row_id, name, "ms", ours, seconds, threads, value_of=lambda cost: cost * 1e3, work=work)]


def measure_dense(
    row_id: str, head_dim: int, dtype: torch.dtype, causal: bool, threads: int, context: Context
) -> list[Measurement]:
    q, k, v = tensors(head_dim, dtype)
    with _threads(threads), torch.inference_mode():
        calls = {
            "ours": lambda: torch.ops.quincunx.attention(q, k, v, causal=causal)[0],
            "SDPA": lambda: scaled_dot_product_attention(q, k, v, is_causal=causal),
        }
        check(calls, _LARGEST_DIFFERENCE if dtype == torch.float32 else _LARGEST_HALF_DIFFERENCE)
        kind = f"{'causal ' if causal else ''}{str(dtype).removeprefix('torch.')}"
        name = f"attention, {kind}, {TOKENS} tokens, {HEADS} heads of {head_dim}"
        pairs = HEADS * TOKENS * TOKENS / (2 if causal else 1)
        work = Work(4 * pairs * head_dim, 4 * q.numel() * dtype.itemsize)
        return _against_sdpa(row_id, name, calls, context, threads, work)


def measure_backward(row_id: str, head_dim: int, threads: int, context: Context) -> list[Measurement]:
    """The gradients alone: the graph of each side is kept."""
    q, k, v = (x.requires_grad_() for x in tensors(head_dim, tokens=_BACKWARD_TOKENS))
    gradient = torch.randn(q.shape, generator=torch.Generator().manual_seed(2))
    with _threads(threads):
        results = {
            "ours": torch.ops.quincunx.attention(q, k, v)[0],
            "SDPA": scaled_dot_product_attention(q, k, v),
        }

        def differentiate(name: str) -> torch.Tensor:
            return torch.cat(torch.autograd.grad(results[name], (q, k, v), gradient, retain_graph=True))

        calls = {name: functools.partial(differentiate, name) for name in results}
        check(calls, 8 * _LARGEST_DIFFERENCE)
        name = f"attention backward, float32, {_BACKWARD_TOKENS} tokens, {HEADS} heads of {head_dim}"
        return _against_sdpa(row_id, name, calls, context, threads)


def masks() -> dict[str, torch.Tensor]:
    """Padding, a bias for each pair, and blocks of 128 of which a quarter counts."""
    generator = torch.Generator().manual_seed(1)
    blocks = TOKENS // 128
    kept = torch.rand(blocks, blocks, generator=generator) < 0.25
    kept.fill_diagonal_(True)
    return {
        "padding": (torch.arange(TOKENS) < _PADDING)[None, None, None],
        "bias": torch.randn(1, 1, TOKENS, TOKENS, generator=generator),
        "blocks": kept.repeat_interleave(128, 0).repeat_interleave(128, 1)[None, None],
    }


def measure_mask(which: str, context: Context) -> list[Measurement]:
    q, k, v = tensors(64)
    mask = masks()[which]
    whole = mask.expand(1, HEADS, TOKENS, TOKENS)
    with _threads(1), torch.inference_mode():
        calls = {
            "ours": lambda: torch.ops.quincunx.attention(q, k, v, attn_mask=whole)[0],
            "SDPA with the mask": lambda: scaled_dot_product_attention(q, k, v, attn_mask=mask),
        }
        check(calls)
        name = f"attention, mask of {which}, {TOKENS} tokens, {HEADS} heads of 64"
        return _against_sdpa(f"attention_mask_{which}", name, calls, context, 1)


# id -> (key heads, query heads that share one, tokens in the cache, head size, dtype, page size or 0)
DECODES = {
    "attention_decode_d64": (8, 1, 16384, 64, torch.float32, 0),
    "attention_decode_d128": (8, 1, 8192, 128, torch.float32, 0),
    "attention_decode_grouped": (8, 4, 8192, 128, torch.float32, 0),
    "attention_decode_bf16": (8, 1, 16384, 128, torch.bfloat16, 0),
    "attention_decode_paged": (8, 1, 8192, 128, torch.float32, 64),
}


def measure_decode(row_id: str, threads: int, context: Context) -> list[Measurement]:
    """One token over a cache of 64 MiB, against reading as many bytes and against SDPA."""
    load_operators()
    key_heads, group, length, head_dim, dtype, page = DECODES[row_id]
    generator = torch.Generator().manual_seed(0)
    cache = torch.randn(2, key_heads * length * head_dim, generator=generator).to(dtype)
    q = torch.randn(1, key_heads * group, 1, head_dim, generator=generator).to(dtype)
    lengths = torch.tensor([length])
    if page:
        keys, values = cache.view(2, length // page, key_heads, page, head_dim)
        table = torch.randperm(length // page, generator=generator).to(torch.int32)[None]
        ops = torch.ops.quincunx
        calls: dict[str, Call] = {"ours": lambda: ops.paged_decode_attention(q, keys, values, table, lengths)[0]}
    else:
        keys, values = cache.view(2, 1, key_heads, length, head_dim)
        calls = {"ours": lambda: torch.ops.quincunx.decode_attention(q, keys, values)[0]}
        sdpa = {"SDPA": lambda: scaled_dot_product_attention(q, keys, values, enable_gqa=group > 1)}
        check({**calls, **sdpa}, _LARGEST_DIFFERENCE if dtype == torch.float32 else _LARGEST_HALF_DIFFERENCE)
    calls[read_bandwidth.NAME] = read_bandwidth.reader(context.checkout, cache, threads)
    with _threads(threads), torch.inference_mode():
        seconds = interleave(calls, context.rounds(pause_s=0.02 if threads > 1 else 0.0))
    gigabytes = cache.numel() * cache.element_size() / 1e9
    kind = f"{str(dtype).removeprefix('torch.')}{f', pages of {page}' if page else ''}"
    name = f"decode, {kind}, {length} tokens, {key_heads * group} heads of {head_dim}, {key_heads} in the cache"
    ours = seconds.pop("ours")
    work = Work(4.0 * length * q.numel(), 1e9 * gigabytes)
    return [Measurement(row_id, name, "GB/s", ours, seconds, threads, value_of=lambda s: gigabytes / s, work=work)]


def _dense(row_id: str, head_dim: int, dtype: torch.dtype, causal: bool, threads: int) -> Task:
    measure = functools.partial(measure_dense, row_id, head_dim, dtype, causal, threads)
    return Task((row_id,), measure, threads, cores=threads)


TASKS = (
    *(_dense(f"attention_d{d}", d, torch.float32, False, threads) for d in HEAD_SIZES for threads in (1, 2)),
    _dense("attention_causal_d64", 64, torch.float32, True, 1),
    *(_dense(f"attention_bf16_d{d}", d, torch.bfloat16, False, 1) for d in HEAD_SIZES),
    *(
        Task((f"attention_backward_d{d}",), functools.partial(measure_backward, f"attention_backward_d{d}", d, 1))
        for d in HEAD_SIZES
    ),
    *(
        Task((f"attention_mask_{which}",), functools.partial(measure_mask, which))
        for which in ("padding", "bias", "blocks")
    ),
    *(
        Task((row_id,), functools.partial(measure_decode, row_id, threads), threads, cores=threads)
        for row_id in DECODES
        for threads in (1, 2)
    ),
)
