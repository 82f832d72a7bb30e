"""Spectra of Hessians."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy

from skipscope.report.style import COLOURS, look, styled, thinned

if TYPE_CHECKING:
    import xarray

BINS = 80
SIGNS = {"positive": 1, "negative": -1}


def hessian(dataset: xarray.Dataset) -> Any:
    """Eigenvalues of a Hessian: their sizes by rank, one marker per sign, open where not converged; and how they are
    distributed, as a histogram of all of them or as the estimated density.

    dataset: of `ss.curvature`.
    """
    from plotly.subplots import make_subplots

    figure = make_subplots(1, 2, subplot_titles=["sizes of eigenvalues", "distribution"], horizontal_spacing=0.1)
    values, ranks = dataset["value"].values, dataset["eigenvalue"].values
    sure = dataset["converged"].values.astype(bool) if "converged" in dataset else numpy.ones(len(values), bool)
    for place, (name, sign) in enumerate(SIGNS.items()):
        chosen = numpy.flatnonzero(sign * values > 0)
        chosen = chosen[thinned(len(chosen))]
        style = look(name, place, size=5)
        symbol = style["marker"]["symbol"]
        figure.add_scatter(
            x=ranks[chosen],
            y=numpy.abs(values[chosen]),
            mode="markers",
            name=name,
            marker={**style["marker"], "symbol": [symbol if sure[k] else f"{symbol}-open" for k in chosen]},
            hovertemplate=f"{name} eigenvalue %{{x}}: size %{{y:.6g}}<extra></extra>",
            row=1,
            col=1,
        )
    if "density" in dataset:
        figure.add_scatter(
            x=dataset["grid"].values,
            y=dataset["density"].values,
            mode="lines",
            name="density",
            line={"color": COLOURS[2], "width": 2},
            showlegend=False,
            hovertemplate="%{x:.4g}: density %{y:.4g}<extra></extra>",
            row=1,
            col=2,
        )
    else:
        counts, edges = numpy.histogram(values[numpy.isfinite(values)], bins=BINS)
        figure.add_bar(
            x=(edges[1:] + edges[:-1]) / 2,
            y=counts,
            name="eigenvalues",
            marker={"color": COLOURS[2], "line": {"width": 0}},
            showlegend=False,
            hovertemplate="%{x:.4g}: %{y} eigenvalues<extra></extra>",
            row=1,
            col=2,
        )
        figure.update_layout(bargap=0)
    figure.update_xaxes(title_text="rank", row=1, col=1)
    figure.update_yaxes(title_text="|eigenvalue|", type="log", exponentformat="power", row=1, col=1)
    figure.update_xaxes(title_text="eigenvalue", row=1, col=2)
    figure.update_yaxes(title_text="density" if "density" in dataset else "eigenvalues", type="log", row=1, col=2)
    return styled(figure, height=420)
