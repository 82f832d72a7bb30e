"""All singular values of units and stages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from skipscope.report.figures import depth, proportions, scree
from skipscope.report.figures.spectra import units_of
from skipscope.report.style import SHOWN_POINTS, UNSURE, converged, marked, names_of, thinned
from skipscope.report.table import Table, number
from skipscope.report.views.view import (
    Curve,
    Picture,
    UnitCurves,
    UnitNumbers,
    View,
    counted,
    made_by,
    spoken_of,
    titles,
)

if TYPE_CHECKING:
    import xarray

ABOUT = (
    "Means over {samples} of the largest singular value, the mean, the shares of values above 1.01, in [0.99, 1.01], "
    "in (0, 0.99) and zero, and counts of exact zeros and ones beside those that are proved. The error is the largest "
    "bound of any value and sample."
)
COLUMNS = {
    "largest": "largest",
    "mean": "mean",
    "share_above": ">1.01",
    "share_near_one": "[.99,1.01]",
    "share_below": "(0,.99)",
    "share_zero": "zero",
    "zeros": "zeros",
    "zeros_at_least": "zeros proved",
    "ones": "ones",
    "ones_at_least": "ones proved",
}
MAPPED = {
    "largest": "largest singular value",
    "share_above": "share of singular values above 1.01",
    "share_near_one": "share of singular values in [0.99, 1.01]",
    "share_zero": "share of singular values 0",
    "mean": "mean singular value",
}
NO_ZEROS = "A logarithmic axis has no place for zeros."
SHOWN_OF_A_UNIT = 200  # values of a curve in the map of the trunk


def spectra_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    tables, figures, numbers, curves = [], {}, [], []
    screes, shares = titles("Singular values", datasets), titles("Shares of singular values", datasets)
    for name, title in titles("Spectra", datasets).items():
        dataset = datasets[name]
        tables.append(_table(title, dataset))
        figures[f"{name}-scree"] = Picture(
            f"{screes[name]} in descending order, one curve a sample; the grey line is 1. Long curves are drawn "
            f"through {SHOWN_POINTS} of their values.{_stars(dataset)}",
            scree(dataset),
            made_by(dataset),
        )
        figures[f"{name}-proportions"] = Picture(
            f"{shares[name]}; means over the samples.{_stars(dataset)}",
            proportions(dataset),
            made_by(dataset),
        )
        figures[f"{name}-depth"] = Picture(
            f"{screes[name].replace('Singular', 'The ten largest singular')} against depth; medians over the samples. "
            "Open markers did not converge.",
            depth(dataset),
        )
        numbers += _numbers(dataset)
        curves.append(_curves(dataset))
    return View(tables, figures, [_sentence(*one) for one in spoken_of(datasets)], numbers, curves)


def _stars(dataset: xarray.Dataset) -> str:
    return "" if bool(dataset["converged"].all()) else " * marks spectra whose bounds are above the accuracy asked for."


def _numbers(dataset: xarray.Dataset) -> list[UnitNumbers]:
    units = units_of(dataset)
    means = units[list(MAPPED)].mean("sample", skipna=False)
    names = names_of(units, "unit")
    unsure = frozenset(name for name in names if not converged(units, name))
    return [
        UnitNumbers(
            str(dataset.attrs.get("network", "")),
            title,
            dict(zip(names, map(float, means[key].values), strict=True)),
            unsure=unsure,
        )
        for key, title in MAPPED.items()
    ]


def _curves(dataset: xarray.Dataset) -> UnitCurves:
    found: dict[str, list[Curve]] = {}
    for name in names_of(units_of(dataset), "unit"):
        found[name] = []
        for sample in range(dataset.sizes["sample"]):
            values = dataset["value"].sel(unit=name).isel(sample=sample).dropna("index").values
            shown = thinned(len(values), SHOWN_OF_A_UNIT)
            sure = bool(dataset["converged"].sel(unit=name).isel(sample=sample))
            label = f"sample {sample}" if sure else f"sample {sample}{UNSURE}"
            found[name].append(Curve(label, [k + 1 for k in shown], values[shown]))
    network = str(dataset.attrs.get("network", ""))
    about = f"Curves with more than {SHOWN_OF_A_UNIT} values are drawn through {SHOWN_OF_A_UNIT} of them. {NO_ZEROS}"
    return UnitCurves(network, "Singular values", "rank", "singular value", found, about=about)


def _sentence(words: str, dataset: xarray.Dataset) -> str:
    units = units_of(dataset)
    means = units[list(MAPPED)].mean("sample", skipna=False)
    largest = means["largest"]
    where = str(units["unit"].values[int(largest.values.argmax())])
    unsure = [name for name in names_of(dataset, "unit") if not converged(dataset, name)]
    text = (
        f"{words}of all singular values of {counted(units.sizes['unit'], 'unit')}, at "
        f"{counted(dataset.sizes['sample'], 'sample')}, on average {float(means['share_near_one'].mean()):.0%} "
        "lie within 1 % of 1, "
        f"{float(means['share_above'].mean()):.0%} above and {float(means['share_zero'].mean()):.0%} are zero; the "
        f"largest of them is {number(float(largest.max()))}, in {where}."
    )
    return text + (f" Not converged: {', '.join(unsure)}." if unsure else "")


def _table(title: str, dataset: xarray.Dataset) -> Table:
    means = dataset[list(COLUMNS)].mean("sample", skipna=False)  # a count that is not known in a sample is not known
    rows = []
    for unit in names_of(dataset, "unit"):
        here, own = means.sel(unit=unit), dataset.sel(unit=unit)
        rows.append(
            [
                marked(dataset, unit),
                f"{int(own['exits'])} x {int(own['entries'])}",
                *(number(float(here[key])) for key in COLUMNS),
                number(float(own["bound"].max())),
            ]
        )
    about = ABOUT.format(samples=counted(dataset.sizes["sample"], "sample")) + _stars(dataset)
    return Table(title, ["unit", "size", *COLUMNS.values(), "error at most"], rows, about, names=2)
