"""report: one self-contained HTML file with charts, tables and text, and a check that it draws in a browser.

    from quincunx.report import Report
    report = Report(title="Training", summary="What was trained and how it went.")
    report.add_chart(figure, name="loss", title="Loss", caption="Nats a token against the step.")
    report.write("report.html")

Figures are plotly's. The file opens from disk without a network: it forbids the browser to load anything else.
"""

from quincunx.report.browser import BrowserError, ChartState, PageState, PictureState, find_browser, inspect
from quincunx.report.document import Report
from quincunx.report.pictures import Picture, png
from quincunx.report.theme import COLORS, styled

__all__ = [
    "COLORS",
    "BrowserError",
    "ChartState",
    "PageState",
    "Picture",
    "PictureState",
    "Report",
    "find_browser",
    "inspect",
    "png",
    "styled",
]
