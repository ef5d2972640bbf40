"""Makes one of nodes that compute the same: the compiler takes them for one, and a region must find what it reads."""

from typing import Any

import torch
from torch import fx
from torch.fx.node import map_aggregate
from torch.multiprocessing.reductions import StorageWeakRef


def merge_duplicates(graph: fx.Graph) -> int:
    """Lets every node read the first of its equal arguments; returns how many nodes went. What the graph returns stays
    separate memory, and nothing is merged across a change of memory or where a node draws random numbers.
    """
    returned = {storage for node in graph.output_node().all_input_nodes for storage in _storages(node)}
    first_of: dict[Any, fx.Node] = {}
    num_merged = 0
    for node in list(graph.nodes):
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        if node.target._schema.is_mutable:
            first_of.clear()
            continue
        storages = _storages(node)
        if not _is_a_function(node) or not storages or not returned.isdisjoint(storages):
            continue
        first = first_of.setdefault(_identity(node), node)
        if first is not node:
            node.replace_all_uses_with(first)
            graph.erase_node(node)
            num_merged += 1
    return num_merged


def _storages(node: fx.Node) -> set[StorageWeakRef]:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return set()
    return {StorageWeakRef(value.untyped_storage())}


# Two sizes that depend on data are two symbols, even where they are equal.
_NOT_FROM_ARGUMENTS = {
    torch.Tag.nondeterministic_seeded,
    torch.Tag.data_dependent_output,
    torch.Tag.dynamic_output_shape,
}


def _is_a_function(node: fx.Node) -> bool:
    """Whether its result follows from its arguments, as that of ATen's operators does but for some."""
    target = node.target
    return (
        (target.namespace == "aten" or target is torch.ops.prims.convert_element_type.default)
        and not target._opname.startswith(("empty", "new_empty"))
        and _NOT_FROM_ARGUMENTS.isdisjoint(target.tags)
        and not node.is_impure()
    )


def _identity(node: fx.Node) -> Any:
    """Equal for equal calls alone: 1, 1.0 and True differ, and so do 0.0 and -0.0."""

    def described(value: Any) -> Any:
        if isinstance(value, fx.Node):
            return value
        expression = value.node.expr if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)) else value
        return type(value), repr(expression)

    def frozen(value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return tuple(frozen(element) for element in value)
        if isinstance(value, dict):
            return tuple((name, frozen(element)) for name, element in value.items())
        return value

    return node.target, frozen(map_aggregate((node.args, node.kwargs), described))
