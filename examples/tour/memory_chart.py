"""The chart of the bytes that activations held in one step."""

import plotly.graph_objects as go
from quincunx.report import COLORS, styled
from records import Record, of_event

NAME = "memory"
# In memory, stacked from the bottom; the file and the comparison are lines.
_STACKED = {"saved": "saved", "recomputed": "computed again", "swap_buffer": "on the way to or from the file"}
_LINES = {"swapped": ("in the file", "dot"), "autograd": ("in memory without a policy", "dash")}
_MIB = 1 << 20


def memory_of_step(records: list[Record]) -> Record:
    return of_event(records, "memory", rank=0)[-1]


def _steps(record: Record, holder: str) -> tuple[list[float], list[float]]:
    """Milliseconds since the step began and MiB, as a line that stays level until the next change."""
    start_s = min(record["begins"].values())
    changes = [(seconds, live) for seconds, name, live in record["events"] if name == holder]
    times = [0.0, *((seconds - start_s) * 1e3 for seconds, _ in changes), (record["end_s"] - start_s) * 1e3]
    values = [0, *(live for _, live in changes)]
    return times, [value / _MIB for value in (*values, values[-1])]


def _sampled(record: Record, holder: str, at_ms: list[float]) -> list[float]:
    times, values = _steps(record, holder)
    index, sampled = 0, []
    for time_ms in at_ms:
        while index + 1 < len(times) and times[index + 1] <= time_ms:
            index += 1
        sampled.append(values[index])
    return sampled


def draw(records: list[Record]) -> go.Figure:
    """Rank 0's traced step: what is in memory as stacked areas, what is in the file and what no policy would hold."""
    record = memory_of_step(records)
    figure = go.Figure()
    # Stacked areas need common times.
    at_ms = sorted({time_ms for holder in _STACKED for time_ms in _steps(record, holder)[0]})
    for (holder, label), color in zip(_STACKED.items(), COLORS, strict=False):
        figure.add_scatter(
            x=at_ms,
            y=_sampled(record, holder, at_ms),
            name=label,
            mode="lines",
            stackgroup="memory",
            line={"shape": "hv", "width": 0.8, "color": color},
        )
    for (holder, (label, dash)), color in zip(_LINES.items(), COLORS[3:], strict=False):
        x, y = _steps(record, holder)
        figure.add_scatter(x=x, y=y, name=label, mode="lines", line={"shape": "hv", "dash": dash, "color": color})
    start_s = min(record["begins"].values())
    for phase, begin_s in record["begins"].items():
        figure.add_vline(
            x=(begin_s - start_s) * 1e3,
            line={"color": "#adb5bd", "dash": "dot", "width": 1},
            annotation={"text": phase, "font": {"size": 12, "color": "#5c636a"}},
            annotation_position="top right",
        )
    return styled(figure, height=420, x_title="milliseconds since the step began", y_title="MiB of activations")


def peaks_mib(record: Record) -> tuple[float, float]:
    """The largest sum of what is in memory, and what it would be without a policy."""
    live = dict.fromkeys(_STACKED, 0)
    peak = 0
    for _, holder, num_bytes in record["events"]:
        if holder in live:
            live[holder] = num_bytes
            peak = max(peak, sum(live.values()))
    without = max((num_bytes for _, holder, num_bytes in record["events"] if holder == "autograd"), default=0)
    return peak / _MIB, without / _MIB
