"""Faster attention for image and video diffusion: block-sparse attention, token order in tiles, real-valued RoPE."""

from .rain_fusion import rain_fusion_attention
from .rotary import rope
from .sparse import SparseAttention, sparse_attention, top_k_blocks

__all__ = ["SparseAttention", "rain_fusion_attention", "rope", "sparse_attention", "top_k_blocks"]
