"""`qx bench CAPABILITY`: measures ours against its named peers, interleaved in one run, and judges the ratios.

What is measured stands in `benchmarks/<capability>`, what is demanded in `benchmarks/demands.toml`.
"""

from .command import main

__all__ = ["main"]
