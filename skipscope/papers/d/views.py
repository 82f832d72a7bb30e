"""What a report shows of the datasets of paper D, by measure.

Units whose skip is multiplied by alpha: the plateau moves to |alpha|, the other singular values do not follow. Units
whose weights are mixed with noise: how many singular values stay near 1. What is shown of a population is in
population/views.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import xarray

from skipscope.papers.d.figures import mean_shares, mixture_histograms, mixtures, plateau
from skipscope.papers.d.population.views import VIEWS as VIEWS_OF_POPULATION
from skipscope.report.table import Cell, Columns, EachOf, Table, count_of, table_of
from skipscope.report.views import ViewOfMeasure
from skipscope.report.views.view import Picture, View, counted, made_by, titles

PLATEAU = (
    "{title}: singular values in descending order, with the skip multiplied by alpha; one curve per alpha{samples}, "
    "grey lines at each |alpha|. The paper (Rothauge et al., figure 5 left) shows a plateau at |alpha|, while the "
    "other singular values are not scaled: a curve is flat where it lies on its own grey line, and elsewhere the "
    "curves differ by less than their alphas. Long curves are drawn through 500 of their values."
)
ABOUT_SCALING = (
    "A unit has n outputs, z of them inactive, and r active inner ReLUs. Proved: at least n - z - 2 r singular values "
    "are |alpha|. Counted: by a decomposition that knows nothing of the law. Correlation: of the other singular values "
    "with alpha times those at alpha = 1. Means over {samples}. Of {generic} with 2 r < n - z, counted equals proved "
    "in {equal}."
)
COUNTS = {"size": "n", "inactive": "z", "inner_active": "r", "proved": "proved", "counted": "counted"}
MIXTURES = (
    "{title}: share of singular values in [0.99, 1.01], from noise η alone (t = 0) to the trained weights θ (t = 1), "
    "means over {averaged}; one grey line per unit, their mean thick. The paper (Rothauge et al., figure 5 right) "
    "shows most values near 1 at t = 0.5 of the convex mixture. With noise of the weights' norm, that mixture also "
    "shrinks the weights, by √2 at t = 0.5, which alone can bring values closer to 1; the other mixture keeps their "
    "norm. A peak that only the convex mixture has is one that the smaller norm can account for."
)
HISTOGRAMS = (
    "{title}: how many singular values of {unit} are where, means over {averaged}; one row per mixture, one column per "
    "t. The paper (figure 5 right) shows no plateau at 1 for noise (t = 0), the largest at t = 0.5, and a smaller one "
    "for the trained weights (t = 1)."
)
ABOUT_NOISE = (
    "Share of singular values in [0.99, 1.01], means over {averaged}, and the t where it is largest. Convex: "
    "t θ + (1 - t) η; norm: √t θ + √(1 - t) η, which keeps the norm of the weights."
)


def scaling_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    tables, figures = [], {}
    for name, title in titles("Spectra with a scaled skip", datasets).items():
        data = datasets[name]
        tables.append(_scaling_table(title, data))
        samples = " and sample" if data.sizes["sample"] > 1 else ""
        caption = PLATEAU.format(title=title, samples=samples)
        figures[f"{name}-plateau"] = Picture(caption, plateau(data), made_by(data))
    return View(tables, figures)


def _scaling_table(title: str, data: xarray.Dataset) -> Table:
    means = data[[*COUNTS, "correlation"]].mean("sample")
    columns: dict[str, Cell] = {title: count_of(key) for key, title in COUNTS.items()}
    columns["correlation"] = "correlation"
    generic = data["generic"] == 1
    equal = generic & (data["counted"] == data["proved"])
    about = ABOUT_SCALING.format(
        samples=counted(data.sizes["sample"], "sample"),
        generic=counted(int(generic.sum()), "spectrum", "spectra"),
        equal=int(equal.sum()),
    )
    return table_of(means, title, columns, about, rows={"unit": "unit", "alpha": "alpha"})


def noise_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    tables, figures = [], {}
    histogram_titles = titles("Singular values of weights mixed with noise", datasets)
    for name, title in titles("Weights mixed with noise", datasets).items():
        data = datasets[name]
        averaged, study = _averaged(data), made_by(data)
        tables.append(_noise_table(title, data, averaged))
        figures[f"{name}-mixtures"] = Picture(MIXTURES.format(title=title, averaged=averaged), mixtures(data), study)
        if "histogram" in data:
            unit = str(data["unit"].values[0])
            caption = HISTOGRAMS.format(title=histogram_titles[name], unit=unit, averaged=averaged)
            figures[f"{name}-histograms"] = Picture(caption, mixture_histograms(data, unit), study)
    return View(tables, figures)


def _noise_table(title: str, data: xarray.Dataset, averaged: str) -> Table:
    shares = mean_shares(data).to_dataset(name="share")
    columns: Columns = {"t = {0:g}": EachOf("t", "share"), "largest at t": _largest}
    about, rows = ABOUT_NOISE.format(averaged=averaged), {"unit": "unit", "mixture": "mixture"}
    return table_of(shares, title, columns, about, rows=rows, names=2)


def _largest(here: xarray.Dataset) -> str:
    amount = float(here["share"].idxmax("t"))  # of equal ones the first
    return "-" if math.isnan(amount) else f"{amount:g}"


def _averaged(data: xarray.Dataset) -> str:
    draws, samples = data.sizes.get("draw", 1), data.sizes.get("sample", 1)
    return f"{counted(draws, 'draw')} of noise and {counted(samples, 'sample')}"


VIEWS = {
    "scaling": ViewOfMeasure("Scaled skips", scaling_view),
    "noise": ViewOfMeasure("Weights mixed with noise", noise_view),
    **VIEWS_OF_POPULATION,
}
