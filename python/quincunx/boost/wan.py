"""Boosts the Wan models of diffusers: WanTransformer3DModel and the pipelines around one or two of them.

Shapes: B batch, S tokens, C channels, H heads, D head size.
"""

import functools
import math

import torch
from torch import Tensor, nn

from .blocks import GridRotation, Run, SelfAttention, norm_by_kernel
from .changes import Changes
from .config import BoostConfig
from .counters import Counters
from .dense import attention
from .norms import layer_norm, modulated_layer_norm
from .rotary import axis_dims, rotary_tables

_THETA = 10000.0  # WanTransformer3DModel gives it to its rotary embedding; the module does not keep it


class _Rope(nn.Module):
    """Instead of WanRotaryPosEmbed: gives the blocks the grid and our tables."""

    def __init__(self, head_dim: int, patch_size: tuple[int, int, int]) -> None:
        super().__init__()
        self._dims = axis_dims(None, head_dim)
        self._patch_size = patch_size

    def forward(self, latents: Tensor) -> GridRotation:
        grid = tuple(size // patch for size, patch in zip(latents.shape[2:], self._patch_size, strict=True))
        return GridRotation(grid, *rotary_tables(latents, _THETA, self._dims, grid, math.prod(grid)))


def _check_rope(own: nn.Module, name: str) -> None:
    """Our tables are those of _THETA: a module with others would be replaced by something else."""
    expected = [
        _THETA ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim) for dim in (own.t_dim, own.h_dim, own.w_dim)
    ]
    row = own.freqs_cos[1:2, 0::2]
    difference = (row.double() - torch.cat(expected).cos()).abs().max() if row.numel() else torch.tensor(0.0)
    if not difference <= torch.finfo(row.dtype).eps:
        raise ValueError(f"{name}: expected the rotary tables of theta {_THETA:g}, got others")


