"""Puts one call into an fx graph in the place of a region's nodes, or refuses and leaves the graph as it was."""

import dataclasses
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from quincunx.fusion.program import NotExpressible, Program, memory_order, node_value, reference_module

_MAX_DIMS = 8  # of a TensorView
_MAX_BETWEEN = 8  # nodes that a region's program computes although they stay in the graph; more are no mere aliases


class Refused(Exception):
    """The graph does not allow the replacement; the message says why."""


@dataclasses.dataclass(frozen=True)
class Replacement:
    """A region in terms of the graph: its nodes in graph order, what they read, which results others need."""

    nodes: list[fx.Node]
    inputs: list[fx.Node]
    outputs: list[fx.Node]
    program: Program
    # Users of the region's results that stand before its last node; they have to move behind it.
    moved: list[fx.Node]
    # What lies between `inputs` and `nodes`, and computes nothing to the compiler: a clone, a view of all.
    repeated: list[fx.Node]

    @property
    def output_orders(self) -> list[list[int]]:
        return [memory_order(node_value(node)) for node in self.outputs]


Nodes = Sequence[fx.Node]


def plan(graph: fx.Graph, nodes: Nodes, inputs: Nodes, outputs: Nodes, *, weight: int = -1) -> Replacement:
    """Checks all that replacing needs; raises Refused, and changes nothing."""
    positions = {node: position for position, node in enumerate(graph.nodes)}
    ordered = sorted(set(nodes), key=positions.__getitem__)
    if not inputs:
        raise Refused("the region reads no tensor")
    _check_values([*inputs, *outputs])
    _check_boundary(ordered, outputs)
    repeated = sorted(_between(ordered, inputs), key=positions.__getitem__)
    moved = _users_to_move(ordered, repeated)
    try:
        ordered_with_repeated = sorted([*repeated, *ordered], key=positions.__getitem__)
        program = Program.of_nodes(ordered_with_repeated, inputs, outputs, weight=weight)
    except NotExpressible as error:
        raise Refused(str(error)) from None
    try:
        # A later process has only the program: what cannot be read back must not be written.
        reference_module(program.text)
    except Exception as error:
        raise Refused(f"its program cannot be read back: {error}") from error
    return Replacement(ordered, list(inputs), list(outputs), program, moved, repeated)


def _check_values(nodes: Sequence[fx.Node]) -> None:
    for node in nodes:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            raise Refused(f"{node.name} is not known to be a tensor")
        if value.device.type != "cpu" or value.layout != torch.strided:
            raise Refused(
                f"{node.name} is on {value.device} with layout {value.layout}, not a strided tensor on the CPU"
            )
        if value.dim() > _MAX_DIMS:
            raise Refused(f"{node.name} has {value.dim()} dimensions, more than {_MAX_DIMS}")


def _check_boundary(nodes: Sequence[fx.Node], outputs: Sequence[fx.Node]) -> None:
    """All that leaves the region is an output; strides that are relied on are kept."""
    inside, known = set(nodes), set(outputs)
    for node in nodes:
        if node not in known and any(user not in inside for user in node.users):
            raise Refused(f"{node.name} is used outside of the region, but is no result of it")
    for node in outputs:
        for user in node.users:
            if user.target is torch.ops.aten.as_strided.default and not node_value(node).is_contiguous():
                raise Refused(f"{user.name} reads the memory of {node.name} past its shape")


def _between(nodes: Nodes, inputs: Nodes) -> set[fx.Node]:
    """What the region reads that is no input of it, as far as it follows from the inputs."""
    known, between = {*nodes, *inputs}, set()
    pending = list(nodes)
    while pending:
        for argument in pending.pop().all_input_nodes:
            if argument in known or not isinstance(node_value(argument), torch.Tensor):
                continue
            is_call = argument.op == "call_function" and not _changes_memory(argument) and not _has_an_order(argument)
            if not is_call or len(between) == _MAX_BETWEEN:
                raise Refused(f"{argument.name} is read by the region, but is no input of it")
            known.add(argument)
            between.add(argument)
            pending.append(argument)
    return between


def _users_to_move(nodes: Nodes, repeated: Nodes) -> list[fx.Node]:
    """Nodes between the region's first and last that depend on it, in graph order."""
    inside, last = set(nodes), nodes[-1]
    dependent: set[fx.Node] = set()
    moved = []
    node = nodes[0]
    # The kernel reads what the repeated nodes read, when it runs.
    early = repeated[0] if repeated else node
    while early is not node and early is not last:
        early = early.next
        if _changes_memory(early):
            raise Refused(f"{early.name}, before the region and behind {repeated[0].name}, changes memory")
    while node is not last:
        node = node.next
        reads_region = any(argument in inside or argument in dependent for argument in node.all_input_nodes)
        if node in inside:
            if any(argument in dependent for argument in node.all_input_nodes):
                raise Refused(f"{node.name} needs a result of the region through a node outside of it")
            continue
        if _changes_memory(node):
            raise Refused(f"{node.name}, between the region's nodes, changes memory")
        if reads_region:
            if _has_an_order(node):
                raise Refused(f"{node.name} uses the region and cannot move behind it")
            dependent.add(node)
            moved.append(node)
    return moved


def _changes_memory(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def _has_an_order(node: fx.Node) -> bool:
    """Whether running `node` at another time may change anything: side effects, random numbers."""
    if node.op == "output" or node.is_impure():
        return True
    return isinstance(node.target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in node.target.tags


def replace(graph: fx.Graph, replacement: Replacement, target: Any) -> list[fx.Node]:
    """Calls target(inputs, key, program) instead of the nodes. Returns what stands for each output now."""
    program, last = replacement.program, replacement.nodes[-1]
    values = [_result_value(node) for node in replacement.outputs]
    with graph.inserting_after(last):
        call = graph.call_function(target, (replacement.inputs, program.key, program.text))
    call.meta = {key: value for key, value in last.meta.items() if key not in ("val", "tensor_meta")}
    call.meta["val"] = values
    place, results = call, []
    for index, (output, value) in enumerate(zip(replacement.outputs, values, strict=True)):
        with graph.inserting_after(place):
            place = graph.call_function(operator.getitem, (call, index))
        place.meta = {**output.meta, "val": value}
        place.meta.pop("tensor_meta", None)
        output.replace_all_uses_with(place)
        results.append(place)
    for node in replacement.moved:
        place.append(node)
        place = node
    for node in reversed(replacement.nodes):
        graph.erase_node(node)
    for node in reversed(replacement.repeated):
        if not node.users:
            graph.erase_node(node)
    return results


def _result_value(node: fx.Node) -> torch.Tensor:
    """The value of `node` with the memory order that the region gives it."""
    value = node_value(node)
    order = memory_order(value)
    with value.fake_mode if hasattr(value, "fake_mode") else torch.no_grad():
        fresh = torch.empty_permuted(value.shape, order, dtype=value.dtype)
    same = all(a is b or bool(_plain(a) == _plain(b)) for a, b in zip(fresh.stride(), value.stride(), strict=True))
    return value if same else fresh


def _plain(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else size
