"""Figures 10 to 37 of the paper: an L x L grid of panels, each scaled to its own largest entry."""

from __future__ import annotations

from typing import Any

import numpy
import xarray

from skipscope.errors import InputError
from skipscope.papers.a.grids import STEPS, WAYS
from skipscope.report.style import GREY, styled

SIZE = 900  # of the picture, which is square: 16 blocks of 30 vectors have 480 places
NO_PANEL = "#d9d9d9"
SCALE = "Cividis"


def papers_grid(dataset: xarray.Dataset, way: str = "ujv") -> Any:
    """All panels |U_j' J_i V_j| ("ujv") or |V_j' J_i U_j| ("vju"); row: whose Jacobian, column: whose vectors.

    dataset: of the study A.alignment. Blocks are numbered from 1 on. Grey: states of different shapes.
    """
    import plotly.graph_objects as go

    if way not in WAYS:
        raise InputError(f"way={way!r}: expected one of {', '.join(WAYS)}")
    panels = dataset[way].transpose("unit", "row", "other", "column").values
    count, size = panels.shape[:2]
    figure = go.Figure()
    figure.add_heatmap(
        z=panels.reshape(count * size, count * size),  # whole steps, one byte each
        colorscale=SCALE,
        zmin=0,
        zmax=STEPS,
        showscale=False,
        hovertemplate=f"%{{z}} of {STEPS}<extra></extra>",
    )
    only = {"hoverinfo": "skip", "showlegend": False, "mode": "lines", "meta": {"drawn": "only"}}
    missing = dataset[f"largest_{way}"].transpose("unit", "other").isnull().values
    if missing.any():
        x, y = _rectangles(missing, size)
        figure.add_scatter(x=x, y=y, fill="toself", fillcolor=NO_PANEL, line={"width": 0}, **only)
    x, y = _rectangles(numpy.ones((count, count), dtype=bool), size)
    figure.add_scatter(x=x, y=y, line={"color": GREY, "width": 0.6}, **only)
    centres, edges = [(place + 0.5) * size - 0.5 for place in range(count)], [-0.5, count * size - 0.5]
    axis = {"tickvals": centres, "ticktext": [str(place + 1) for place in range(count)], "showgrid": False}
    figure.update_xaxes(
        **axis, range=edges, zeroline=False, side="top", title_text="j: whose singular vectors", constrain="domain"
    )
    figure.update_yaxes(
        **axis,
        range=edges[::-1],
        zeroline=False,
        title_text="i: whose Jacobian",
        scaleanchor="x",
        scaleratio=1,
        constrain="domain",
    )
    return styled(figure, height=SIZE).update_layout(margin={"t": 70})


def _rectangles(there: numpy.ndarray, size: int) -> tuple[list[float | None], list[float | None]]:
    """The outlines of panels (unit, other), all as one line with gaps."""
    x: list[float | None] = []
    y: list[float | None] = []
    for row, column in zip(*numpy.nonzero(there), strict=True):
        left, top = column * size - 0.5, row * size - 0.5
        x += [left, left + size, left + size, left, left, None]
        y += [top, top, top + size, top + size, top, None]
    return x, y
