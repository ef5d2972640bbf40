"""Quincunx: an acceleration suite for PyTorch with one C++ core."""
