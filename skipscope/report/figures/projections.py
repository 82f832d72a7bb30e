"""Directions of perturbations: their components along the right singular vectors of units."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy

from skipscope.report.style import COLOURS, POINTS_IN_CURVE, look, marked, names_of, styled

if TYPE_CHECKING:
    import xarray

BINS = 30  # of the indices of singular vectors, evenly spaced in their logarithm
ALWAYS_SHOWN = 10  # leading singular vectors that thinning never leaves out


def projections(dataset: xarray.Dataset) -> Any:
    """|alpha_i| against i; one panel per projected unit, one colour per kind, singular values on a second axis.

    Points: single samples, thinned evenly in the logarithm of i. Thick lines: root of the mean square over the samples
    and over bins of i.
    """
    from plotly.subplots import make_subplots

    units, kinds = names_of(dataset, "project"), names_of(dataset, "kind")
    columns = min(2, len(units))
    rows = -(-len(units) // columns)
    figure = make_subplots(
        rows,
        columns,
        subplot_titles=[marked(dataset, unit, "project") for unit in units],
        specs=[[{"secondary_y": True}] * columns] * rows,
        vertical_spacing=0.3 / rows,
        horizontal_spacing=0.14,
    )
    for panel, unit in enumerate(units):
        here = {"row": panel // columns + 1, "col": panel % columns + 1}
        alpha = numpy.abs(dataset["projection"].sel(project=unit).transpose("kind", "sample", "index").values)
        sigma = dataset["singular_value"].sel(project=unit).median("sample").values
        length = int(numpy.isfinite(alpha).any((0, 1)).sum())
        if length == 0:
            continue
        lows = []
        for place, kind in enumerate(kinds):
            x, y, samples = _points(alpha[place, :, :length])
            figure.add_scatter(
                x=x,
                y=y,
                text=[f"image {dataset['sample'].values[sample]}" for sample in samples],
                mode="markers",
                showlegend=False,
                opacity=0.35,
                meta={"panel": unit, "series": f"{kind}, single images"},
                **look(kind, place, size=4),
                hovertemplate=f"{kind}, %{{text}}<br>i = %{{x}}, |alpha| = %{{y:.3g}}<extra></extra>",
                **here,
            )
            centres, sizes = binned(alpha[place, :, :length])
            lows += [size for size in sizes if size > 0]
            figure.add_scatter(
                x=centres,
                y=sizes,
                mode="lines",
                showlegend=panel == 0,
                meta={"panel": unit, "series": f"{kind}, root mean square"},
                **look(kind, place, width=3),
                hovertemplate=f"{kind}, root mean square<br>i about %{{x:.0f}}: %{{y:.3g}}<extra></extra>",
                **here,
            )
        shown = _spread(length, POINTS_IN_CURVE)
        figure.add_scatter(
            x=shown + 1,
            y=sigma[shown],
            mode="lines",
            meta={"panel": unit, "series": "singular value"},
            name="singular value (right axis)",
            legendgroup="singular value",
            showlegend=panel == 0,
            line={"color": COLOURS[-1], "width": 1.5, "dash": "dot"},
            hovertemplate="singular value %{x}: %{y:.4g}<extra></extra>",
            secondary_y=True,
            **here,
        )
        lowest = numpy.log10(min(lows, default=1e-3)) - 0.7
        figure.update_yaxes(range=[lowest, 0.1], secondary_y=False, **here)
        figure.update_xaxes(range=[-0.05, max(0.1, 1.02 * numpy.log10(length))], **here)
    for row in range(1, rows + 1):
        figure.update_yaxes(title_text="|alpha|", secondary_y=False, row=row, col=1)
        last = min(columns, len(units) - (row - 1) * columns)
        figure.update_yaxes(title_text="singular value", secondary_y=True, row=row, col=last)
    figure.update_xaxes(type="log", dtick=1, title_text="i")
    figure.update_yaxes(type="log", dtick=1, exponentformat="power", secondary_y=False)
    figure.update_yaxes(rangemode="tozero", showgrid=False, tickmode="auto", nticks=6, secondary_y=True)
    styled(figure, height=330 * rows + 80)
    return figure.update_layout(margin={"r": 60})


def binned(alpha: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
    """alpha: (samples, indices). Centres of the bins of i = 1, 2, ... and the root of the mean square in each."""
    length = alpha.shape[1]
    edges = numpy.unique(numpy.round(numpy.geomspace(1, length + 1, BINS + 1)).astype(int))
    pairs = list(pairwise(edges))
    centres = numpy.array([numpy.sqrt(first * (end - 1)) for first, end in pairs])
    return centres, numpy.array([_root_mean_square(alpha[:, a - 1 : b - 1]) for a, b in pairs])


def _root_mean_square(values: numpy.ndarray) -> float:
    there = values[numpy.isfinite(values)]
    return float(numpy.sqrt(numpy.mean(there**2))) if there.size else float("nan")


def _points(alpha: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray]:
    """i, |alpha_i| and the place of the sample, about POINTS_IN_CURVE of them."""
    indices = _spread(alpha.shape[1], max(2 * ALWAYS_SHOWN, POINTS_IN_CURVE // len(alpha)))
    samples = numpy.repeat(numpy.arange(len(alpha)), len(indices))
    return numpy.tile(indices + 1, len(alpha)), alpha[:, indices].ravel(), samples


def _spread(length: int, count: int) -> numpy.ndarray:
    """Indices from 0, evenly spaced in the logarithm of i, after the leading ones, which are all there."""
    if length <= count:
        return numpy.arange(length)
    leading = numpy.arange(1, min(length, ALWAYS_SHOWN) + 1)
    spaced = numpy.round(numpy.geomspace(1, length, count)).astype(int)
    return numpy.union1d(leading, spaced) - 1
