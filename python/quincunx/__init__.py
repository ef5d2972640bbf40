"""Quincunx: an acceleration suite for PyTorch with one C++ core."""

from ._library import load_operators

__all__ = ["load_operators"]
