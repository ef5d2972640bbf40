"""Finds the regions of an fx graph, compiles them and puts them in place; what cannot be, stays, with a reason."""

import collections
import dataclasses
import importlib
import json
import logging
import operator
import threading
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import unset_fake_temporarily

from quincunx._graph import import_graph
from quincunx.fusion import _extension, rewriting
from quincunx.fusion.duplicates import merge_duplicates
from quincunx.fusion.labels import label_of
from quincunx.fusion.program import Reader
from quincunx.fusion.settings import Settings
from quincunx.fusion.weights import find_weights

logger = logging.getLogger("quincunx.fusion")


@dataclasses.dataclass(frozen=True)
class RegionReport:
    """A region that runs as one kernel."""

    name: str
    kind: str
    patterns: list[str]
    nodes: list[str]
    key: int
    kernel: str


@dataclasses.dataclass(frozen=True)
class Candidate:
    """Something that a pattern, the clustering, code generation or the graph's rewriting looked at."""

    stage: str
    nodes: list[str]
    fused: bool
    reason: str


@dataclasses.dataclass(frozen=True)
class GraphReport:
    """What became of one graph. `left` counts the operators that still run one by one."""

    name: str
    regions: list[RegionReport]
    candidates: list[Candidate]
    left: dict[str, int]
    num_nodes: int


class _Totals:
    """Of all graphs since the process began."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.graphs = 0
        self.regions = 0
        self.left: collections.Counter[str] = collections.Counter()
        self.refused: collections.Counter[str] = collections.Counter()

    def add(self, report: GraphReport) -> None:
        with self.lock:
            self.graphs += 1
            self.regions += len(report.regions)
            self.left.update(report.left)
            self.refused.update(entry.reason for entry in report.candidates if entry.stage == "rewriting")


_totals = _Totals()


def counters() -> dict[str, Any]:
    """Since the process began: graphs and regions compiled, kernels by where they came from, calls of regions, the
    operators that stayed with PyTorch ("operators_left") and the regions that a graph refused ("refused").
    """
    compiled = _extension.load().counters()
    with _totals.lock:
        ours = {
            "graphs": _totals.graphs,
            "regions": _totals.regions,
            "operators_left": dict(_totals.left),
            "refused": dict(_totals.refused),
            # The module of operators is there once the compiled part is.
            "regions_checked": importlib.import_module("quincunx.fusion._operators").num_checked(),
        }
    return {**ours, **compiled}


def fuse_graph(graph: fx.Graph, settings: Settings, *, name: str = "graph") -> GraphReport:
    """Edits `graph` in place, region by region. Never raises for what a graph holds: it stays as it is then."""
    num_nodes = sum(node.op == "call_function" for node in graph.nodes)
    try:
        regions, candidates = _fuse(graph, settings, name)
    except (ValueError, TypeError, NotImplementedError, RuntimeError) as error:
        logger.warning("%s stays as it is: %s", name, error)
        regions, candidates = [], [Candidate("rewriting", [], False, f"{name}: {error}")]
    report = GraphReport(name, regions, candidates, _operators_left(graph), num_nodes)
    _totals.add(report)
    return report


def _fuse(graph: fx.Graph, settings: Settings, name: str) -> tuple[list[RegionReport], list[Candidate]]:
    module = _extension.load()
    merge_duplicates(graph)
    imported = import_graph(graph, name=name, unsupported="opaque")
    sources = list(imported.node_sources)
    weights = set(find_weights(graph))
    fused = module.fuse(
        imported.graph,
        settings.patterns,
        [value for value in imported.graph.inputs if imported.value_sources[value] in weights],
        [label_of(node) for node in sources],
        settings.cache_directory,
        settings.dump_directory,
        settings.check,
    )
    candidates = [
        Candidate(entry.stage, [sources[node].name for node in entry.nodes], entry.fused, entry.reason)
        for entry in fused.report
    ]
    placer = _Placer(graph, imported, fused, settings)
    regions = []
    for index, region in enumerate(fused.regions):
        try:
            regions.append(placer.place(index, region))
        except rewriting.Refused as error:
            logger.info("%s: %s stays as it is: %s", name, region.name, error)
            names = [sources[node].name for node in region.nodes]
            candidates.append(Candidate("rewriting", names, False, f"{region.name}: {error}"))
    return regions, candidates


class _Placer:
    """Puts the regions of one fused graph into the fx graph that it was imported from."""

    def __init__(self, graph: fx.Graph, imported: Any, fused: Any, settings: Settings) -> None:
        self.graph, self.fused = graph, fused
        self.sources, self.values = list(imported.node_sources), list(imported.value_sources)
        operators = torch.ops.quincunx
        self.target = operators.checked_region.default if settings.check else operators.fused_region.default

    def place(self, index: int, region: Any) -> RegionReport:
        inputs, outputs = list(region.inputs), list(region.outputs)
        replacement = rewriting.plan(
            self.graph,
            _with_getitems([self.sources[node] for node in region.nodes]),
            [self.values[value] for value in inputs],
            [self.values[value] for value in outputs],
            weight=region.weight,
        )
        names = [node.name for node in replacement.nodes]
        key = replacement.program.key
        try:
            self.fused.register_region(index, key, inputs, outputs, replacement.output_orders)
        except RuntimeError as error:
            raise rewriting.Refused(str(error)) from None
        results = rewriting.replace(self.graph, replacement, self.target)
        for value, result in zip(outputs, results, strict=True):
            self.values[value] = result
        return RegionReport(region.name, region.kind, list(region.patterns), names, key, region.program)


def _with_getitems(nodes: list[fx.Node]) -> list[fx.Node]:
    """And the nodes that pick one of several results of these."""
    picked = [
        user
        for node in nodes
        if isinstance(node.meta.get("val"), (tuple, list))
        for user in node.users
        if user.op == "call_function" and user.target is operator.getitem
    ]
    return [*nodes, *picked]


def _operators_left(graph: fx.Graph) -> dict[str, int]:
    left = collections.Counter(
        str(node.target)
        for node in graph.nodes
        if node.op == "call_function"
        and isinstance(node.target, torch._ops.OpOverload)
        and node.target.namespace != "quincunx"
    )
    return dict(left)


def load_region(key: int, program: str) -> bool:
    """Compiles the region of a graph that another process made, and registers it; False if that cannot be done."""
    try:
        return _load_region(key, program)
    except Exception:
        logger.exception("a region of a cached graph runs through torch's operators")
        return False


def _load_region(key: int, text: str) -> bool:
    with unset_fake_temporarily():
        module = Reader(text).read()
        imported = import_graph(module, name="region", unsupported="opaque")
        values = {source: value for value, source in enumerate(imported.value_sources) if source is not None}
        placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
        inputs = [values[node] for node in placeholders if isinstance(node.meta["val"], torch.Tensor)]
        weights = [inputs[position] for position in json.loads(text).get("weights", [])]
        fused = _extension.load().fuse(imported.graph, {}, weights, [], "", "", False)
    # That it has all inputs and results of the program is seen when it is registered.
    if len(fused.regions) != 1:
        logger.warning("the region %d of a cached graph is no single region here", key)
        return False
    outputs = [values[node] for node in module.graph.output_node().args[0]]
    orders = [order for _, order in json.loads(text)["outputs"]]
    fused.register_region(0, key, inputs, outputs, orders)
    return True
