"""The figures of paper D, of scaled skips and of weights mixed with noise: those in FIGURES are `ss.plot.NAME`.

That of a population is in population/figures.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
import xarray

from skipscope.papers.d.population.figures import population
from skipscope.report.charts import GREY_LINE, Series, axis, chart, thin_lines, titled_first
from skipscope.report.figures.spectra import known_units, middle_units
from skipscope.report.style import COLOURS, names_of, thinned

MIXTURES = {"convex": "convex: t θ + (1 - t) η", "norm": "norm: √t θ + √(1 - t) η"}
AMOUNTS_WITH_HISTOGRAM = (0.0, 0.25, 0.5, 0.75, 1.0)  # whose histograms are drawn


def plateau(dataset: xarray.Dataset, units: Sequence[str] | None = None) -> Any:
    """Scree plots, one panel per unit, one curve per alpha (and sample), a grey line at each |alpha|.

    dataset: `value` with dimensions alpha, unit, sample, index; NaN after the last value.
    """
    units = middle_units(dataset) if units is None else known_units(dataset, units)
    alphas = [float(alpha) for alpha in dataset["alpha"].values]
    series = []
    for panel, unit in enumerate(units):
        for place, alpha in enumerate(alphas):
            scree = dataset["value"].isel(alpha=place).sel(unit=unit)
            for sample in range(dataset.sizes["sample"]):
                values = scree.isel(sample=sample).dropna("index").values
                if not values.size:
                    continue
                shown = thinned(len(values))
                x, name = [(k + 1) / len(values) for k in shown], f"alpha = {alpha:g}"
                heading, hover = f"{name}, sample {sample}", "share %{x:.3f}, value %{y:.6g}"
                width, more = 2 if sample == 0 else 1, {"meta": {"series": heading}}
                line = Series(name, x, values[shown], hover, heading, panel, place, "lines", width=width, more=more)
                series.append(line)
    grid = {"showgrid": False, "rangemode": "tozero"}  # the only lines across are those at |alpha|
    figure = chart(
        series,
        panels=list(units),
        x=axis("rank / size", range=[0, 1]),
        y=titled_first("singular value", len(units), **grid),
        height=460,
        shared_yaxes=True,
        horizontal_spacing=0.03,
    )
    for panel in range(len(units)):
        for level in sorted({abs(alpha) for alpha in alphas}):
            figure.add_hline(y=level, line=GREY_LINE, layer="below", row=1, col=panel + 1)
    return figure


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
    unit = names_of(dataset, "unit")[0] if unit is None else unit
    mixtures, shown = names_of(dataset, "mixture"), shown_mixtures(dataset)
    titles = [f"t = {float(dataset['t'].values[place]):g}" for place in shown]
    series = []
    for row, mixture in enumerate(mixtures):
        for column, place in enumerate(shown):
            counts = dataset["histogram"].sel(unit=unit, mixture=mixture).isel(t=place)
            marker = {"color": COLOURS[row % len(COLOURS)], "line": {"width": 0}}
            panel, more = row * len(shown) + column, {"marker": marker, "meta": {"panel": titles[column]}}
            hover = "value %{x:.3g}: %{y:.4g}"
            series.append(Series(mixture, dataset["bin"], counts, hover, "{name}", panel, row, "bars", more=more))
    return chart(
        series,
        panels=[""] * len(mixtures) * len(shown),
        columns=len(shown),
        x=[{}] * (len(mixtures) - 1) * len(shown) + [axis("value")] * len(shown),
        y=titled_first("singular values", len(shown)) * len(mixtures),
        height=200 * len(mixtures) + 150,
        column_titles=titles,
        shared_xaxes=True,
        shared_yaxes="all",
        horizontal_spacing=0.02,
        vertical_spacing=0.08,
    ).update_layout(bargap=0)


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


FIGURES = {figure.__name__: figure for figure in (mixture_histograms, mixtures, plateau, population)}
