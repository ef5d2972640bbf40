"""torch.compile(m, backend="quincunx"): AOTAutograd, our regions, ATen for the rest; no C++ compiler is needed."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from functorch.compile import min_cut_rematerialization_partition
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.registry import register_backend
from torch.fx.graph import _BoxedCodeGen

from quincunx.fusion import decompositions
from quincunx.fusion.fuser import GraphReport, fuse_graph
from quincunx.fusion.settings import Settings

_numbers = itertools.count()

Observer = Callable[[GraphReport, fx.Graph, fx.Graph], None]


def compile_with(settings: Settings, observer: Observer | None = None) -> Callable:
    """A backend of torch.compile. `observer` is shown each graph's report, the graph before, and after."""

    def compiler(kind: str) -> Callable:
        def compile_graph(module: fx.GraphModule, _inputs: Sequence[Any]) -> Callable:
            before = _copy(module.graph) if observer is not None else None
            report = fuse_graph(module.graph, settings, name=f"{kind} {next(_numbers)}")
            if observer is not None:
                observer(report, before, module.graph)
            return _as_boxed_function(module)

        return compile_graph

    return aot_autograd(
        fw_compiler=compiler("forward"),
        bw_compiler=compiler("backward"),
        inference_compiler=compiler("inference"),
        decompositions=decompositions.table(),
        partition_fn=min_cut_rematerialization_partition,
    )


def _copy(graph: fx.Graph) -> fx.Graph:
    copied = fx.Graph()
    result = copied.graph_copy(graph, {})
    copied.output(result)
    return copied


def _as_boxed_function(module: fx.GraphModule) -> Callable:
    """Takes its arguments as one list, which it empties: each is freed after its last use."""
    module.graph.set_codegen(_BoxedCodeGen())
    module.recompile()

    def run(arguments: list[Any]) -> Any:
        return module.forward(arguments)

    run._boxed_call = True
    return run


@register_backend(name="quincunx")
def quincunx_backend(
    module: fx.GraphModule, inputs: Sequence[torch.Tensor], *, options: Mapping[str, Any] | None = None, **others: Any
) -> Callable:
    """The backend that torch.compile finds by name; `options` are the fields of Settings."""
    for name, value in others.items():
        if value is not None:
            raise ValueError(f"{name} is {value!r}, which the backend quincunx does not have; use options")
    return compile_with(Settings.from_options(options))(module, inputs)
