"""The report: blocks in the order in which they were added, written as one HTML file."""

import html
import os
import pathlib
import re
from collections.abc import Iterable, Sequence

import plotly.graph_objects as go
import plotly.io
import plotly.offline

from quincunx.report.pictures import Picture

_FOLDER = pathlib.Path(__file__).parent
_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")
# Nothing but what the file itself holds: a report that needed the network would fail to draw on any machine.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; font-src data:"
)


def _checked_text(argument: str, value: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{argument}: expected a non-empty string, got {value!r}")
    return html.escape(value)


def _check_name(name: str, what: str, taken: list[str]) -> None:
    if not _NAME.match(name):
        raise ValueError(f"name: expected lower_snake_case, got {name!r}")
    if name in taken:
        raise ValueError(f"name: the report has a {what} {name!r} already")


class Report:
    """Text is escaped; every `add_` method appends one block."""

    def __init__(self, *, title: str, summary: str):
        self._title = _checked_text("title", title)
        self._summary = _checked_text("summary", summary)
        self._blocks: list[str] = []
        self._chart_names: list[str] = []
        self._picture_names: list[str] = []

    @property
    def chart_names(self) -> list[str]:
        return list(self._chart_names)

    @property
    def picture_names(self) -> list[str]:
        return list(self._picture_names)

    def add_section(self, title: str, text: str = "") -> None:
        """A heading and, if given, a paragraph below it."""
        block = f"<h2>{_checked_text('title', title)}</h2>"
        self._blocks.append(block + (f"<p>{html.escape(text)}</p>" if text else ""))

    def add_key_figures(self, figures: Sequence[tuple[str, str, str]]) -> None:
        """A row of tiles, each (label, value, note)."""
        if not figures:
            raise ValueError("figures: expected at least one (label, value, note), got none")
        tiles = "".join(
            f'<div class="tile"><div class="label">{_checked_text("label", label)}</div>'
            f'<div class="value">{_checked_text("value", value)}</div><div class="note">{html.escape(note)}</div></div>'
            for label, value, note in figures
        )
        self._blocks.append(f'<div class="tiles">{tiles}</div>')

    def add_chart(self, figure: go.Figure, *, name: str, title: str, caption: str) -> None:
        """A plotly figure. `name` is unique in the report and finds the chart again: data-chart in the page."""
        if not isinstance(figure, go.Figure):
            raise TypeError(f"figure: expected a plotly Figure, got {type(figure).__name__}")
        if not figure.data:
            raise ValueError(f"figure: the chart {name!r} has no traces; expected at least one")
        _check_name(name, "chart", self._chart_names)
        title, caption = _checked_text("title", title), _checked_text("caption", caption)
        # "</script" would end the script element early and "<!--<script" keep it open; JSON reads the same text.
        data = plotly.io.to_json(figure).replace("<", "\\u003c")
        self._chart_names.append(name)
        self._blocks.append(
            f'<figure><h3>{title}</h3><div class="chart" data-chart="{name}"></div>'
            f'<script type="application/json" data-chart-of="{name}">{data}</script>'
            f"<figcaption>{caption}</figcaption></figure>"
        )

    def add_pictures(self, pictures: Sequence[Picture], *, title: str, caption: str, pixelated: bool = False) -> None:
        """One below the other. `pixelated`: small ones are enlarged to the page's width with sharp pixels."""
        if not pictures:
            raise ValueError("pictures: expected at least one, got none")
        title, caption = _checked_text("title", title), _checked_text("caption", caption)
        for picture in pictures:
            _check_name(picture.name, "picture", self._picture_names)
            self._picture_names.append(picture.name)
        kind = "pictures pixelated" if pixelated else "pictures"
        shown = "".join(
            f'<div class="{kind}"><div class="label">{_checked_text("label", picture.label)}</div>'
            f'<img data-picture="{picture.name}" alt="{html.escape(picture.label)}" src="{picture.address}"></div>'
            for picture in pictures
        )
        self._blocks.append(f"<figure><h3>{title}</h3>{shown}<figcaption>{caption}</figcaption></figure>")

    def add_table(self, columns: Sequence[str], rows: Iterable[Sequence[str]], *, caption: str = "") -> None:
        """Every row has one string for each column."""
        rows = [list(row) for row in rows]
        for row in rows:
            if len(row) != len(columns):
                raise ValueError(f"rows: expected {len(columns)} cells ({list(columns)}) in each, got {row}")
        head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
        note = f"<figcaption>{html.escape(caption)}</figcaption>" if caption else ""
        self._blocks.append(
            f'<figure class="table"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}</figure>'
        )

    def add_sample(self, *, given: str, text: str, note: str = "") -> None:
        """Text that a model wrote, after the text that it was given."""
        self._blocks.append(
            f'<figure class="sample"><pre><b>{html.escape(given)}</b>{html.escape(text)}</pre>'
            f"<figcaption>{html.escape(note)}</figcaption></figure>"
        )

    def to_html(self) -> str:
        def asset(name: str) -> str:
            return (_FOLDER / name).read_text(encoding="utf-8")

        return (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
            '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
            f"<title>{self._title}</title><script>{asset('errors.js')}</script><style>{asset('page.css')}</style>"
            f"</head>\n<body><main><header><h1>{self._title}</h1><p>{self._summary}</p></header>\n"
            + "\n".join(self._blocks)
            + f"\n</main><script>{plotly.offline.get_plotlyjs()}</script>\n<script>{asset('draw.js')}</script>"
            "</body></html>\n"
        )

    def write(self, path: str | os.PathLike[str]) -> pathlib.Path:
        """Replaces the file at once, so that a reader never sees half of it."""
        path = pathlib.Path(path)
        temporary = path.with_name(path.name + ".new")
        temporary.write_text(self.to_html(), encoding="utf-8")
        temporary.replace(path)
        return path
