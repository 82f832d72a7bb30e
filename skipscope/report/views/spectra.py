"""All singular values of units and stages, and the largest ones of units that are too large for all."""

from __future__ import annotations

from collections.abc import Mapping

import xarray

from skipscope.report.figures import depth, proportions, scree, together
from skipscope.report.figures.spectra import units_of
from skipscope.report.style import NOT_CONVERGED_MARK, POINTS_IN_CURVE, converged, names_of, thinned
from skipscope.report.table import Cell, Table, number, table_of
from skipscope.report.views.view import (
    Curve,
    Picture,
    UnitCurves,
    UnitNumbers,
    View,
    alike,
    counted,
    described,
    made_by,
    named,
    not_converged,
    samples_of,
    titles,
    unit_numbers,
    with_marks,
)

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
TOGETHER = (
    "{networks} on one scale. Above, the share of directions that are lost: singular values that are 0, so that a "
    "small change of the entry along them changes nothing at the exit. Below, the largest singular value: how much the "
    "most amplified direction grows; on the dotted line at 1 it keeps its size. At the left single units, at the right "
    "whole stages. Means over {samples}; bars are standard deviations over the samples."
)
NO_ZEROS = "A logarithmic axis has no place for zeros."
DEPTH_BARS = "bars of the largest reach from the lower to the upper quartile. Open markers did not converge."
POINTS_IN_MAP = 200  # values of a curve in the map of the trunk
LEADING_COLUMNS = 5  # singular values in the table
ABOUT_LEADING = (
    "The largest singular values, by block Golub-Kahan iteration; means over the samples. A residual is "
    "|A v - s u| and |A' u - s v| together; * marks units where not all of them converged."
)
LEADING_MAPPED = {
    "share_above": "share of singular values above 1.01 (estimated)",
    "share_near_one": "share of singular values in [0.99, 1.01] (estimated)",
}


def spectra_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    tables, figures, numbers, curves = [], _together(datasets), [], []
    screes, shares = titles("Singular values", datasets), titles("Shares of singular values", datasets)
    for name, title in titles("Spectra", datasets).items():
        dataset = datasets[name]
        tables.append(_table(title, dataset))
        figures[f"{name}-scree"] = Picture(
            f"{screes[name]} in descending order, one curve per sample; the grey line is 1. Long curves are drawn "
            f"through {POINTS_IN_CURVE} of their values.{_stars(dataset)}",
            scree(dataset),
            made_by(dataset),
        )
        figures[f"{name}-proportions"] = Picture(
            f"{shares[name]}; means over the samples, bars are standard deviations.{_stars(dataset)}",
            proportions(dataset),
            made_by(dataset),
        )
        figures[f"{name}-depth"] = Picture(
            f"{screes[name].replace('Singular', 'The ten largest singular')} against depth; medians over the samples, "
            f"{DEPTH_BARS}",
            depth(dataset),
        )
        numbers += _numbers(dataset)
        curves.append(_curves(dataset))
    return View(tables, figures, described(datasets, _sentence, "Singular values"), numbers, curves)


def _together(datasets: Mapping[str, xarray.Dataset]) -> dict[str, Picture]:
    """One per group of networks whose units have the same names."""
    return {
        f"{next(iter(group))}-together": Picture(
            TOGETHER.format(networks=" and ".join(named(group)), samples=samples_of(next(iter(group.values())))),
            together(named(group)),
            made_by(next(iter(group.values()))),
        )
        for group in alike(datasets, "unit")
        if len(group) > 1
    }


def _stars(dataset: xarray.Dataset) -> str:
    return "" if bool(dataset["converged"].all()) else " * marks spectra whose bounds are above the accuracy asked for."


def _numbers(dataset: xarray.Dataset) -> list[UnitNumbers]:
    units = units_of(dataset)
    means = units[list(MAPPED)].mean("sample", skipna=False)
    return _gains_and_shares(units, {title: means[key] for key, title in MAPPED.items()})


def _gains_and_shares(data: xarray.Dataset, columns: Mapping[str, xarray.DataArray]) -> list[UnitNumbers]:
    gains = {title: values for title, values in columns.items() if not title.startswith("share")}
    shares = {title: values for title, values in columns.items() if title not in gains}
    return [*unit_numbers(data, gains, scale="gain"), *unit_numbers(data, shares, scale="share")]


