"""Singular values of units whose weights are mixed with noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy

from skipscope.report.charts import Series, axis, chart, thin_lines, titled_first
from skipscope.report.style import COLOURS, names_of, styled, thinned

if TYPE_CHECKING:
    import xarray

MIXTURES = {"convex": "convex: t θ + (1 - t) η", "norm": "norm: √t θ + √(1 - t) η"}
AMOUNTS_WITH_HISTOGRAM = (0.0, 0.25, 0.5, 0.75, 1.0)  # whose histograms are drawn


def mixtures(dataset: xarray.Dataset) -> Any:
    """Share of singular values near 1 against t; one panel per mixture, one thin line per unit, their mean thick.

    dataset: `share_near_one` with dimensions mixture, t, unit, draw, sample.
    """
    shares, units = mean_shares(dataset), names_of(dataset, "unit")
    mixtures = names_of(dataset, "mixture")
    hover = "t = %{x:.3g}: %{y:.4f}"
    series: list[Series] = []
    for panel, mixture in enumerate(mixtures):
        here = shares.sel(mixture=mixture).transpose("unit", "t")
        rows = dict(zip(units, here.values, strict=True))
        series += thin_lines("one unit", dataset["t"], rows, hover, panel=panel, legendgroup="units", opacity=0.7)
        mean = here.mean("unit")
        series.append(Series("mean over the units", dataset["t"], mean, hover, "mean", panel, 0, size=8, width=3.5))
    return chart(
        series,
        panels=[MIXTURES.get(mixture, mixture) for mixture in mixtures],
        x=axis("t: share of the trained weights"),
        y=titled_first("share in [0.99, 1.01]", len(mixtures), rangemode="tozero"),
        height=400,
        shared_yaxes=True,
        horizontal_spacing=0.04,
    )


def mixture_histograms(dataset: xarray.Dataset, unit: str | None = None) -> Any:
    """Histograms of singular values of one unit (the first, if none is named); one row per mixture, one column per t.

    dataset: `histogram` with dimensions mixture, t, unit, bin; `bin` is the centre.
    """
    from plotly.subplots import make_subplots

    unit = names_of(dataset, "unit")[0] if unit is None else unit
    mixtures = names_of(dataset, "mixture")
    shown = shown_mixtures(dataset)
    counts = dataset["histogram"].sel(unit=unit)
    figure = make_subplots(
        len(mixtures),
        len(shown),
        column_titles=[f"t = {float(dataset['t'].values[place]):g}" for place in shown],
        shared_xaxes=True,
        shared_yaxes="all",
        horizontal_spacing=0.02,
        vertical_spacing=0.08,
    )
    for row, mixture in enumerate(mixtures):
        for column, place in enumerate(shown):
            figure.add_bar(
                x=dataset["bin"].values,
                y=counts.sel(mixture=mixture).isel(t=place).values,
                meta={"panel": f"t = {float(dataset['t'].values[place]):g}"},
                name=mixture,
                legendgroup=mixture,
                showlegend=column == 0,
                marker={"color": COLOURS[row % len(COLOURS)], "line": {"width": 0}},
                hovertemplate=f"{mixture}<br>value %{{x:.3g}}: %{{y:.4g}}<extra></extra>",
                row=row + 1,
                col=column + 1,
            )
        figure.update_yaxes(title_text="singular values", row=row + 1, col=1)
    figure.update_xaxes(title_text="value", row=len(mixtures))
    figure.update_layout(bargap=0)
    return styled(figure, height=200 * len(mixtures) + 150)


def shown_mixtures(dataset: xarray.Dataset) -> list[int]:
    """Places of t = 0, 1/4, 1/2, 3/4, 1; where none of them was measured, as many places evenly spaced."""
    amounts = [float(t) for t in dataset["t"].values]
    found = [
        place
        for place, t in enumerate(amounts)
        if any(numpy.isclose(t, wanted, atol=1e-6) for wanted in AMOUNTS_WITH_HISTOGRAM)
    ]
    return found or thinned(len(amounts), len(AMOUNTS_WITH_HISTOGRAM))


def mean_shares(dataset: xarray.Dataset) -> xarray.DataArray:
    """(mixture, t, unit): over draws and samples."""
    shares = dataset["share_near_one"]
    return shares.mean([dimension for dimension in ("draw", "sample") if dimension in shares.dims])
