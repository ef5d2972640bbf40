"""Graphs of torch.fx and torch.export in the C++ core: import_graph()."""

import functools
import importlib.util
import json
import os
import sys
import types
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ._library import library_directory

if TYPE_CHECKING:
    import torch

__all__ = ["import_graph", "load_core", "open_qxm", "write_qxm"]

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
        imported = load_core().import_fx(graph, **arguments)
    # The ranges that the caller asked for: torch's own bounds leave out 0 and 1, for which it may specialise.
    for symbol, limits in getattr(source, "range_constraints", {}).items():
        least, most = (int(bound) if bound.is_Integer else None for bound in (limits.lower, limits.upper))
        imported.graph.limit_symbol(str(symbol), max(least or 0, 0), most)
    return imported


def write_qxm(
    path: str | os.PathLike,
    methods: Sequence[Any],
    *,
    metadata: Mapping[str, Any] | None = None,
    tokenizer: bytes = b"",
) -> None:
    """Writes graphs (quincunx._core.Graph), each a method of its own name, as one .qxm file.

    Weights at the same address are written once. The file appears whole or not at all: after an error (a full disk)
    the old file of that name is still there.
    """
    load_core().write_qxm(
        os.fspath(path), list(methods), metadata=json.dumps(dict(metadata or {})), tokenizer=tokenizer
    )


def open_qxm(path: str | os.PathLike, *, check_weights: bool = True):
    """The contents of a .qxm file (quincunx._core.Qxm), its weights mapped; RuntimeError for a damaged file."""
    return load_core().open_qxm(os.fspath(path), check_weights=check_weights)


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
