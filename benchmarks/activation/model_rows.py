"""Bytes and time of a Llama-style model of twelve layers under policies, against the same model without one."""

import functools
import time
from collections.abc import Callable

import torch
from quincunx.activation import Policy, Rule, checkpoint, record_timeline, swap_arena
from quincunx.cli.bench.capability import Context, Task
from quincunx.cli.bench.row import Measurement
from torch import nn
from torch.nn import functional

from .region_rows import one_thread

_LAYERS, _WIDTH, _HEADS, _HIDDEN = 12, 256, 4, 688
_LENGTH = 1024
_ARENA_BYTES = 4 << 30
_IN_MEMORY = ("saved", "recomputed", "swap_buffer")


class _Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(_WIDTH) for _ in range(2))
        self.qkv = nn.Linear(_WIDTH, 3 * _WIDTH, bias=False)
        self.out = nn.Linear(_WIDTH, _WIDTH, bias=False)
        self.gate, self.up = (nn.Linear(_WIDTH, _HIDDEN, bias=False) for _ in range(2))
        self.down = nn.Linear(_HIDDEN, _WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        heads = self.qkv(self.norms[0](x)).view(batch, length, 3, _HEADS, width // _HEADS).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        h = self.norms[1](x)
        return x + self.down(functional.silu(self.gate(h)) * self.up(h))


def _save_products() -> Policy:
    names = ("aten.mm", "aten._scaled_dot_product_flash_attention_for_cpu")
    return Policy([Rule(op=name, action="SAVE") for name in names])


def _swap_all() -> Policy:
    return Policy(default="SWAP", arena=swap_arena(budget_bytes=_ARENA_BYTES))


class _Step:
    """Forward and backward of the layers, each a region where there is a policy."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.layers = nn.ModuleList(_Layer() for _ in range(_LAYERS))
        self.x = torch.randn(1, _LENGTH, _WIDTH)

    def __call__(self, policy: Policy | None) -> None:
        x = self.x
        for layer in self.layers:
            x = layer(x) if policy is None else checkpoint(layer, x, policy=policy)
        x.square().mean().backward()
        self.layers.zero_grad()


def measure_products(context: Context) -> list[Measurement]:
    step, policy = _Step(), _save_products()
    seconds: dict[str, list[float]] = {"ours": [], "none": []}
    with one_thread():
        with record_timeline() as timeline:
            step(policy)
        step(None)
        for _ in range(context.num_steps):
            for name, chosen in (("ours", policy), ("none", None)):
                start = time.perf_counter()
                step(chosen)
                seconds[name].append(time.perf_counter() - start)
    name = f"Llama-style, {_LAYERS} layers, S = {_LENGTH}, products saved"
    held = [timeline.peak_bytes(*_IN_MEMORY) / 2**20], {"no policy": [timeline.peak_bytes("autograd") / 2**20]}
    return [
        Measurement("products_bytes", f"{name}, peak of activations", "MiB", *held),
        Measurement(
            "products_time",
            f"{name}, step",
            "ms",
            seconds["ours"],
            {"no policy": seconds["none"]},
            value_of=lambda cost: cost * 1e3,
        ),
    ]


def _resident_bytes() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon")) * 1024


def hold_activations(rank: int, num_ranks: int, store: str, *, swaps: bool) -> float:
    """Runs in a process of its own: MiB that the forward of the layers leaves resident."""
    torch.set_num_threads(1)
    step, policy = _Step(), _swap_all() if swaps else None
    small = torch.randn(1, 8, _WIDTH)
    run: Callable = functools.partial(checkpoint, policy=policy) if swaps else lambda layer, x: layer(x)
    for layer in step.layers:  # what torch makes at first use is no activation
        small = run(layer, small)
    small.sum().backward()
    before = _resident_bytes()
    x = step.x
    for layer in step.layers:
        x = run(layer, x)
    held = (_resident_bytes() - before) / 2**20
    x.sum().backward()
    return held


def measure_swap(context: Context) -> list[Measurement]:
    held = {}
    for swaps in (True, False):
        held[swaps] = context.workers(1).run(__name__, "hold_activations", swaps=swaps)[0]
        context.close()  # the next one starts with memory of its own
    name = f"Llama-style, {_LAYERS} layers, S = {_LENGTH}, all swapped, resident after the forward"
    return [Measurement("swap_resident", name, "MiB", [max(held[True], 1e-3)], {"no policy": [held[False]]})]


TASKS = (
    Task(("products_bytes", "products_time"), measure_products),
    Task(("swap_resident",), measure_swap, cores=0),
)
