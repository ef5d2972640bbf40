"""Faster attention for image and video diffusion, and one call that boosts a pipeline with it."""

from .changes import Changes
from .comparison import Frames, Quality, quality
from .config import BoostConfig
from .dense import attention
from .handle import Handle, boost, boosted
from .models import SUPPORTED_MODELS, register_model
from .norms import layer_norm, modulated_layer_norm, rms_norm
from .rain_fusion import rain_fusion_attention
from .rotary import rope
from .sequence_parallel import sequence_parallel_attention
from .sparse import SparseAttention, sparse_attention, top_k_blocks
from .stitching import stitch

__all__ = [
    "SUPPORTED_MODELS",
    "BoostConfig",
    "Changes",
    "Frames",
    "Handle",
    "Quality",
    "SparseAttention",
    "attention",
    "boost",
    "boosted",
    "layer_norm",
    "modulated_layer_norm",
    "quality",
    "rain_fusion_attention",
    "register_model",
    "rms_norm",
    "rope",
    "sequence_parallel_attention",
    "sparse_attention",
    "stitch",
    "top_k_blocks",
]
