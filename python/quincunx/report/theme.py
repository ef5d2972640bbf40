"""One look for all charts."""

import plotly.graph_objects as go

# Told apart with the common forms of colour blindness, in this order.
COLORS = ("#3b5bdb", "#e8590c", "#0ca678", "#ae3ec9", "#f59f00", "#1098ad", "#868e96")
INK = "#212529"
GRID = "#e9ecef"
AXIS_LINE = "#adb5bd"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"


def styled(figure: go.Figure, *, height: int = 420, x_title: str = "", y_title: str = "") -> go.Figure:
    """Applies the look in place and returns the figure. `height` is in pixels; the width follows the page."""
    axis = {"gridcolor": GRID, "linecolor": AXIS_LINE, "zeroline": False, "ticks": "outside", "tickcolor": AXIS_LINE}
    figure.update_layout(
        template="none",
        colorway=COLORS,
        height=height,
        autosize=True,
        font={"family": FONT, "size": 13, "color": INK},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        margin={"l": 64, "r": 24, "t": 24, "b": 52},
        legend={"orientation": "h", "x": 0, "y": 1.02, "xanchor": "left", "yanchor": "bottom"},
        hoverlabel={"font": {"family": FONT, "size": 12}},
    )
    figure.update_xaxes(**axis)
    figure.update_yaxes(**axis)
    if x_title:
        figure.update_xaxes(title_text=x_title)
    if y_title:
        figure.update_yaxes(title_text=y_title)
    return figure
