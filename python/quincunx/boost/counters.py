"""What a boosted pipeline did: how often each part ran, and how dense self-attention was."""

import collections
import dataclasses

import torch
from torch import Tensor


@dataclasses.dataclass
class BlockDensity:
    """Self-attention of one transformer block: pairs of tokens that there were and that were used, in all calls."""

    calls: int = 0
    pairs: float = 0.0
    used: float = 0.0
    last: float = 1.0

    @property
    def density(self) -> float:
        return self.used / self.pairs if self.pairs else 1.0


class Counters:
    """Calls in compiled graphs are not counted: a count would be a guard that every call breaks."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.calls: collections.Counter[str] = collections.Counter()
        self.blocks: dict[str, BlockDensity] = {}

    def count(self, what: str) -> None:
        if not torch.compiler.is_compiling():
            self.calls[what] += 1

    def record(self, block: str, pairs: int, density: Tensor | float) -> None:
        """One call of a block's self-attention over `pairs` pairs of tokens, batch and heads multiplied in."""
        if torch.compiler.is_compiling():
            return
        entry = self.blocks.setdefault(block, BlockDensity())
        entry.last = float(density)
        entry.calls += 1
        entry.pairs += pairs
        entry.used += pairs * entry.last

    @property
    def density(self) -> float:
        """Attained, over all blocks and calls; 1 before the first call."""
        pairs = sum(entry.pairs for entry in self.blocks.values())
        return sum(entry.used for entry in self.blocks.values()) / pairs if pairs else 1.0
