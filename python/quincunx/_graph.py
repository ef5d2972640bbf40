"""Graphs of torch.fx and torch.export in the C++ core: import_graph()."""

import functools
import importlib.util
import sys
import types
from typing import TYPE_CHECKING

from ._library import library_directory

if TYPE_CHECKING:
    import torch

__all__ = ["import_graph", "load_core"]

_UNSUPPORTED = ("error", "opaque")


@functools.cache
def load_core() -> types.ModuleType:
    """quincunx._core, the C++ core without torch."""
    name = f"{__package__}._core"
    paths = sorted(library_directory().glob("_core.*.so"))
    if not paths:
        raise RuntimeError(
            f"quincunx: no _core.*.so in {library_directory()}; build quincunx with QX_BUILD_PYTHON=ON and this Python"
        )
    spec = importlib.util.spec_from_file_location(name, paths[0])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[name] = module
    return module


def import_graph(
    source: "torch.fx.Graph | torch.fx.GraphModule | torch.export.ExportedProgram",
    *,
    name: str = "main",
    unsupported: str = "error",
):
    """The graph of `source` and where each part of it comes from (quincunx._core.ImportedGraph).

    `source` must hold fake values (`node.meta["val"]`), as the graphs of torch.export, AOTAutograd and Inductor's
    passes do. Parameters, buffers and constants of an ExportedProgram become constants that share torch's memory;
    buffers that it changes become states. `unsupported` says what becomes of a call that no graph can hold: "error",
    or "opaque" for a node "fx.opaque" that nobody can run but that keeps its place.
    """
    import torch
    from torch.utils._python_dispatch import _disable_current_modes

    if unsupported not in _UNSUPPORTED:
        raise ValueError(f"unsupported: expected one of {_UNSUPPORTED}, got {unsupported!r}")
    arguments = {"name": name, "opaque": unsupported == "opaque"}
    if isinstance(source, torch.export.ExportedProgram):
        if any(_mutates(node) for node in source.graph.nodes):
            source = source.run_decompositions({})  # to a graph of values; composite operators stay whole
        graph = source.graph
        arguments |= {"owner": source.graph_module, "lifted": _lifted(source), "states": _states(source)}
    elif isinstance(source, torch.fx.GraphModule):
        graph = source.graph
        arguments["owner"] = source
    elif isinstance(source, torch.fx.Graph):
        graph = source
        arguments["owner"] = source.owning_module
    else:
        raise TypeError(
            "source: expected a torch.fx.Graph, a torch.fx.GraphModule or a torch.export.ExportedProgram, "
            f"got {type(source).__name__}"
        )
    with _disable_current_modes():
        return load_core().import_fx(graph, **arguments)


def _mutates(node: "torch.fx.Node") -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable


def _lifted(program: "torch.export.ExportedProgram") -> dict[str, "torch.Tensor"]:
    """The tensor of each placeholder that stands for one."""
    from torch.export.graph_signature import InputKind, TensorArgument

    found = {}
    for spec in program.graph_signature.input_specs:
        if spec.kind == InputKind.USER_INPUT or not isinstance(spec.arg, TensorArgument):
            continue
        tensors = program.state_dict if spec.target in program.state_dict else program.constants
        if spec.target not in tensors:
            raise ValueError(f"source: the program has no tensor {spec.target!r} for its placeholder {spec.arg.name!r}")
        found[spec.arg.name] = tensors[spec.target]
    return found


def _states(program: "torch.export.ExportedProgram") -> list[tuple[str, str] | None]:
    """For each output: the buffer that it replaces and the buffer's placeholder, or None."""
    from torch.export.graph_signature import OutputKind

    placeholders = {spec.target: spec.arg.name for spec in program.graph_signature.input_specs if spec.target}
    found = []
    for spec in program.graph_signature.output_specs:
        if spec.kind == OutputKind.BUFFER_MUTATION:
            found.append((spec.target, placeholders[spec.target]))
        elif spec.kind in (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT):
            found.append(None)
        else:
            raise NotImplementedError(
                f"source: output {spec.arg.name!r} is a {spec.kind.name}, expected plain outputs and changed buffers; "
                "make the tensor a buffer, or return it"
            )
    return found
