"""Trains a tiny video diffusion transformer on moving shapes, and compares its videos with and without boosting.

    python examples/boost/train_tiny_video.py --seconds 60

The model is diffusers' WanTransformer3DModel in a WanPipeline without VAE: its latents are the pixels. Flow matching:
the model learns the velocity noise - video at points between the two.

Shape suffixes: B batch, C channels, F frames, H height, W width.
"""

import argparse
import dataclasses
import math
import time
from collections.abc import Callable

import torch
from diffusers import FlowMatchEulerDiscreteScheduler, WanPipeline, WanTransformer3DModel
from quincunx import boost
from quincunx.muon import build_optimizer

FRAMES, SIZE = 8, 32
SHAPES = ("disc", "square")
COLOURS = {"red": (0.9, 0.2, 0.2), "green": (0.2, 0.8, 0.3), "blue": (0.3, 0.4, 0.95)}
BACKGROUND = 0.2
TEXT_DIM, TEXT_LENGTH = 32, 3  # a null token, the shape, the colour
SCALE_OF_VAE = 8, 4  # what a pipeline without VAE takes for the sizes of its latents: space, time
SHIFT = 3.0  # of noise levels: where a shape is, is decided while there is much noise
BOOST_CONFIG = {"sparsity": 0.5, "tile": (2, 2, 2)}


@dataclasses.dataclass(frozen=True)
class Progress:
    step: int
    loss: float
    seconds: float