def _curves(dataset: xarray.Dataset) -> UnitCurves:
    found: dict[str, list[Curve]] = {}
    for name in names_of(units_of(dataset), "unit"):
        found[name] = []
        for sample in range(dataset.sizes["sample"]):
            values = dataset["value"].sel(unit=name).isel(sample=sample).dropna("index").values
            shown = thinned(len(values), POINTS_IN_MAP)
            sure = bool(dataset["converged"].sel(unit=name).isel(sample=sample))
            label = f"sample {sample}" if sure else f"sample {sample}{NOT_CONVERGED_MARK}"
            found[name].append(Curve(label, [k + 1 for k in shown], values[shown]))
    network = str(dataset.attrs.get("network", ""))
    about = f"Curves with more than {POINTS_IN_MAP} values are drawn through {POINTS_IN_MAP} of them. {NO_ZEROS}"
    return UnitCurves(network, "Singular values", "rank", "singular value", found, about=about)


def _sentence(words: str, dataset: xarray.Dataset) -> str:
    units = units_of(dataset)
    means = units[list(MAPPED)].mean("sample", skipna=False)
    largest = means["largest"]
    where = str(units["unit"].values[int(largest.values.argmax())])
    text = (
        f"{words}of all singular values of {counted(units.sizes['unit'], 'unit')}, at "
        f"{samples_of(dataset)}, on average {float(means['share_near_one'].mean()):.0%} "
        "lie within 1 % of 1, "
        f"{float(means['share_above'].mean()):.0%} above and {float(means['share_zero'].mean()):.0%} are zero; the "
        f"largest of them is {number(float(largest.max()))}, in {where}."
    )
    return text + not_converged(dataset)


def _table(title: str, dataset: xarray.Dataset) -> Table:
    means = dataset[list(COLUMNS)].mean("sample", skipna=False)  # a count that is not known in a sample is not known
    kept = {key: dataset[key] for key in ("exits", "entries", "bound", "converged")}
    columns: dict[str, Cell] = {
        "size": lambda here: f"{int(here['exits'])} x {int(here['entries'])}",
        **{short: key for key, short in COLUMNS.items()},
        "error at most": ("bound", "max"),
    }
    about = ABOUT.format(samples=samples_of(dataset)) + _stars(dataset)
    return table_of(with_marks(means.assign(kept)), title, columns, about, rows={"unit": "unit"}, names=2)


# -- units that are too large


def leading_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    tables, figures, numbers, curves = [], {}, [], []
    for name, title in titles("Leading singular values", datasets).items():
        data = datasets[name]
        tables.append(_leading_table(title, data))
        caption = f"{title} against depth; medians over the samples, {DEPTH_BARS}"
        figures[f"{name}-depth"] = Picture(caption, depth(data))
        numbers += _leading_numbers(data)
        curves.append(leading_curves(data, "Leading singular values"))
    return View(tables, figures, described(datasets, _leading_sentence, "Leading singular values"), numbers, curves)


def _leading_table(title: str, data: xarray.Dataset) -> Table:
    means = data["value"].mean("sample")
    leading = {f"s{k + 1}": means.isel(rank=k) for k in range(min(LEADING_COLUMNS, data.sizes["rank"]))}
    columns: dict[str, Cell] = {name: name for name in leading}
    columns["largest residual"] = ("residual", "max")
    return table_of(
        with_marks(data[["residual", "converged"]].assign(leading)),
        title,
        columns,
        ABOUT_LEADING,
        rows={"unit": "unit"},
    )


def _leading_numbers(data: xarray.Dataset) -> list[UnitNumbers]:
    columns = {"largest singular value": data["value"].isel(rank=0)}
    columns |= {title: data[key] for key, title in LEADING_MAPPED.items() if key in data}
    return _gains_and_shares(data, {title: values.mean("sample") for title, values in columns.items()})


def leading_curves(data: xarray.Dataset, title: str) -> UnitCurves:
    """`value` (unit, sample, rank) of every unit."""
    found = {}
    for unit in names_of(data, "unit"):
        rows = data["value"].sel(unit=unit).transpose("sample", "rank").values
        ranks = list(range(1, rows.shape[1] + 1))
        mark = "" if converged(data, unit) else NOT_CONVERGED_MARK
        found[unit] = [
            Curve(f"sample {sample}{mark}", ranks, row) for sample, row in zip(data["sample"].values, rows, strict=True)
        ]
    return UnitCurves(str(data.attrs.get("network", "")), title, "rank", "singular value", found)


def _leading_sentence(words: str, data: xarray.Dataset) -> str:
    largest = data["value"].isel(rank=0).mean("sample")
    where = names_of(data, "unit")[int(largest.values.argmax())]
    text = f"{words}the largest singular value of {counted(data.sizes['unit'], 'unit')} too large for all of them is "
    text += f"{number(float(largest.max()))}, in {where}."
    return text + not_converged(data)
