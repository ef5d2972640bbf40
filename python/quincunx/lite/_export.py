"""From a PyTorch module to a graph of the C++ core."""

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import torch

from .._graph import import_graph, load_core

# torch.export takes sizes of 1 for constants, so that what may vary is exported at 2 or more.
MIN_EXPORTED_SIZE = 2


def export(
    module: torch.nn.Module | torch.export.ExportedProgram,
    example_inputs: tuple[Any, ...] | None,
    dynamic_shapes: Any,
) -> torch.export.ExportedProgram:
    """An ExportedProgram without mutation, with linear, attention and norms as the operators that they are."""
    if isinstance(module, torch.export.ExportedProgram):
        return _lowered(module)
    if not isinstance(module, torch.nn.Module):
        raise TypeError(
            f"source: expected a torch.nn.Module, an ExportedProgram or a path, got {type(module).__name__}"
        )
    if not isinstance(example_inputs, tuple) or not example_inputs:
        raise ValueError(f"example_inputs: expected a tuple of tensors, got {example_inputs!r}")
    try:
        with torch.no_grad(), evaluating(module):
            program = torch.export.export(module, example_inputs, dynamic_shapes=dynamic_shapes, strict=False)
            return _lowered(program)
    except (torch._dynamo.exc.UserError, torch.fx.experimental.symbolic_shapes.ConstraintViolationError) as error:
        raise ValueError(f"source: torch.export cannot export it with these dynamic_shapes: {error}") from error


def _lowered(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Without mutation, and with PyTorch's decomposition of each operator that the runtime lacks and that has one."""
    program = program.run_decompositions({})
    known = set(load_core().lite_operators())
    lacking = {
        node.target
        for node in program.graph.nodes
        if isinstance(node.target, torch._ops.OpOverload)
        and str(node.target) not in known
        and any(isinstance(result.type, torch.TensorType) for result in node.target._schema.returns)
    }
    table = torch.export.default_decompositions()
    found = {operator: table[operator] for operator in lacking if operator in table}
    lowered = program.run_decompositions(found) if found else program
    # A decomposition that checks its result has an effect that no graph can hold; the operator itself says more.
    has_effects = any(spec.kind.name == "TOKEN" for spec in lowered.graph_signature.output_specs)
    return program if has_effects else lowered


@contextlib.contextmanager
def evaluating(module: torch.nn.Module | torch.export.ExportedProgram) -> Iterator[None]:
    """Every part of a module in evaluation mode, and afterwards in the mode that it had."""
    parts = list(module.modules()) if isinstance(module, torch.nn.Module) else []
    modes = [part.training for part in parts]
    try:
        for part in parts:
            part.training = False
        yield
    finally:
        for part, mode in zip(parts, modes, strict=True):
            part.training = mode


def import_program(program: torch.export.ExportedProgram, name: str):
    """The graph (quincunx._core.Graph) of a program; what no graph can hold is an error that names its node."""
    return import_graph(program, name=name).graph


def tensors_of(inputs: Any) -> list[torch.Tensor]:
    """The tensors in `inputs`, in the order in which torch.export numbers them."""
    leaves = torch.utils._pytree.tree_leaves(inputs)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def weight_bytes(program: torch.export.ExportedProgram) -> int:
    """Bytes of the program's parameters, buffers and constants; shared memory counts once."""
    storages = {}
    for tensor in itertools.chain(program.state_dict.values(), program.constants.values()):
        if isinstance(tensor, torch.Tensor):
            storage = tensor.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())