def _projections(attn: nn.Module, x_BSC: Tensor, context_BSC: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    if not getattr(attn, "fused_projections", False):
        source = x_BSC if context_BSC is None else context_BSC
        return attn.to_q(x_BSC), attn.to_k(source), attn.to_v(source)
    if context_BSC is None:
        return attn.to_qkv(x_BSC).chunk(3, dim=-1)
    return attn.to_q(x_BSC), *attn.to_kv(context_BSC).chunk(2, dim=-1)


class _Processor:
    """What both kinds of attention of a block share. The class attributes are those that diffusers sets and reads."""

    _attention_backend = None
    _parallel_config = None

    def __init__(self, config: BoostConfig, counters: Counters) -> None:
        self._norms = config.norms
        self._counters = counters

    def _norm(self, norm: nn.Module, x: Tensor) -> Tensor:
        return norm_by_kernel(norm, x, self._counters) if self._norms else norm(x)

    @staticmethod
    def _project_out(attn: nn.Module, x_BSHD: Tensor) -> Tensor:
        return attn.to_out[1](attn.to_out[0](x_BSHD.flatten(2, 3)))


class SelfAttentionProcessor(_Processor):
    def __init__(self, config: BoostConfig, counters: Counters, run: Run, name: str, block: int) -> None:
        super().__init__(config, counters)
        self._attend = SelfAttention(config, counters, run, name, block)

    def __call__(self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None, rotary_emb=None):
        query, key, value = _projections(attn, hidden_states, encoder_hidden_states)
        query, key = self._norm(attn.norm_q, query), self._norm(attn.norm_k, key)
        query, key, value = (x.unflatten(2, (attn.heads, -1)) for x in (query, key, value))
        query, key = rotary_emb.turn(query), rotary_emb.turn(key)
        return self._project_out(attn, self._attend(query, key, value, rotary_emb.grid))


class CrossAttentionProcessor(_Processor):
    """Attention to the text, and to the image of image-to-video models, each with a softmax of its own."""

    _TEXT_TOKENS = 512  # that follow the image's in the context of an image-to-video model

    def __call__(self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None, rotary_emb=None):
        image_BSC = None
        text_BSC = encoder_hidden_states
        if attn.add_k_proj is not None:
            image_BSC, text_BSC = text_BSC.tensor_split([text_BSC.shape[1] - self._TEXT_TOKENS], dim=1)
        query, key, value = _projections(attn, hidden_states, text_BSC)
        query, key = self._norm(attn.norm_q, query), self._norm(attn.norm_k, key)
        query, key, value = (x.unflatten(2, (attn.heads, -1)) for x in (query, key, value))
        output = attention(query, key, value, layout="BSND")
        if image_BSC is not None:
            if getattr(attn, "fused_projections", False):
                key, value = attn.to_added_kv(image_BSC).chunk(2, dim=-1)
            else:
                key, value = attn.add_k_proj(image_BSC), attn.add_v_proj(image_BSC)
            key = self._norm(attn.norm_added_k, key)
            key, value = (x.unflatten(2, (attn.heads, -1)) for x in (key, value))
            output = output + attention(query, key, value, layout="BSND")
        self._counters.count("cross-attention")
        return self._project_out(attn, output)


def _modulated(norm: nn.Module, x_BSC: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """scale and shift: [B, 1, C], or [B, S, C] where each token has a timestep of its own (Wan 2.2 TI2V)."""
    if tuple(scale.shape) == (x_BSC.shape[0], 1, x_BSC.shape[2]):
        return modulated_layer_norm(x_BSC, scale, shift, eps=norm.eps)
    return (norm(x_BSC.float()) * (1 + scale) + shift).type_as(x_BSC)


def _affine(norm: nn.Module, x_BSC: Tensor) -> Tensor:
    if isinstance(norm, nn.Identity):
        return x_BSC
    return layer_norm(x_BSC, norm.weight, norm.bias, eps=norm.eps)


def _block_forward(block, counters, hidden_states, encoder_hidden_states, temb, rotary_emb):
    """WanTransformerBlock.forward with our norms."""
    table = block.scale_shift_table.unsqueeze(0) if temb.ndim == 4 else block.scale_shift_table
    parts = (table + temb.float()).chunk(6, dim=temb.ndim - 2)
    shift, scale, gate, ff_shift, ff_scale, ff_gate = (p.squeeze(2) for p in parts) if temb.ndim == 4 else parts
    x = hidden_states
    output = block.attn1(_modulated(block.norm1, x, scale, shift), None, None, rotary_emb)
    x = (x.float() + output * gate).type_as(x)
    x = x + block.attn2(_affine(block.norm2, x), encoder_hidden_states, None, None)
    output = block.ffn(_modulated(block.norm3, x, ff_scale, ff_shift))
    counters.count("block norms")
    return (x.float() + output.float() * ff_gate).type_as(x)


def _check_block(block: nn.Module, name: str, config: BoostConfig) -> None:
    for part in ("attn1", "attn2"):
        processor = getattr(block, part).processor
        if type(processor).__name__ != "WanAttnProcessor":
            raise ValueError(f"{name}.{part}.processor: expected a WanAttnProcessor, got {type(processor).__name__}")
        if processor._parallel_config is not None:
            raise ValueError(f"{name}.{part}.processor: expected no parallel configuration of diffusers, got one")
    if config.norms and "forward" in vars(block):
        raise ValueError(f"{name}.forward: has been replaced (by a hook?); boost before that, or with norms=False")


def _plan_transformer(transformer, name: str, config: BoostConfig, changes: Changes, run: Run) -> None:
    if config.dense_blocks >= len(transformer.blocks):
        raise ValueError(
            f"dense_blocks: expected fewer than the {len(transformer.blocks)} blocks of {name}, "
            f"got {config.dense_blocks}"
        )
    device = next(transformer.parameters()).device
    if device.type != "cpu":
        raise ValueError(f"{name}: expected its parameters on the CPU, got {device}")
    own = transformer.rope
    if isinstance(own, _Rope):
        raise ValueError(f"{name}: is a copy of a boosted model, which stays boosted; copy it before boosting")
    _check_rope(own, f"{name}.rope")
    rope = _Rope(own.attention_head_dim, tuple(transformer.config.patch_size))
    changes.replace(transformer, "rope", rope, f"{name}.rope")
    for index, block in enumerate(transformer.blocks):
        label = f"{name}.blocks[{index}]"
        _check_block(block, label, config)
        processor = SelfAttentionProcessor(config, changes.counters, run, label, index)
        changes.replace(block.attn1, "processor", processor, f"{label}.attn1.processor")
        if config.cross_attention:
            processor = CrossAttentionProcessor(config, changes.counters)
            changes.replace(block.attn2, "processor", processor, f"{label}.attn2.processor")
        if config.norms:
            forward = functools.partial(_block_forward, block, changes.counters)
            changes.replace(block, "forward", forward, f"{label}.forward")
        for part, module in (
            ("self-attention", block.attn1),
            ("cross-attention", block.attn2),
            ("feed-forward", block.ffn),
        ):
            changes.add_part(part, module)
    if config.dense_steps:
        changes.before_forward(transformer, run.before_forward)


def boost_wan(pipe, config: BoostConfig) -> Changes:
    """Plans the changes to a WanTransformer3DModel or to those of a pipeline."""
    changes, run = Changes(), Run(config.dense_steps)
    if hasattr(pipe, "blocks"):
        transformers = {"transformer": pipe}
    else:
        names = ("transformer", "transformer_2")
        transformers = {name: getattr(pipe, name) for name in names if getattr(pipe, name, None) is not None}
    for name, transformer in transformers.items():
        _plan_transformer(transformer, name, config, changes, run)
    decoder = getattr(getattr(pipe, "vae", None), "decoder", None)
    if decoder is not None:
        changes.add_part("VAE decoder", decoder)
    return changes
