"""Fusion inside Inductor: a pass over the graph after AOTAutograd, before Inductor looks for its own patterns."""

import contextlib
import functools
import pathlib
from collections.abc import Iterator
from typing import Any

from torch import fx
from torch._inductor import config as inductor_config
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files

from quincunx._library import library_directory
from quincunx.fusion import _extension
from quincunx.fusion.fuser import fuse_graph
from quincunx.fusion.settings import Settings

_SLOT = "post_grad_custom_pre_pass"
_COMPILED_PARTS = ("_core.*.so", "_quincunx_fusion.so", "libquincunx_compiler.so")


@functools.cache
def _implementation_hash() -> bytes:
    """Of all that decides what the pass does: this package and the compiled parts."""
    sources = sorted(str(path) for path in pathlib.Path(__file__).parent.glob("*.py"))
    libraries = [str(path) for name in _COMPILED_PARTS for path in sorted(library_directory().glob(name))]
    return get_hash_for_files((*sources, *libraries))


class FusionPass(CustomGraphPass):
    """Replaces regions in place. Its uuid() lets Inductor keep the result in its cache of graphs."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def __call__(self, graph: fx.Graph) -> None:
        fuse_graph(graph, self.settings, name="Inductor's graph")

    def uuid(self) -> Any:
        # Inductor asks for this before it looks a graph up: a graph from the cache needs the operators as well.
        _extension.load()
        chosen = (sorted(self.settings.disable), self.settings.check)
        return _implementation_hash(), str(chosen)


def inductor_options(**settings: Any) -> dict[str, Any]:
    """For torch.compile(m, options=inductor_options()). Takes the fields of Settings."""
    return {_SLOT: FusionPass(Settings(**settings))}


@contextlib.contextmanager
def enabled(**settings: Any) -> Iterator[None]:
    """Fuses every graph that Inductor compiles inside. A compiled function is compiled by its first call."""
    with inductor_config.patch(inductor_options(**settings)):
        yield


def enable() -> None:
    """As `enabled`, for the rest of the process: what QUINCUNX_FUSION=1 does when quincunx.fusion is imported."""
    setattr(inductor_config, _SLOT, FusionPass(Settings()))
