"""What boosted models share: self-attention that is sparse or dense by step and block, and norms by our kernels."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from .config import BoostConfig
from .counters import Counters
from .dense import attention
from .norms import rms_norm
from .rotary import Rotation
from .sparse import sparse_attention


class Run:
    """The denoising step, told by the timesteps that the model is called with: they fall from step to step."""

    def __init__(self, dense_steps: int = 0) -> None:
        self.step = -1
        self.is_dense = False  # A compiled graph is guarded by this alone, not by the number of the step.
        self._dense_steps = dense_steps
        self._timestep = float("-inf")

    @torch.compiler.disable
    def see(self, timestep: Tensor) -> None:
        """A smaller timestep is the next step, the same one the same step, a greater one the start of a new run."""
        now = float(timestep.max())
        if now > self._timestep:
            self.step = 0
        elif now < self._timestep:
            self.step += 1
        self._timestep = now
        self.is_dense = self.step < self._dense_steps

    def before_forward(self, module: nn.Module, args: tuple, kwargs: dict) -> None:
        """A hook of the transformer. A method, so that in a copy of the model it belongs to the copy's run."""
        self.see(kwargs["timestep"] if "timestep" in kwargs else args[1])


class GridRotation(NamedTuple):
    """The grid of the tokens of one forward pass and its rotary tables."""

    grid: tuple[int, int, int]
    cos: Tensor
    sin: Tensor

    def turn(self, x: Tensor) -> Tensor:
        """x [B, S, H, D] turned."""
        return Rotation.apply(x, self.cos, self.sin, True, 1)


class SelfAttention:
    """Self-attention of one transformer block over the tokens of a grid."""

    def __init__(self, config: BoostConfig, counters: Counters, run: Run, name: str, block: int) -> None:
        self._options = config.sparse_options()
        self._counters = counters
        self._run = run
        self._name = name
        self._is_always_dense = block < config.dense_blocks

    def _dense_reason(self) -> str | None:
        if self._is_always_dense:
            return "dense self-attention (dense_blocks)"
        if self._run.is_dense:
            return "dense self-attention (dense_steps)"
        return None

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, grid: tuple[int, int, int]) -> Tensor:
        """query, key, value [B, S, H, D]; the output is alike."""
        reason = self._dense_reason()
        if reason is None:
            result = sparse_attention(query, key, value, latent_shape=grid, layout="BSND", **self._options)
            output, density = result
        else:
            output, density = attention(query, key, value, layout="BSND"), 1.0
        self._counters.count(reason or "sparse self-attention")
        self._counters.record(self._name, query.shape[0] * query.shape[1] ** 2 * query.shape[2], density)
        return output


def norm_by_kernel(norm: nn.Module, x: Tensor, counters: Counters) -> Tensor:
    """norm(x), by our kernel where the norm is a plain RMSNorm with a weight of x's dtype."""
    is_plain = type(norm) is nn.RMSNorm and norm.weight is not None and norm.weight.dtype == x.dtype
    if not is_plain or norm._forward_hooks or norm._forward_pre_hooks:
        counters.count(f"{type(norm).__name__} by the model")
        return norm(x)
    counters.count("RMSNorm")
    eps = torch.finfo(x.dtype).eps if norm.eps is None else norm.eps
    return rms_norm(x, norm.weight, eps=eps)
