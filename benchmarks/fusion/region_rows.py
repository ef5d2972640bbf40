"""Single regions: our kernel against the C++ kernel that Inductor writes for the same graph, called as compiled."""

import functools
from collections.abc import Callable

import quincunx.fusion
import torch
from quincunx.cli.bench.capability import Context, Task
from quincunx.cli.bench.rounds import interleave
from quincunx.cli.bench.row import Measurement
from torch.nn import functional

from .threads import one_thread

Function = Callable[..., torch.Tensor]


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * weight


def rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def _randn(*shapes: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
    return tuple(torch.randn(shape) for shape in shapes)


# 128 and 512 rows of transformers: they stay in the second cache, where code counts and not the memory.
REGIONS: dict[str, tuple[Function, tuple[tuple[int, ...], ...]]] = {
    "rms_norm": (rms_norm, ((128, 768), (768,))),
    "layer_norm": (lambda x, w, b: functional.layer_norm(x + b, (768,), w, b), ((128, 768), (768,), (768,))),
    "softmax": (lambda x: torch.softmax(x * 0.125, -1), ((512, 128),)),
    "gelu": (lambda x, b: functional.gelu(x + b), ((128, 3072), (3072,))),
    "swiglu": (lambda gate, up: functional.silu(gate) * up, ((128, 2048), (128, 2048))),
    "rotary": (rotary, ((1, 8, 128, 64), (128, 32), (128, 32))),
    "residual_norm": (lambda x, y, w: rms_norm(x + y, w) + x, ((128, 768), (128, 768), (768,))),
}


def measure(name: str, context: Context) -> list[Measurement]:
    function, shapes = REGIONS[name]
    torch.manual_seed(0)
    torch._dynamo.reset()
    inputs = _randn(*shapes)
    # Another region beside it would be another figure.
    before = quincunx.fusion.counters()["regions"]
    stock = torch.compile(lambda *tensors: function(*tensors))
    ours = torch.compile(lambda *tensors: function(*tensors), backend="quincunx")
    with one_thread(), torch.no_grad():
        torch.testing.assert_close(ours(*inputs), stock(*inputs), rtol=1e-4, atol=1e-5)
        if quincunx.fusion.counters()["regions"] - before != 1:
            raise RuntimeError(f"{name} became no single region")
        seconds = interleave({"ours": lambda: ours(*inputs), "Inductor": lambda: stock(*inputs)}, context.rounds())
    return [
        Measurement(
            f"region_{name}",
            f"region {name} of {' and '.join('x'.join(map(str, shape)) for shape in shapes)}, our LLVM IR against C++",
            "us",
            seconds["ours"],
            {"Inductor's C++": seconds["Inductor"]},
            value_of=lambda cost: cost * 1e6,
        )
    ]


TASKS = tuple(Task((f"region_{name}",), functools.partial(measure, name)) for name in REGIONS)
