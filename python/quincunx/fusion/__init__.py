"""Fusion: regions of a torch.compile graph as one kernel each, inside Inductor or as a backend of its own."""

import os

from quincunx.fusion import backend as _backend  # noqa: F401  (registers the backend)
from quincunx.fusion.explanation import Explanation, explain
from quincunx.fusion.fuser import counters
from quincunx.fusion.inductor import enable, enabled, inductor_options
from quincunx.fusion.labels import region
from quincunx.fusion.settings import Settings, pattern_names

__all__ = ["Explanation", "Settings", "counters", "enabled", "explain", "inductor_options", "pattern_names", "region"]

if os.environ.get("QUINCUNX_FUSION") == "1":
    enable()