def moving_shapes(generator: torch.Generator, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(videos [B, C, F, H, W] with values -1 to 1, their prompts [B, text tokens, text dim])."""
    shape = torch.randint(len(SHAPES), (batch,), generator=generator)
    colour = torch.randint(len(COLOURS), (batch,), generator=generator)
    radius = 6 + 2 * torch.rand(batch, 1, 1, 1, generator=generator)
    start = SIZE * torch.rand(batch, 2, generator=generator)
    velocity = 2.5 * (2 * torch.rand(batch, 2, generator=generator) - 1)
    time_F = torch.arange(FRAMES, dtype=torch.float32)
    centre_BF2 = start[:, None] + velocity[:, None] * time_F[:, None]
    axis = torch.arange(SIZE, dtype=torch.float32)
    # Shapes leave on one side and come back on the other.
    dy = (axis[:, None] - centre_BF2[..., 0, None, None] + SIZE / 2) % SIZE - SIZE / 2
    dx = (axis[None, :] - centre_BF2[..., 1, None, None] + SIZE / 2) % SIZE - SIZE / 2
    disc = torch.sqrt(dy.square() + dx.square())
    square = torch.maximum(dy.abs(), dx.abs())
    distance_BFHW = torch.where(shape.view(-1, 1, 1, 1) == 0, disc, square)
    inside_BFHW = torch.sigmoid(2 * (radius - distance_BFHW))
    palette = torch.tensor(list(COLOURS.values()))[colour]
    pixels = [inside_BFHW * palette[:, c].view(-1, 1, 1, 1) + (1 - inside_BFHW) * BACKGROUND for c in range(3)]
    return 2 * torch.stack(pixels, 1) - 1, prompts(shape, colour)


def prompts(shape: torch.Tensor, colour: torch.Tensor) -> torch.Tensor:
    """Fixed embeddings of the words, as a text encoder would give."""
    table = torch.randn(1 + len(SHAPES) + len(COLOURS), TEXT_DIM, generator=torch.Generator().manual_seed(1))
    null = torch.zeros_like(shape)
    return table[torch.stack([null, 1 + shape, 1 + len(SHAPES) + colour], 1)]


@torch.no_grad()
def look_near_first(transformer: WanTransformer3DModel) -> None:
    """Starts with attention to neighbours, which would take long to learn: queries and keys share a constant part,
    whose product rotary embedding makes smaller the farther two tokens are apart."""
    for block in transformer.blocks:
        for projection in (block.attn1.to_q, block.attn1.to_k):
            projection.weight.mul_(0.5)
            projection.bias.fill_(1.0)
        for norm in (block.attn1.norm_q, block.attn1.norm_k):
            norm.weight.fill_(3.0)


def build_pipeline(seed: int) -> WanPipeline:
    torch.manual_seed(seed)
    transformer = WanTransformer3DModel(
        patch_size=(1, 4, 4),
        num_attention_heads=2,
        attention_head_dim=32,
        in_channels=3,
        out_channels=3,
        text_dim=TEXT_DIM,
        freq_dim=64,
        ffn_dim=192,
        num_layers=3,
        rope_max_seq_len=64,
    )
    look_near_first(transformer)
    scheduler = FlowMatchEulerDiscreteScheduler(shift=SHIFT)
    pipe = WanPipeline(tokenizer=None, text_encoder=None, vae=None, transformer=transformer, scheduler=scheduler)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def train(
    *,
    num_steps: int = 300,
    seconds: float = math.inf,
    batch: int = 4,
    seed: int = 0,
    progress: Callable[[Progress], None] | None = None,
) -> WanPipeline:
    """A trained pipeline, after so many steps or seconds, whichever comes first."""
    pipe = build_pipeline(seed)
    model = pipe.transformer.train()
    generator = torch.Generator().manual_seed(seed)
    options = {"lr": 3e-3, "betas": (0.9, 0.98), "weight_decay": 0.0}
    optimizer = build_optimizer(model, muon={"lr": 2e-2, "weight_decay": 0.0}, adamw=options)
    rates = [group["lr"] for group in optimizer.param_groups]
    start = time.perf_counter()
    for step in range(num_steps):
        elapsed = time.perf_counter() - start
        done = max(step / num_steps, elapsed / seconds)
        if done >= 1:
            break
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * min(1.0, (step + 1) / 20) * 0.5 * (1 + math.cos(math.pi * done))
        video, text = moving_shapes(generator, batch)
        noise = torch.randn(video.shape, generator=generator)
        uniform = torch.sigmoid(torch.randn(batch, generator=generator))
        sigma = SHIFT * uniform / (1 + (SHIFT - 1) * uniform)
        mixed = torch.lerp(video, noise, sigma.view(-1, 1, 1, 1, 1))
        velocity = model(mixed, 1000 * sigma, text, return_dict=False)[0]
        loss = (velocity - (noise - video)).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if progress is not None:
            progress(Progress(step, loss.item(), time.perf_counter() - start))
    model.eval()
    return pipe


def generate(
    pipe: WanPipeline, generator: torch.Generator, *, shape: str = "disc", colour: str = "red", steps: int = 12
) -> torch.Tensor:
    """A video [frames, height, width, channels] with values 0 to 1: what boost.quality takes as `generate`."""
    words = torch.tensor([SHAPES.index(shape)]), torch.tensor([list(COLOURS).index(colour)])
    latents = pipe(
        prompt_embeds=prompts(*words),
        height=SCALE_OF_VAE[0] * SIZE,
        width=SCALE_OF_VAE[0] * SIZE,
        num_frames=SCALE_OF_VAE[1] * (FRAMES - 1) + 1,
        num_inference_steps=steps,
        guidance_scale=1.0,
        generator=generator,
        output_type="latent",
        return_dict=False,
    )[0]
    return ((latents[0] + 1) / 2).clamp(0, 1).permute(1, 2, 3, 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="training stops after so many")
    parser.add_argument("--steps", type=int, default=300, help="or after so many steps")
    arguments = parser.parse_args()

    def show(now: Progress) -> None:
        if now.step % 20 == 0:
            print(f"step {now.step:4}  loss {now.loss:.4f}  {now.seconds:5.1f} s", flush=True)

    pipe = train(num_steps=arguments.steps, seconds=arguments.seconds, progress=show)
    for sparsity in (0.0, 0.3, 0.5, 0.7):
        result = boost.quality(pipe, BOOST_CONFIG | {"sparsity": sparsity}, generate=generate)
        print(f"\nsparsity {sparsity}\n{result}", flush=True)


if __name__ == "__main__":
    main()
