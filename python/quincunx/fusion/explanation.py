"""fusion.explain: compiles a model for one call and says what became of each part of its graphs."""

import contextlib
import dataclasses
import html
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx

from quincunx.fusion import _extension
from quincunx.fusion.backend import compile_with
from quincunx.fusion.drawing import draw
from quincunx.fusion.fuser import GraphReport
from quincunx.fusion.settings import Settings

_STYLE = "body{font:14px system-ui,sans-serif;margin:2rem;color:#222}div.graph{overflow:auto;border:1px solid #ddd}"
_STYLE += "table{border-collapse:collapse}td,th{border:1px solid #ddd;padding:3px 8px;text-align:left;font-size:12px}"


@dataclasses.dataclass(frozen=True)
class RegionTime:
    """One call of a region's kernel: the shortest of a few runs, and the bytes of its inputs and results."""

    seconds: float
    num_bytes: int

    def __str__(self) -> str:
        rate = self.num_bytes / self.seconds / 1e9 if self.seconds > 0 else 0.0
        return f"{self.seconds * 1e6:.1f} us, {self.num_bytes / 1e6:.3f} MB, {rate:.1f} GB/s"


@dataclasses.dataclass(frozen=True)
class GraphExplanation:
    """One graph's report, the graph before and after as SVG, and the times of those regions that ran, by key."""

    report: GraphReport
    before_svg: str
    after_svg: str
    times: dict[int, RegionTime] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Explanation:
    """What became of each graph of a model, in the order of their compilation: forward graphs, then backward ones."""

    graphs: list[GraphExplanation]

    @property
    def num_regions(self) -> int:
        return sum(len(graph.report.regions) for graph in self.graphs)

    @property
    def patterns(self) -> dict[str, int]:
        """How often each pattern was recognised in a region."""
        found: dict[str, int] = {}
        for graph in self.graphs:
            for region in graph.report.regions:
                for pattern in region.patterns:
                    found[pattern] = found.get(pattern, 0) + 1
        return found

    def __str__(self) -> str:
        return "\n".join(line for graph in self.graphs for line in _text(graph))

    def write_html(self, path: str | pathlib.Path) -> None:
        """A page of its own, with the drawings."""
        body = "".join(_section(graph) for graph in self.graphs)
        page = (
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Fusion</title><style>{_STYLE}</style>'
        )
        pathlib.Path(path).write_text(f"{page}</head><body><h1>Fusion</h1>{body}</body></html>\n", encoding="utf-8")


def _text(graph: GraphExplanation) -> list[str]:
    report = graph.report
    lines = [f"{report.name}: {report.num_nodes} operators, {len(report.regions)} regions"]
    for region in report.regions:
        patterns = f", recognised {', '.join(region.patterns)}" if region.patterns else ""
        time = f", {graph.times[region.key]}" if region.key in graph.times else ""
        lines.append(f"  fused {region.name} ({region.kind}): {' '.join(region.nodes)}{patterns}{time}")
    for entry in report.candidates:
        if not entry.fused:
            lines.append(f"  not fused, {entry.stage}: {' '.join(entry.nodes)}: {entry.reason}")
    for name, count in sorted(report.left.items()):
        lines.append(f"  left to PyTorch: {count} x {name}")
    return lines


def _section(graph: GraphExplanation) -> str:
    report = graph.report
    regions = "".join(
        f"<tr><td>{html.escape(region.name)}</td><td>{html.escape(region.kind)}</td>"
        f"<td>{html.escape(', '.join(region.patterns))}</td><td>{html.escape(' '.join(region.nodes))}</td>"
        f"<td>{graph.times.get(region.key, '')}</td></tr>"
        for region in report.regions
    )
    rows = "".join(
        f"<tr><td>{html.escape(entry.stage)}</td><td>{html.escape(' '.join(entry.nodes))}</td>"
        f"<td>{'fused' if entry.fused else html.escape(entry.reason)}</td></tr>"
        for entry in report.candidates
    )
    return (
        f"<h2>{html.escape(report.name)}: {report.num_nodes} operators, {len(report.regions)} regions</h2>"
        f'<h3>Before</h3><div class="graph">{graph.before_svg}</div>'
        f'<h3>After</h3><div class="graph">{graph.after_svg}</div>'
        f"<h3>Regions</h3><table><tr><th>name</th><th>kind</th><th>patterns</th><th>operators</th>"
        f"<th>time and memory</th></tr>{regions}</table>"
        f"<h3>Candidates</h3><table><tr><th>stage</th><th>operators</th><th>result</th></tr>{rows}</table>"
    )


class _Collector:
    def __init__(self) -> None:
        self.graphs: list[GraphExplanation] = []

    def __call__(self, report: GraphReport, before: fx.Graph, after: fx.Graph) -> None:
        of_node = {name: number for number, region in enumerate(report.regions) for name in region.nodes}
        numbers = {region.key: number for number, region in enumerate(report.regions)}
        calls = {node.name: numbers[node.args[1]] for node in after.nodes if _key(node) in numbers}
        labels = {name: report.regions[number].name for name, number in calls.items()}
        drawings = draw(before, of_node, {}), draw(after, calls, labels)
        self.graphs.append(GraphExplanation(report, *drawings))


def _key(node: fx.Node) -> int | None:
    is_region = isinstance(node.target, torch._ops.OpOverload) and node.target.namespace == "quincunx"
    return node.args[1] if is_region and len(node.args) == 3 else None


def _floating_leaves(results: Any) -> list[torch.Tensor]:
    leaves = torch.utils._pytree.tree_leaves(results)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]


def explain(function: Callable, *args: Any, settings: Settings | None = None, **kwargs: Any) -> Explanation:
    """Runs function(*args, **kwargs) once on the stand-alone backend, and its backward if its results have one. Each
    region's kernel runs a few times more, for its time.

    No gradient is left in any tensor's `grad`; other effects of a call (batch statistics, random numbers) happen.
    """
    if not callable(function):
        raise ValueError(f"function is {function!r}; expected a module or another callable")
    collector = _Collector()
    torch._dynamo.reset()
    with _region_times() as times:
        results = torch.compile(function, backend=compile_with(settings or Settings(), collector))(*args, **kwargs)
        differentiable = _floating_leaves(results)
        if differentiable:
            _run_backward(function, differentiable, args, kwargs)
    return Explanation([_with_times(graph, times) for graph in collector.graphs])


@contextlib.contextmanager
def _region_times() -> Iterator[dict[int, RegionTime]]:
    """Times the calls of regions inside; filled at the end."""
    module = _extension.load()
    times: dict[int, RegionTime] = {}
    module.set_region_timing(True)
    try:
        yield times
    finally:
        module.set_region_timing(False)
        times.update((key, RegionTime(*time)) for key, time in module.region_times().items())


def _with_times(graph: GraphExplanation, times: dict[int, RegionTime]) -> GraphExplanation:
    own = {region.key: times[region.key] for region in graph.report.regions if region.key in times}
    return dataclasses.replace(graph, times=own)


def _run_backward(function: Callable, results: list[torch.Tensor], args: tuple, kwargs: dict) -> None:
    owner = getattr(function, "__self__", function)
    wanted = list(owner.parameters()) if isinstance(owner, torch.nn.Module) else []
    wanted += torch.utils._pytree.tree_leaves((args, kwargs))
    wanted = [tensor for tensor in wanted if isinstance(tensor, torch.Tensor) and tensor.requires_grad]
    # Without any of these the gradient is that of a tensor which only the function knows.
    if wanted:
        ones = [torch.ones_like(result) for result in results]
        torch.autograd.grad(results, wanted, ones, allow_unused=True)
