import plotly.graph_objects as go
from quincunx.report import COLORS, styled


def test_styled_changes_the_figure_in_place():
    figure = go.Figure()
    assert styled(figure, height=300, x_title="step", y_title="loss") is figure
    assert figure.layout.height == 300
    assert figure.layout.colorway == COLORS
    assert figure.layout.xaxis.title.text == "step"
    assert figure.layout.yaxis.title.text == "loss"


def test_styled_keeps_titles_where_none_are_given():
    figure = go.Figure()
    figure.update_xaxes(title_text="mine")
    assert styled(figure).layout.xaxis.title.text == "mine"


def test_colors_are_distinct():
    assert len(set(COLORS)) == len(COLORS)
