"""A Llama-style decoder: RMSNorm, rotary positions, SwiGLU, causal attention.

Shape suffixes: B batch, L length, D width, H heads, K width of a head, V vocabulary.
"""

import dataclasses

import torch
from torch import nn
from torch.nn import functional


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    vocab_size: int = 2048
    dim: int = 256
    num_layers: int = 5
    num_heads: int = 4
    hidden_dim: int = 688
    rope_base: float = 10000.0

    @property
    def head_dim(self) -> int:
        return self.dim // self.num_heads


def rotary_table(length: int, head_dim: int, base: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosine and sine of every position's angles, each [length, head_dim / 2]."""
    frequencies = base ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    angles = torch.arange(0, length, 1, dtype=torch.float64).unsqueeze(-1) * frequencies
    return angles.cos().float(), angles.sin().float()


def rotate(x_BHLK: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x_BHLK.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


class Attention(nn.Module):
    def __init__(self, config: ModelConfig):
        super().__init__()
        self.head_dim = config.head_dim
        self.query = nn.Linear(config.dim, config.dim, bias=False)
        self.key = nn.Linear(config.dim, config.dim, bias=False)
        self.value = nn.Linear(config.dim, config.dim, bias=False)
        self.out = nn.Linear(config.dim, config.dim, bias=False)

    def forward(self, x_BLD: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        def heads(projected: torch.Tensor) -> torch.Tensor:
            return projected.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

        q_BHLK = rotate(heads(self.query(x_BLD)), cos, sin)
        k_BHLK = rotate(heads(self.key(x_BLD)), cos, sin)
        v_BHLK = heads(self.value(x_BLD))
        mixed_BHLK = functional.scaled_dot_product_attention(q_BHLK, k_BHLK, v_BHLK, is_causal=True)
        return self.out(mixed_BHLK.transpose(1, 2).flatten(-2))


class FeedForward(nn.Module):
    def __init__(self, config: ModelConfig):
        super().__init__()
        self.gate = nn.Linear(config.dim, config.hidden_dim, bias=False)
        self.up = nn.Linear(config.dim, config.hidden_dim, bias=False)
        self.down = nn.Linear(config.hidden_dim, config.dim, bias=False)

    def forward(self, x_BLD: torch.Tensor) -> torch.Tensor:
        return self.down(functional.silu(self.gate(x_BLD)) * self.up(x_BLD))


class Block(nn.Module):
    def __init__(self, config: ModelConfig):
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.dim, eps=1e-5)
        self.attention = Attention(config)
        self.feed_forward_norm = nn.RMSNorm(config.dim, eps=1e-5)
        self.feed_forward = FeedForward(config)

    def forward(self, x_BLD: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x_BLD = x_BLD + self.attention(self.attention_norm(x_BLD), cos, sin)
        return x_BLD + self.feed_forward(self.feed_forward_norm(x_BLD))


class Llama(nn.Module):
    """Token ids [B, L] to logits [B, L, V]."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        if config.dim % config.num_heads or config.head_dim % 2:
            raise ValueError(
                f"ModelConfig: dim {config.dim} must be num_heads {config.num_heads} times an even width of a head"
            )
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.dim)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.norm = nn.RMSNorm(config.dim, eps=1e-5)
        self.head = nn.Linear(config.dim, config.vocab_size, bias=False)

    def initialize(self, seed: int) -> None:
        """Draws every weight, in a fixed order, from one generator: the same seed gives the same bits anywhere."""
        generator = torch.Generator().manual_seed(seed)
        residual_scale = (2 * self.config.num_layers) ** -0.5
        for name, parameter in self.named_parameters():
            with torch.no_grad():
                if parameter.ndim == 1:
                    parameter.fill_(1.0)
                    continue
                std = 0.02
                if name.endswith(("attention.out.weight", "feed_forward.down.weight")):
                    std *= residual_scale
                parameter.normal_(0.0, std, generator=generator)

    def hidden(self, tokens_BL: torch.Tensor) -> torch.Tensor:
        """What the head turns into logits, [B, L, D]."""
        cos, sin = rotary_table(tokens_BL.shape[1], self.config.head_dim, self.config.rope_base)
        x_BLD = self.embedding(tokens_BL)
        for layer in self.layers:
            x_BLD = layer(x_BLD, cos, sin)
        return self.norm(x_BLD)

    def forward(self, tokens_BL: torch.Tensor) -> torch.Tensor:
        return self.head(self.hidden(tokens_BL))


def num_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
