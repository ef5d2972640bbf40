"""The table on the terminal."""

import collections
from collections.abc import Iterable

from .row import Row, Verdict

_COLOURS = {
    Verdict.PASS: "green",
    Verdict.TIE: "yellow",
    Verdict.MISS: "red",
    Verdict.MISSING: "red",
    Verdict.DISTURBED: "magenta",
    Verdict.SHOWN: "",
}
_LOG_COLUMNS = 180
HEADINGS = ("row", "threads", "ours", "peer", "unit", "ratio", "quartiles", "demand", "others", "peak", "verdict")


def number(value: float | None) -> str:
    """Three significant digits."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def cells(row: Row) -> list[str]:
    """The texts of a row under HEADINGS."""
    peer = f"{number(row.peer)} ({row.peer_name})" if row.peer_name else "-"
    spread = f"{number(row.spread[0])} ... {number(row.spread[1])}" if row.spread else "-"
    demand = row.demand if isinstance(row.demand, str) else number(row.demand)
    shown = [str(row.threads), number(row.ours), peer, row.unit or "-", number(row.ratio), spread, demand]
    around = row.surroundings
    machine = [f"{around.others:.0%}" if around else "-", number(around.peak if around else None)]
    return [row.name, *shown, *machine, str(row.verdict)]


def summary(rows: Iterable[Row]) -> str:
    """How many rows came out how, in one line; a missing row counts as missed."""
    counts = collections.Counter(row.verdict for row in rows)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict]) or "no rows"


def print_table(capability: str, rows: list[Row]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=f"qx bench {capability}")
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading in ("row", "verdict") else "right")
    for row in rows:
        table.add_row(*(escape(cell) for cell in cells(row)), style=_COLOURS[row.verdict])
    console = Console()
    if not console.is_terminal:  # a log does not wrap
        console.width = _LOG_COLUMNS
    console.print(table)
    for row in rows:
        if row.note:
            console.print(f"{row.id}: {row.note}", markup=False, highlight=False)
    console.print(f"{capability}: {summary(rows)}", markup=False, highlight=False)
