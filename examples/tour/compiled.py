"""The tour's fusion: each layer is compiled by torch.compile with the backend "quincunx", forward and backward."""

import pathlib

import torch
from guards import GuardError
from model import Block, rotary_table
from quincunx import fusion
from quincunx.report import Picture, Report
from records import Record, of_event
from settings import Settings

PICTURES = ("fusion_before", "fusion_after")


def compile_layers(layers: torch.nn.ModuleList, settings: Settings, kernels: pathlib.Path) -> None:
    """Compiles each layer's forward; kernels are kept in the folder, where the workers after a restart find them."""
    if settings.compile == "none":
        return
    if settings.compile != "quincunx":
        raise ValueError(f"Settings: compile {settings.compile!r}; expected 'quincunx' or 'none'")
    for layer in layers:
        layer.forward = torch.compile(
            layer.forward, backend="quincunx", dynamic=False, options={"cache_directory": str(kernels)}
        )


def counts(settings: Settings) -> dict[str, object]:
    """Of this process; the compiler is not loaded where nothing was compiled."""
    return {} if settings.compile == "none" else fusion.counters()


def explain(settings: Settings, kernels: pathlib.Path) -> fusion.Explanation:
    """What fusion makes of one layer at the sizes of the training, with its graphs drawn before and after."""
    config = settings.model
    x_BLD = torch.randn(settings.sequences_per_rank, settings.sequence_length, config.dim, requires_grad=True)
    table = rotary_table(settings.sequence_length, config.head_dim, config.rope_base)
    return fusion.explain(Block(config), x_BLD, *table, settings=fusion.Settings(cache_directory=str(kernels)))


def check(records: list[Record]) -> dict[str, int]:
    """Every rank that finished ran compiled regions. Returns what stayed with PyTorch, with its number."""
    left: dict[str, int] = {}
    for record in of_event(records, "done"):
        counted = record["fusion"]
        if counted.get("regions", 0) <= 0 or counted["regions_run"] <= 0:
            raise GuardError(f"guard: no compiled region ran on rank {record['rank']}; fusion counted {counted}")
        left |= counted["operators_left"]
        left |= {f"a region, because {reason}": count for reason, count in counted["refused"].items()}
        if counted["regions_run_by_aten"] > 0:
            left["calls of regions that took another way than their kernel"] = counted["regions_run_by_aten"]
    return dict(sorted(left.items()))


def add_to(report: Report, explanation: fusion.Explanation, left: dict[str, int]) -> None:
    forward = explanation.graphs[0]
    patterns = ", ".join(f"{count} x {name}" for name, count in sorted(explanation.patterns.items())) or "none by name"
    report.add_section(
        "Fusion",
        "Each layer is compiled for training. Operators between the matrix products become regions, each one kernel "
        "from our code generator; the others run through PyTorch.",
    )
    report.add_pictures(
        [
            Picture(PICTURES[0], "before: regions in colour", forward.before_svg.encode(), "image/svg+xml"),
            Picture(PICTURES[1], "after: each region is one kernel", forward.after_svg.encode(), "image/svg+xml"),
        ],
        title=f"A layer's forward graph: {forward.report.num_nodes} operators, {len(forward.report.regions)} regions",
        caption=f"Recognised patterns, forward and backward: {patterns}.",
    )
    report.add_table(
        ["operator", "number"],
        [(name, str(count)) for name, count in left.items()],
        caption="What runs through PyTorch's own operators in the compiled graphs of a worker.",
    )
