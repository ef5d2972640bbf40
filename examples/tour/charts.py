"""The tour's charts, from the records of its run."""

import plotly.graph_objects as go
from plotly.subplots import make_subplots
from quincunx.report import COLORS, styled
from records import Record, of_event

NAMES = ("loss", "step", "memory", "bandwidth", "latency")

_BLUE, _ORANGE, _GREEN, _PURPLE, _YELLOW, _CYAN, _GREY = COLORS
_KIND_COLORS = {
    "forward": _BLUE,
    "backward": _CYAN,
    "optimizer": _PURPLE,
    "all_gather": _GREEN,
    "reduce_scatter": _ORANGE,
    "all_to_all": _YELLOW,
    "Newton-Schulz": "#e64980",
}


def loss(records: list[Record], unigram_entropy: float, bound: float | None) -> go.Figure:
    """Training and held-out loss against the step, with the kill, the resume and the entropy of single tokens."""
    figure = go.Figure()
    labels = {0: ("training, until the kill", _BLUE, 5.0), 1: ("training, after the resume", _CYAN, 1.8)}
    for attempt, (label, color, width) in labels.items():
        steps = of_event(records, "step", rank=0, attempt=attempt)
        figure.add_scatter(
            x=[record["step"] for record in steps],
            y=[record["loss"] for record in steps],
            name=label,
            mode="lines",
            line={"color": color, "width": width},
            opacity=0.45 if attempt == 0 else 1.0,
        )
    # Evaluations between the checkpoint and the kill are repeated bit for bit; the later ones are drawn.
    held_out = {record["step"]: record["loss"] for record in of_event(records, "evaluation", rank=0)}
    figure.add_scatter(
        x=sorted(held_out),
        y=[held_out[step] for step in sorted(held_out)],
        name="held-out text",
        mode="lines+markers",
        line={"color": _ORANGE, "width": 2},
        marker={"size": 7},
    )
    _horizontal(figure, unigram_entropy, "unigram entropy of the held-out text")
    if bound is not None:
        _horizontal(figure, bound * unigram_entropy, f"the tour's bound: {bound} x unigram entropy")
    killed_at = max(record["step"] for record in of_event(records, "step", rank=0, attempt=0))
    resumed_from = of_event(records, "start", attempt=1)[0]["first_step"] - 1
    _vertical(figure, resumed_from, "resumed from here", "left")
    _vertical(figure, killed_at, "killed here", "right")
    # Room for the lines' labels above the curves and below the lowest line.
    values = [record["loss"] for record in of_event(records, "step", rank=0)] + list(held_out.values())
    values += [unigram_entropy, (bound or 1.0) * unigram_entropy]
    margin = 0.08 * (max(values) - min(values))
    figure.update_yaxes(range=[min(values) - margin, max(values) + 2 * margin])
    return styled(figure, height=460, x_title="optimizer step", y_title="loss, nats a token")


def _horizontal(figure: go.Figure, y: float, label: str) -> None:
    figure.add_hline(
        y=y,
        line={"color": _GREY, "dash": "dash", "width": 1.2},
        annotation={
            "text": f"{label} ({y:.2f})",
            "font": {"size": 12, "color": "#5c636a"},
            "bgcolor": "rgba(255,255,255,0.8)",
        },
        annotation_position="top right",
    )


def _vertical(figure: go.Figure, x: float, label: str, side: str) -> None:
    figure.add_vline(
        x=x,
        line={"color": "#c92a2a", "dash": "dot", "width": 1.5},
        annotation={"text": label, "font": {"size": 12, "color": "#c92a2a"}},
        annotation_position=f"top {side}",
    )


def step(records: list[Record]) -> go.Figure:
    """Gantt chart of the traced step: on each rank its phases, its collectives and its Newton-Schulz iterations."""
    traces = of_event(records, "trace")
    start_s = min(span["start_s"] for trace in traces for span in trace["spans"])
    figure = go.Figure()
    kinds = [kind for kind in _KIND_COLORS if any(span["kind"] == kind for t in traces for span in t["spans"])]
    kinds += sorted({span["kind"] for t in traces for span in t["spans"]} - set(kinds))
    for kind in kinds:
        spans = [(trace["rank"], span) for trace in traces for span in trace["spans"] if span["kind"] == kind]
        figure.add_bar(
            orientation="h",
            name=kind.replace("_", "-"),
            y=[f"rank {rank}: {span['lane']}" for rank, span in spans],
            base=[(span["start_s"] - start_s) * 1e3 for _, span in spans],
            x=[span["seconds"] * 1e3 for _, span in spans],
            marker={"color": _KIND_COLORS.get(kind, _GREY), "line": {"width": 0}},
            hovertemplate="%{y}<br>%{x:.2f} ms from %{base:.2f} ms<extra>" + kind + "</extra>",
        )
    lanes = ("phase", "collective", "Newton-Schulz")
    order = [f"rank {rank}: {lane}" for rank in sorted({trace["rank"] for trace in traces}) for lane in lanes]
    present = {f"rank {trace['rank']}: {span['lane']}" for trace in traces for span in trace["spans"]}
    styled(figure, height=380, x_title="milliseconds since the step began")
    figure.update_layout(barmode="overlay", bargap=0.25, margin={"l": 185})
    figure.update_yaxes(categoryorder="array", categoryarray=[name for name in order if name in present][::-1])
    return figure


def _size(num_bytes: int) -> str:
    return f"{num_bytes >> 20} MiB" if num_bytes >= 1 << 20 else f"{num_bytes >> 10} KiB"


def bandwidth(measurements: list[Record]) -> go.Figure:
    """Bytes a second of each collective against its size, mccl beside gloo."""
    measurements = of_event(measurements, "bandwidth", rank=0)
    operations = list(dict.fromkeys(record["operation"] for record in measurements))
    titles = [operation.replace("_", "-") for operation in operations]
    figure = make_subplots(rows=1, cols=len(operations), shared_yaxes=True, subplot_titles=titles)
    for column, operation in enumerate(operations, start=1):
        for backend, color, dash in (("mccl", _BLUE, "solid"), ("gloo", _ORANGE, "dash")):
            rows = [r for r in measurements if r["operation"] == operation and r["backend"] == backend]
            figure.add_scatter(
                row=1,
                col=column,
                x=[row["bytes"] for row in rows],
                y=[row["bytes"] / row["seconds"] / 1e9 for row in rows],
                name=backend,
                legendgroup=backend,
                showlegend=column == 1,
                mode="lines+markers",
                line={"color": color, "width": 2.5, "dash": dash},
                customdata=[row["seconds"] * 1e6 for row in rows],
                hovertemplate="%{y:.3f} GB/s, %{customdata:.1f} us<extra>" + backend + "</extra>",
            )
    styled(figure, height=400, x_title="size of the whole tensor")
    sizes = sorted({record["bytes"] for record in measurements})
    figure.update_xaxes(type="log", tickvals=sizes, ticktext=[_size(size) for size in sizes], tickangle=-40)
    figure.update_yaxes(type="log")
    figure.update_yaxes(title_text="GB/s", col=1)
    figure.update_layout(margin={"t": 56, "b": 90}, legend={"y": 1.12})
    return figure
