"""Draws an fx graph as SVG: each operator below what it reads, regions in colour."""

import html
from collections.abc import Mapping

import torch
from torch import fx

_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 150, 34, 14, 30, 16
_COLUMNS = 12  # of a layer; what does not fit starts another line
_COLORS = ("#2f6f9f", "#b3541e", "#2e7d4f", "#7a4a9e", "#a33b4f", "#5a6b1f", "#1f7a78", "#8a6d1a")
_PLAIN = "#e9ecef"


def _layers(nodes: list[fx.Node]) -> list[list[fx.Node]]:
    """Nodes by the length of the longest path to them, at most _COLUMNS in a layer."""
    depth: dict[fx.Node, int] = {}
    by_depth: dict[int, list[fx.Node]] = {}
    for node in nodes:
        depth[node] = 1 + max((depth[argument] for argument in node.all_input_nodes if argument in depth), default=-1)
        by_depth.setdefault(depth[node], []).append(node)
    layers = []
    for _, layer in sorted(by_depth.items()):
        layers += [layer[first : first + _COLUMNS] for first in range(0, len(layer), _COLUMNS)]
    return layers


def _title(node: fx.Node, labels: Mapping[str, str]) -> str:
    if node.name in labels:
        return labels[node.name]
    if isinstance(node.target, torch._ops.OpOverload):
        return f"{node.target.namespace}.{node.target._opname}"
    return getattr(node.target, "__name__", str(node.target))


def _shape(node: fx.Node) -> str:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return ""
    return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(str(size) for size in value.shape)}]"


def _box(node: fx.Node, x: int, y: int, color: str | None, labels: Mapping[str, str]) -> str:
    ink = "#fff" if color else "#222"
    title, shape = html.escape(_title(node, labels)[:24]), html.escape(_shape(node)[:26])
    return (
        f'<g><title>{html.escape(node.name)}</title><rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="5" '
        f'fill="{color or _PLAIN}"/><text x="{x + 8}" y="{y + 14}" fill="{ink}" font-size="11">{title}</text>'
        f'<text x="{x + 8}" y="{y + 27}" fill="{ink}" font-size="9" opacity="0.8">{shape}</text></g>'
    )


def _line(start: tuple[int, int], end: tuple[int, int]) -> str:
    x1, y1, x2, y2 = start[0] + _WIDTH // 2, start[1] + _HEIGHT, end[0] + _WIDTH // 2, end[1]
    middle = (y1 + y2) // 2
    return f'<path d="M{x1} {y1} C{x1} {middle} {x2} {middle} {x2} {y2}" fill="none" stroke="#999" stroke-width="1"/>'


def draw(graph: fx.Graph, regions: Mapping[str, int], labels: Mapping[str, str]) -> str:
    """`regions` colours nodes by name, by the number of their region; `labels` gives the title of some nodes."""
    nodes = [node for node in graph.nodes if node.op == "call_function"]
    layers = _layers(nodes)
    places = {
        node: (_MARGIN + column * (_WIDTH + _GAP_X), _MARGIN + row * (_HEIGHT + _GAP_Y))
        for row, layer in enumerate(layers)
        for column, node in enumerate(layer)
    }
    columns = max((len(layer) for layer in layers), default=1)
    width = 2 * _MARGIN + columns * (_WIDTH + _GAP_X) - _GAP_X
    height = 2 * _MARGIN + max(1, len(layers)) * (_HEIGHT + _GAP_Y) - _GAP_Y
    lines = [
        _line(places[argument], places[node])
        for node in nodes
        for argument in node.all_input_nodes
        if argument in places
    ]
    boxes = []
    for node in nodes:
        number = regions.get(node.name)
        color = None if number is None else _COLORS[number % len(_COLORS)]
        boxes.append(_box(node, *places[node], color, labels))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="system-ui, sans-serif">{"".join(lines)}{"".join(boxes)}</svg>'
    )
