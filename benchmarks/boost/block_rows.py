"""One transformer block of Wan 1.3B's shape, unboosted and boosted."""

import time

import torch
from quincunx import boost
from quincunx.cli.bench.capability import Context, Task
from quincunx.cli.bench.row import Measurement

from .attention_rows import one_thread

GRID = (16, 32, 32)  # 16,384 tokens
_QUICK_ROUNDS = 2


def build() -> tuple[torch.nn.Module, dict]:
    from diffusers import WanTransformer3DModel

    torch.manual_seed(0)
    model = WanTransformer3DModel(num_layers=1, num_attention_heads=12, ffn_dim=8960, text_dim=512).eval()
    latents = torch.randn(1, 16, GRID[0], 2 * GRID[1], 2 * GRID[2])
    call = {"hidden_states": latents, "encoder_hidden_states": torch.randn(1, 512, 512)}
    return model, call | {"timestep": torch.tensor([500.0]), "return_dict": False}


def measure(context: Context) -> list[Measurement]:
    model, call = build()
    seconds: dict[str, list[float]] = {"unboosted": [], "boosted": []}

    def timed(name: str) -> torch.Tensor:
        start = time.perf_counter()
        output = model(**call)[0]
        seconds[name].append(time.perf_counter() - start)
        return output

    with one_thread():
        for _ in range(_QUICK_ROUNDS if context.quick else context.num_steps):
            before = timed("unboosted")
            with boost.boosted(model, {"sparsity": 0.8}) as handle:
                after = timed("boosted")
    cosine = torch.nn.functional.cosine_similarity(before.flatten(), after.flatten(), dim=0).item()
    name = f"Wan 1.3B block, 16,384 tokens, density {handle.density:.2f}, cosine {cosine:.4f}"
    return [Measurement("wan_block", name, "s", seconds["boosted"], {"unboosted": seconds["unboosted"]})]


TASKS = (Task(("wan_block",), measure),)
