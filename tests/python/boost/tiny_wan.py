"""Small Wan models of diffusers with random weights, and the arguments to call them with."""

import torch
from diffusers import FlowMatchEulerDiscreteScheduler, WanPipeline, WanTransformer3DModel

TEXT_DIM = 16
GRID = (3, 4, 6)  # tokens of the latents below


def tiny_transformer(num_layers=2, seed=0, **options):
    torch.manual_seed(seed)
    return WanTransformer3DModel(
        num_attention_heads=2,
        attention_head_dim=24,
        in_channels=3,
        out_channels=3,
        text_dim=TEXT_DIM,
        freq_dim=32,
        ffn_dim=64,
        num_layers=num_layers,
        rope_max_seq_len=32,
        **options,
    ).eval()


def inputs_of(transformer, batch=1, dtype=torch.float32, seed=1, **more):
    generator = torch.Generator().manual_seed(seed)
    latents = torch.randn(batch, 3, GRID[0], 2 * GRID[1], 2 * GRID[2], generator=generator)
    text = torch.randn(batch, 7, TEXT_DIM, generator=generator)
    call = {"hidden_states": latents.to(dtype), "encoder_hidden_states": text.to(dtype)}
    return call | {"timestep": torch.full((batch,), 500.0), "return_dict": False} | more


def tiny_pipeline(**options):
    """A WanPipeline without VAE and text encoder: it takes embeddings of the prompt and gives latents."""
    pipe = WanPipeline(
        tokenizer=None,
        text_encoder=None,
        vae=None,
        transformer=tiny_transformer(**options),
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0),
    )
    pipe.set_progress_bar_config(disable=True)
    return pipe


def generate(pipe, generator=None, steps=3, guidance_scale=5.0, size=GRID, **more):
    """Latents [frames, height, width, channels] squeezed into 0 to 1."""
    latents = pipe(
        prompt_embeds=torch.ones(1, 7, TEXT_DIM),
        negative_prompt_embeds=-torch.ones(1, 7, TEXT_DIM),
        height=16 * size[1],
        width=16 * size[2],
        num_frames=4 * (size[0] - 1) + 1,
        num_inference_steps=steps,
        guidance_scale=guidance_scale,
        generator=generator or torch.Generator().manual_seed(0),
        output_type="latent",
        return_dict=False,
        **more,
    )[0]
    return latents[0].permute(1, 2, 3, 0).sigmoid()


def everything_in(root):
    """(module, attribute, object) of all that a change could touch, compared by identity."""
    found = []
    for module in root.modules():
        for name, value in vars(module).items():
            if isinstance(value, dict):
                found += [(id(module), name, key, id(item)) for key, item in value.items()]
            found.append((id(module), name, None, id(value)))
    return found
