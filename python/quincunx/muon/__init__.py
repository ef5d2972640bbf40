"""Muon under FSDP2 and HSDP: each matrix is orthogonalised once in the whole grid of ranks."""

from .optimizer import Muon
from .routed import RoutedOptimizer, build_optimizer

__all__ = ["Muon", "RoutedOptimizer", "build_optimizer"]
