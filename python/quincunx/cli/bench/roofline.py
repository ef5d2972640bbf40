"""The roofline plot: each kernel's rate against its operations a byte, under the machine's measured limits."""

import ctypes
import dataclasses
import functools
import mmap
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence

from .peak import load_library, load_reader
from .row import Row

THREADS = (1, 2)
# Beyond every cache, and half of the L2 cache of a core.
MEMORY_BYTES = 1 << 28
CACHE_BYTES = 1 << 19
_PEAK_READINGS = 15
_READING_SECONDS = 0.1


@dataclasses.dataclass(frozen=True)
class Limits:
    """What `threads` cores do at best, as read on this machine: operations and bytes a second."""

    threads: int
    operations: float
    memory_bytes: float
    cache_bytes: float

    def attainable(self, intensity: float) -> float:
        """Operations a second at `intensity` operations a byte that come from memory."""
        return min(self.operations, intensity * self.memory_bytes)


def _best_rate(call: Callable[[], object], amount: float) -> float:
    call()
    best, end = 0.0, time.perf_counter() + _READING_SECONDS
    while (start := time.perf_counter()) < end:
        call()
        best = max(best, amount / (time.perf_counter() - start))
    return best


def _read_bandwidth(library: ctypes.CDLL, size: int, threads: int) -> float:
    if not hasattr(library, "qx_read_words"):
        raise RuntimeError(f"{library._name} is older than this checkout; build it with `make build`")
    read = library.qx_read_words
    read.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int]
    read.restype = ctypes.c_uint32
    with mmap.mmap(-1, size) as memory:
        memory.write(b"\1" * size)  # Pages that were never written are all one page of zeros.
        first = ctypes.c_char.from_buffer(memory)
        try:
            # Small arrays are read by each thread for itself: starting threads takes longer than the reading.
            counted = threads if size > CACHE_BYTES else 1
            call = functools.partial(read, ctypes.addressof(first), size // 4, counted)
            return _best_rate(call, size) * threads / counted
        finally:
            del call, first


def read_limits(checkout: pathlib.Path) -> list[Limits]:
    """Best readings for one and two threads. RuntimeError where the loops were not built."""
    read_peak, library = load_reader(checkout), load_library(checkout)
    return [
        Limits(
            threads=threads,
            operations=1e9 * max(read_peak(threads) for _ in range(_PEAK_READINGS)),
            memory_bytes=_read_bandwidth(library, MEMORY_BYTES, threads),
            cache_bytes=_read_bandwidth(library, CACHE_BYTES, threads),
        )
        for threads in THREADS
    ]


def drawn_rows(rows: Sequence[Row]) -> list[Row]:
    """Those whose work is known and that were measured."""
    return [row for row in rows if row.work is not None and row.seconds]


def _intensity(row: Row) -> float:
    return row.work.operations / row.work.moved_bytes


def _rate(row: Row) -> float:
    return row.work.operations / row.seconds


def _part_of_roof(row: Row, limit: Limits) -> str:
    return f"{100 * _rate(row) / limit.attainable(_intensity(row)):.0f} %"


def figure(rows: Sequence[Row], limits: Sequence[Limits]):
    """A plotly figure: a roof for each number of threads, a dashed slope for the cache, a point for each row."""
    import plotly.graph_objects as go

    from quincunx.report import COLORS, styled

    intensities = [_intensity(row) for row in rows]
    low, high = min([0.1, *intensities]) / 2, max([100.0, *intensities]) * 2
    chart = go.Figure()
    for limit, color in zip(limits, COLORS, strict=False):
        label = f"{limit.threads} thread{'s' if limit.threads > 1 else ''}"
        for name, bandwidth, dash in (("memory", limit.memory_bytes, "solid"), ("L2 cache", limit.cache_bytes, "dot")):
            ridge = min(max(limit.operations / bandwidth, low), high)
            xs = [low, ridge, high]
            ys = [min(limit.operations, x * bandwidth) / 1e9 for x in xs]
            line = {"color": color, "dash": dash, "width": 2}
            chart.add_scatter(x=xs, y=ys, mode="lines", name=f"{label}, {name}", line=line, hoverinfo="skip")
        points = [row for row in rows if row.threads == limit.threads]
        texts = [
            f"{row.name}<br>{100 * _rate(row) / limit.attainable(_intensity(row)):.0f} % of the roof" for row in points
        ]
        chart.add_scatter(
            x=[_intensity(row) for row in points],
            y=[_rate(row) / 1e9 for row in points],
            mode="markers",
            name=f"kernels, {label}",
            text=texts,
            marker={"color": color, "size": 9, "opacity": 0.75},
            hovertemplate="%{text}<br>%{y:.3g} GF/s at %{x:.3g} operations a byte<extra></extra>",
        )
    styled(chart, height=560, x_title="operations a byte of operands and results", y_title="GF/s")
    chart.update_xaxes(type="log")
    chart.update_yaxes(type="log")
    return chart


def _table(rows: Sequence[Row], limits: Sequence[Limits]) -> list[list[str]]:
    of_threads = {limit.threads: limit for limit in limits}
    lines = []
    for row in rows:
        roof = of_threads[row.threads].attainable(_intensity(row))
        cells = [
            f"{_intensity(row):.3g}",
            f"{_rate(row) / 1e9:.3g}",
            f"{roof / 1e9:.3g}",
            f"{100 * _rate(row) / roof:.0f} %",
        ]
        lines.append([row.name, str(row.threads), *cells])
    return lines


def write_html(path: pathlib.Path, machine: Mapping[str, str], rows: Sequence[Row], limits: Sequence[Limits]) -> None:
    """One self-contained page. ValueError where no row says what work it does."""
    from quincunx.report import Report

    known = {limit.threads for limit in limits}
    drawn = [row for row in drawn_rows(rows) if row.threads in known]
    if not drawn:
        raise ValueError("rows: expected at least one measured row that knows its operations and bytes")
    report = Report(
        title="Kernels under the machine's limits",
        summary=", ".join(f"{what}: {value}" for what, value in machine.items()),
    )
    report.add_key_figures(
        [
            (
                f"{limit.threads} thread{'s' if limit.threads > 1 else ''}",
                f"{limit.operations / 1e9:.0f} GF/s",
                f"memory {limit.memory_bytes / 1e9:.0f} GB/s, L2 cache {limit.cache_bytes / 1e9:.0f} GB/s",
            )
            for limit in limits
        ]
    )
    report.add_chart(
        figure(drawn, limits),
        name="roofline",
        title="Roofline",
        caption="Roofs are the best readings of a multiply-add loop and of a loop that reads 256 MiB (solid) or 512 "
        "KiB (dotted). Operations are those of the plain algorithm, bytes those of operands and results once: a kernel "
        "whose operands stay in a cache, or whose algorithm needs fewer operations (Winograd, Gram), may lie above it.",
    )
    head = ("kernel", "threads", "operations a byte", "GF/s", "roof, GF/s", "of the roof")
    report.add_table(head, _table(drawn, limits))
    report.write(path)
