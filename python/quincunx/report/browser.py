"""Looks at a written report in headless Chromium: is every chart drawn, and did any script fail?"""

import dataclasses
import html.parser
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Simulated time that the page's scripts get; the browser ends as soon as they are idle.
_SCRIPT_TIME_MS = 20_000


class BrowserError(RuntimeError):
    """The browser is missing, failed, or took too long."""


@dataclasses.dataclass(frozen=True)
class ChartState:
    """`num_marks`: shapes with an outline that stand for data, such as lines, bars and points."""

    name: str
    num_marks: int


@dataclasses.dataclass(frozen=True)
class PictureState:
    """`width`: in pixels, 0 where it could not be shown."""

    name: str
    width: int


@dataclasses.dataclass(frozen=True)
class PageState:
    charts: list[ChartState]
    errors: list[str]
    pictures: list[PictureState] = dataclasses.field(default_factory=list)

    def problems(self) -> list[str]:
        """One sentence for each chart without marks, picture not shown and script error; empty if all is right."""
        empty = [f"the chart {chart.name!r} is not drawn" for chart in self.charts if chart.num_marks == 0]
        empty += [f"the picture {picture.name!r} is not shown" for picture in self.pictures if picture.width == 0]
        return empty + [f"script error: {error}" for error in self.errors]


def find_browser() -> str | None:
    """Path of Chromium or Chrome, or None. The variable QX_BROWSER names another program."""
    override = os.environ.get("QX_BROWSER")
    for program in (override,) if override else _PROGRAMS:
        found = shutil.which(program)
        if found:
            return found
    return None


class _DocumentReader(html.parser.HTMLParser):
    """Counts the marks of each chart in the document as it stands after all scripts have run."""

    _VOID = frozenset({"area", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"})

    def __init__(self) -> None:
        super().__init__()
        self.num_marks: dict[str, int] = {}
        self.picture_widths: dict[str, int] = {}
        self.errors: list[str] | None = None
        self._open: list[tuple[str, str | None, bool]] = []  # tag, chart and whether it is inside a trace

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        if tag == "html" and "data-script-errors" in values:
            self.errors = json.loads(values["data-script-errors"])
        if "data-picture" in values:
            self.picture_widths[values["data-picture"]] = int(values.get("data-drawn-width", "0"))
        _, chart, in_trace = self._open[-1] if self._open else ("", None, False)
        if "data-chart" in values:
            chart = values["data-chart"]
            self.num_marks[chart] = 0
        in_trace = in_trace or (chart is not None and "trace" in values.get("class", "").split())
        if in_trace and tag == "path" and values.get("d", "").strip():
            self.num_marks[chart] += 1
        if tag not in self._VOID:
            self._open.append((tag, chart, in_trace))

    def handle_endtag(self, tag: str) -> None:
        for index in range(len(self._open) - 1, -1, -1):
            if self._open[index][0] == tag:
                del self._open[index:]
                return


def _run(arguments: list[str], browser: str | None, timeout_s: float) -> subprocess.CompletedProcess[str]:
    browser = browser or find_browser()
    if browser is None:
        raise BrowserError(f"no browser: install Debian's package chromium, or set QX_BROWSER (tried {_PROGRAMS})")
    with tempfile.TemporaryDirectory(prefix="quincunx-browser-") as profile:
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]
        command += ["--disable-dev-shm-usage", "--disable-extensions", "--disable-background-networking"]
        command += [f"--user-data-dir={profile}", "--window-size=1280,1600", "--enable-logging=stderr", *arguments]
        try:
            result = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=timeout_s, stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired as error:
            raise BrowserError(f"{browser} did not end within {timeout_s:.0f} s") from error
    if result.returncode != 0:
        raise BrowserError(f"{browser} ended with code {result.returncode}:\n{result.stderr[-2000:]}")
    return result


def inspect(path: str | os.PathLike[str], *, browser: str | None = None, timeout_s: float = 60.0) -> PageState:
    """Opens the file and reports its charts and errors, as the browser itself and the page's own scripts saw them."""
    path = pathlib.Path(path)
    if not path.is_file():
        raise ValueError(f"path: expected a report file, got {str(path)!r}")
    address = path.resolve().as_uri()
    result = _run([f"--virtual-time-budget={_SCRIPT_TIME_MS}", "--dump-dom", address], browser, timeout_s)
    document = _DocumentReader()
    document.feed(result.stdout)
    console = [line for line in result.stderr.splitlines() if "CONSOLE" in line and "Uncaught" in line]
    if document.errors is None:
        raise BrowserError(f"{path} is not a report: it keeps no list of its script errors")
    charts = [ChartState(name, num_marks) for name, num_marks in document.num_marks.items()]
    pictures = [PictureState(name, width) for name, width in document.picture_widths.items()]
    return PageState(charts=charts, errors=document.errors + console, pictures=pictures)
