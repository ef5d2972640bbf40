"""The row operators of torch.ops.quincunx beside torch's own, on tensors of a given size.

Each entry makes, for a number of elements and a dtype, our call, torch's call and the bytes that must be read and
written. `Case.copied` is a tensor whose copy reads and writes as many.
"""

import dataclasses
from collections.abc import Callable

import torch

F = torch.nn.functional
WIDTH = 1024
CLASSES = 8192
CHANNELS = 320


@dataclasses.dataclass(frozen=True)
class Case:
    ours: Callable[[], object]
    torch: Callable[[], object]
    copied: torch.Tensor


def _normal(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def _rows(elements: int, width: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    return _normal((elements // width, width), dtype, seed)


def rms_norm(elements: int, dtype: torch.dtype) -> Case:
    x, weight = _rows(elements, WIDTH, dtype), _normal((WIDTH,), dtype, 1)
    return Case(lambda: torch.ops.quincunx.rms_norm(x, weight, 1e-6), lambda: F.rms_norm(x, (WIDTH,), weight, 1e-6), x)


def layer_norm(elements: int, dtype: torch.dtype) -> Case:
    x, weight, bias = _rows(elements, WIDTH, dtype), _normal((WIDTH,), dtype, 1), _normal((WIDTH,), dtype, 2)
    return Case(
        lambda: torch.ops.quincunx.layer_norm(x, weight, bias, 1e-5),
        lambda: F.layer_norm(x, (WIDTH,), weight, bias, 1e-5),
        x,
    )


def add_rms_norm(elements: int, dtype: torch.dtype) -> Case:
    x, residual, weight = _rows(elements, WIDTH, dtype), _rows(elements, WIDTH, dtype, 3), _normal((WIDTH,), dtype, 1)

    def by_torch() -> tuple[torch.Tensor, torch.Tensor]:
        total = x + residual
        return F.rms_norm(total, (WIDTH,), weight, 1e-6), total

    return Case(lambda: torch.ops.quincunx.add_rms_norm(x, residual, weight, 1e-6), by_torch, torch.cat([x, residual]))


def modulated_layer_norm(elements: int, dtype: torch.dtype) -> Case:
    x = _rows(elements, WIDTH, dtype).unsqueeze(0)
    scale, shift = _normal((1, 1, WIDTH), dtype, 1), _normal((1, 1, WIDTH), dtype, 2)
    return Case(
        lambda: torch.ops.quincunx.modulated_layer_norm(x, scale, shift, 1e-6),
        lambda: F.layer_norm(x, (WIDTH,), None, None, 1e-6) * (1 + scale) + shift,
        x,
    )


def _group_norm(elements: int, dtype: torch.dtype, memory_format: torch.memory_format) -> Case:
    """Layers of 64 x 64, or one smaller layer: a group stays in the cache between its statistics and its use."""
    side = max(1, min(64, int((elements / CHANNELS) ** 0.5)))
    x = _normal((max(1, elements // (CHANNELS * side**2)), CHANNELS, side, side), dtype).to(memory_format=memory_format)
    weight, bias = _normal((CHANNELS,), dtype, 1), _normal((CHANNELS,), dtype, 2)
    return Case(
        lambda: torch.ops.quincunx.group_norm(x, 32, weight, bias, 1e-5, True),
        lambda: F.silu(F.group_norm(x, 32, weight, bias, 1e-5)),
        x,
    )


def group_norm(elements: int, dtype: torch.dtype) -> Case:
    return _group_norm(elements, dtype, torch.contiguous_format)


def group_norm_last(elements: int, dtype: torch.dtype) -> Case:
    return _group_norm(elements, dtype, torch.channels_last)


def softmax(elements: int, dtype: torch.dtype) -> Case:
    x = _rows(elements, WIDTH, dtype)
    return Case(lambda: torch.ops.quincunx.softmax(x, -1), lambda: torch.softmax(x, -1), x)


def softmax_columns(elements: int, dtype: torch.dtype) -> Case:
    x = _normal((elements // 256 // 128, 128, 256), dtype)
    return Case(lambda: torch.ops.quincunx.softmax(x, 1), lambda: torch.softmax(x, 1), x)


def log_softmax(elements: int, dtype: torch.dtype) -> Case:
    x = _rows(elements, WIDTH, dtype)
    return Case(lambda: torch.ops.quincunx.log_softmax(x, -1), lambda: torch.log_softmax(x, -1), x)


def cross_entropy(elements: int, dtype: torch.dtype) -> Case:
    """Forward: the logits are read, next to nothing is written."""
    x = _rows(elements, CLASSES, dtype)
    target = torch.arange(x.shape[0]) * 7 % CLASSES
    return Case(
        lambda: torch.ops.quincunx.cross_entropy(x, target), lambda: F.cross_entropy(x, target), x[: x.shape[0] // 2]
    )


def cross_entropy_backward(elements: int, dtype: torch.dtype) -> Case:
    """torch's gradient takes the matrix of logarithms that its forward pass wrote."""
    x = _rows(elements, CLASSES, dtype)
    target = torch.arange(x.shape[0]) * 7 % CLASSES
    one = torch.tensor(1.0)
    _, log_sum_exp = torch.ops.quincunx.cross_entropy(x, target)
    logs, one_of_dtype, count = torch.log_softmax(x, -1), one.to(dtype), torch.tensor(float(len(x))).to(dtype)

    def by_torch() -> torch.Tensor:
        of_logs = torch.ops.aten.nll_loss_backward(one_of_dtype, logs, target, None, 1, -100, count)
        return torch.ops.aten._log_softmax_backward_data(of_logs, logs, 1, dtype)

    return Case(lambda: torch.ops.quincunx.cross_entropy_backward(one, x, target, log_sum_exp), by_torch, x)


def _unary(name: str, by_torch: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[int, torch.dtype], Case]:
    def make(elements: int, dtype: torch.dtype) -> Case:
        x = _normal((elements,), dtype)
        return Case(lambda: torch.ops.quincunx.unary(x, name), lambda: by_torch(x), x)

    return make


def swiglu(elements: int, dtype: torch.dtype) -> Case:
    both = _rows(2 * elements, 2 * WIDTH, dtype)
    gate, up = both.chunk(2, -1)
    return Case(
        lambda: torch.ops.quincunx.gated(gate, up, "silu"), lambda: F.silu(gate) * up, both[: both.shape[0] * 3 // 4]
    )


def rope(elements: int, dtype: torch.dtype) -> Case:
    heads, head_dim = 8, 128
    x = _normal((1, elements // heads // head_dim, heads, head_dim), dtype)
    angles = torch.outer(torch.arange(x.shape[1]).float(), 10000.0 ** (-torch.arange(64) / 64))
    cos, sin = angles.cos(), angles.sin()
    wide_cos = torch.cat([cos, cos], -1).to(dtype)[:, None]
    wide_sin = torch.cat([sin, sin], -1).to(dtype)[:, None]

    def by_torch() -> torch.Tensor:
        first, second = x.chunk(2, -1)
        return x * wide_cos + torch.cat([-second, first], -1) * wide_sin

    return Case(lambda: torch.ops.quincunx.rope(x, cos, sin), by_torch, x)


def embedding(elements: int, dtype: torch.dtype) -> Case:
    """Each row of the table once, in an order that no prefetcher foresees."""
    table = _rows(elements, WIDTH, dtype)
    tokens = torch.randperm(table.shape[0], generator=torch.Generator().manual_seed(1))
    return Case(lambda: torch.ops.quincunx.embedding(table, tokens), lambda: F.embedding(tokens, table), table)


def embedding_bag(elements: int, dtype: torch.dtype) -> Case:
    table = _rows(elements, WIDTH, dtype)
    tokens = torch.randperm(table.shape[0], generator=torch.Generator().manual_seed(1))
    offsets = torch.arange(0, table.shape[0], 8)
    return Case(
        lambda: torch.ops.quincunx.embedding_bag(table, tokens, offsets),
        lambda: F.embedding_bag(tokens, table, offsets, mode="sum"),
        table[: table.shape[0] * 9 // 16],
    )


def top_k(elements: int, dtype: torch.dtype) -> Case:
    x = _rows(elements, elements, dtype)
    return Case(lambda: torch.ops.quincunx.top_k(x, 50), lambda: torch.topk(x, 50), x)


def sort(elements: int, dtype: torch.dtype) -> Case:
    x = _rows(elements, elements, dtype)
    return Case(lambda: torch.ops.quincunx.sort(x), lambda: torch.sort(x, stable=True), x)


def sample(elements: int, dtype: torch.dtype) -> Case:
    """Temperature, top-k 50 and top-p 0.9 of one row."""
    x = 3 * _rows(elements, elements, dtype)

    def by_torch() -> torch.Tensor:
        values, indices = torch.topk(x.float() / 0.8, 50)
        probabilities = values.softmax(-1)
        hidden = probabilities.cumsum(-1) - probabilities > 0.9
        return indices.gather(-1, torch.multinomial(probabilities.masked_fill(hidden, 0), 1))

    return Case(lambda: torch.ops.quincunx.sample(x, 0.8, 50, 0.9), by_torch, x)


# Of those that read and write every element once.
STREAMED: dict[str, Callable[[int, torch.dtype], Case]] = {
    "rms_norm": rms_norm,
    "layer_norm": layer_norm,
    "add_rms_norm": add_rms_norm,
    "modulated_layer_norm": modulated_layer_norm,
    "group_norm_silu": group_norm,
    "group_norm_silu_channels_last": group_norm_last,
    "softmax": softmax,
    "softmax_columns": softmax_columns,
    "log_softmax": log_softmax,
    "cross_entropy": cross_entropy,
    "cross_entropy_backward": cross_entropy_backward,
    "relu": _unary("relu", torch.relu),
    "silu": _unary("silu", F.silu),
    "gelu": _unary("gelu_erf", F.gelu),
    "swiglu": swiglu,
    "rope_rows": rope,
    "embedding": embedding,
}
SELECTING: dict[str, Callable[[int, torch.dtype], Case]] = {
    "embedding_bag": embedding_bag,
    "top_k": top_k,
    "sort": sort,
    "sampling": sample,
}
# Elementary functions, with torch's.
FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "exp": torch.exp,
    "log": torch.log,
    "sin": torch.sin,
    "cos": torch.cos,
    "tanh": torch.tanh,
    "erf": torch.erf,
    "sigmoid": torch.sigmoid,
    "rsqrt": torch.rsqrt,
}
