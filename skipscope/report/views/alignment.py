"""Residual alignment: whether the branches' Jacobians share their leading singular vectors."""

from __future__ import annotations

from collections.abc import Mapping

import numpy
import xarray

from skipscope.measure.alignment_summary import DepthFit, alignment_summary, depth_fit
from skipscope.report.figures.alignment import (
    UNITS_IN_GRID,
    VALUES_AGAINST_DEPTH,
    VECTORS_IN_PANEL,
    alignment,
    coupling,
    decay,
    energy,
    shown_units,
)
from skipscope.report.style import NOT_CONVERGED_MARK, names_of
from skipscope.report.table import Cell, Table, count_of, number, table_of, with_error
from skipscope.report.views.spectra import leading_curves
from skipscope.report.views.view import (
    Picture,
    UnitNumbers,
    View,
    counted,
    described,
    made_by,
    not_converged,
    samples_of,
    titles,
    unit_numbers,
    with_marks,
)

PAPER_FIRST = 9  # units that the paper's figures leave out of the line
WAYS = {"ujv": "U'JV", "vju": "V'JU"}
PAIRS = {"all": "all, i ≠ j", "adjacent": "neighbours", "last_half": "last half of the units"}
ABOUT_PAIRS = (
    "m = | |U'JV| - S | / |S| of {k} leading singular vectors: 0 where unit i has the leading singular triplets of "
    "unit j. Means over pairs of units whose states fit and over {samples}; behind ± the standard deviation over "
    "samples. 'Of chance' is relative to the level of random rotations of the same spectra. Signed: without the "
    "absolute value."
)
ABOUT_UNITS = (
    "Means over {samples}: the largest singular value of the {part}, the share of |J|² in the first {classes} values, "
    "s{after}/s1, how many values are above 5 % of the first, the numerical rank, u1·v1, m with the neighbours that "
    "fit, and the vectors that count in m. The residual is the largest of any value and sample."
)
ABOUT_FIT = "Lines through 1 / s1 against depth, s1 the mean over {samples}; a log-log slope of -1 is 1/depth."


def alignment_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    tables, figures, numbers, curves = [], {}, [], []
    pairs, fits = titles("Alignment of pairs of units", datasets), titles("Largest singular value and depth", datasets)
    for name, title in titles("Alignment", datasets).items():
        data, study = datasets[name], made_by(datasets[name])
        tables += [_pair_table(pairs[name], data), _unit_table(title, data), _fit_table(fits[name], data)]
        for way in WAYS:
            if way in data and bool(data[f"coupling_{way}"].notnull().any()):
                figures[f"{name}-{way}"] = Picture(_grid_caption(title, data, way), alignment(data, way), study)
        figures[f"{name}-coupling"] = Picture(
            f"{title}: m of every pair of units, means over {samples_of(data)}; 0 is perfect alignment, the chance "
            f"level is {_chance(data)}. Blank where states differ in shape or a Jacobian is zero.{_stars(data)}",
            coupling(data),
            study,
        )
        figures[f"{name}-decay"] = Picture(_decay_caption(title, data), decay(data), study)
        figures[f"{name}-energy"] = Picture(_energy_caption(title, data), energy(data), study)
        numbers += _numbers(data)
        curves.append(leading_curves(data, f"Leading singular values of the {_part(data)}"))
    return View(tables, figures, described(datasets, _sentence, "Alignment"), numbers, curves)


# -- words


def _part(data: xarray.Dataset) -> str:
    """Whose Jacobians were measured."""
    return "unit" if "part" in data.coords and bool((data["part"] == "unit").all()) else "branch"


def _stars(data: xarray.Dataset) -> str:
    return (
        ""
        if bool(data["converged"].all())
        else f"{NOT_CONVERGED_MARK} marks units whose singular vectors did not all converge."
    )


def _repeated(data: xarray.Dataset) -> str:
    among = data["repeated"].isel(rank=slice(int(data.attrs["k"]))).any(("sample", "rank"))
    names = [name for name, own in zip(names_of(data, "unit"), among.values, strict=True) if own]
    return f" Values so close that their vectors are not unique: in {', '.join(names)}." if names else ""


def _chance(data: xarray.Dataset) -> str:
    return f"about {number(float(data['chance'].mean()))}" if "chance" in data else "not measured"


def _grid_caption(title: str, data: xarray.Dataset, way: str) -> str:
    product = "|U' J V|" if way == "ujv" else "|V' J U|"
    shown, vectors = len(shown_units(data)), min(VECTORS_IN_PANEL, data.sizes["row"])
    some = f" {UNITS_IN_GRID} of {data.sizes['unit']} units, evenly spaced." if shown < data.sizes["unit"] else ""
    few = f" The {vectors} leading ones of {data.sizes['row']}." if vectors < data.sizes["row"] else ""
    return (
        f"{title}: {product} with J of the unit of the row and the {vectors} leading singular vectors of the unit of "
        f"the column, at sample {data['sample'].values[0]}; each panel relative to its largest entry. Aligned "
        f"Jacobians are diagonal in their leading entries. Blank where states differ in shape.{some}{few}{_stars(data)}"
    )


def _decay_caption(title: str, data: xarray.Dataset) -> str:
    fit = depth_fit(data)
    first = "the first unit" if fit.first == 1 else f"the first {fit.first} units"
    line = (
        f"The line leaves out {first}: slope {number(fit.slope)}, "
        f"R² {number(fit.r_squared)} from {counted(fit.units, 'unit')}."
        if numpy.isfinite(fit.slope)
        else f"No line: {counted(fit.units, 'unit')} are too few."
    )
    shown = min(VALUES_AGAINST_DEPTH, data.sizes["rank"])
    return (
        f"{title}: the inverse of the largest singular value, and the {shown} largest "
        f"values, against depth; means over {samples_of(data)}, bars are standard deviations. {line} Open "
        "markers did not converge."
    )


def _energy_caption(title: str, data: xarray.Dataset) -> str:
    text = f"{title}: how much the leading singular values hold; {samples_of(data)}."
    if not bool(data["exact"].all()):
        error = number(float(data["energy_error"].max()))
        text += f" Estimated from random probes, with a standard error of at most {error}."
    return text + _stars(data)


def _sentence(words: str, data: xarray.Dataset) -> str:
    short, fit = alignment_summary(data), depth_fit(data)
    classes, units = int(data.attrs["classes"]), counted(data.sizes["unit"], "unit")
    of_what = "the branches of " if _part(data) == "branch" else ""
    text = f"{words}the Jacobians of {of_what}{units}, at {samples_of(data)}, "
    if int(short["ujv_count"].sel(pairs="all")):
        at = short.sel(pairs="all")
        chance = f" ({float(at['ujv_over_chance']):.0%} of chance)" if "ujv_over_chance" in short else ""
        text += f"have a mean distance from alignment of {number(float(at['ujv']))}{chance}, "
    else:
        text += "fit no other unit's, "
    text += (
        f"hold {float(short['energy']):.0%} of their energy in the first {classes} singular values"
        + (f", and u1·v1 is {number(float(short['u1v1']))} on average" if numpy.isfinite(short["u1v1"]) else "")
        + "."
    )
    if numpy.isfinite(fit.slope):
        text += f" 1/s1 against depth has slope {number(fit.slope)} with R² {number(fit.r_squared)}."
    return text + not_converged(data)


# -- tables


def _pair_table(title: str, data: xarray.Dataset) -> Table:
    short = alignment_summary(data)
    rows = []
    for pairs, words in PAIRS.items():
        for way, product in WAYS.items():
            here = short.sel(pairs=pairs)
            rows.append(
                [
                    words,
                    product,
                    str(int(here[f"{way}_count"])),
                    with_error(float(here[way]), float(here[f"{way}_spread"])),
                    number(float(here[f"{way}_chance"])) if "chance" in data else "-",
                    number(float(here[f"{way}_over_chance"])) if "chance" in data else "-",
                    with_error(float(here[f"{way}_signed"]), float(here[f"{way}_signed_spread"])),
                ]
            )
    about = ABOUT_PAIRS.format(k=int(data.attrs["k"]), samples=samples_of(data))
    return Table(title, ["pairs", "grid", "number", "m", "chance", "of chance", "signed m"], rows, about, names=2)


def _unit_table(title: str, data: xarray.Dataset) -> Table:
    means = data[["energy", "gap", "large", "numerical_rank", "u1v1", "k_used"]].mean("sample")
    shown = means.assign(
        s1=data["value"].isel(rank=0).mean("sample"),
        near=("unit", list(_neighbours(data).values())),
        residual=data["residual"],
        exits=data["exits"],
        entries=data["entries"],
        converged=data["converged"],
    )
    classes = int(data.attrs["classes"])
    columns: dict[str, Cell] = {
        "size": lambda here: f"{int(here['exits'])} x {int(here['entries'])}",
        "s1": "s1",
        "energy": "energy",
        "gap": "gap",
        "> 5 %": count_of("large"),
        "rank": count_of("numerical_rank"),
        "u1·v1": "u1v1",
        "m, neighbours": "near",
        "vectors": count_of("k_used"),
        "residual": ("residual", "max"),
    }
    about = (
        ABOUT_UNITS.format(samples=samples_of(data), part=_part(data), classes=classes, after=classes + 1)
        + _stars(data)
        + _repeated(data)
    )
    return table_of(with_marks(shown), title, columns, about, rows={"unit": "unit"}, names=2)


def _fit_table(title: str, data: xarray.Dataset) -> Table:
    def row(words: str, fit: DepthFit) -> list[str]:
        numbers = (fit.slope, fit.intercept, fit.r_squared, fit.log_log_slope)
        return [words, str(fit.units), *map(number, numbers)]

    rows = [
        row("without the first quarter", depth_fit(data)),
        row(f"from unit {PAPER_FIRST + 1} on", depth_fit(data, first=PAPER_FIRST)),
    ]
    columns = ["units", "number", "slope", "intercept", "R²", "log-log slope"]
    return Table(title, columns, rows, ABOUT_FIT.format(samples=samples_of(data)))


# -- the map of the trunk


def _neighbours(data: xarray.Dataset) -> dict[str, float]:
    """The mean m of a unit's Jacobian in the vectors of the units beside it."""
    values = data["coupling_ujv"].mean("sample").transpose("unit", "other").values
    found = {}
    for place, unit in enumerate(names_of(data, "unit")):
        beside = [values[place, j] for j in (place - 1, place + 1) if 0 <= j < len(values)]
        there = [value for value in beside if numpy.isfinite(value)]
        found[unit] = float(numpy.mean(there)) if there else float("nan")
    return found


def _numbers(data: xarray.Dataset) -> list[UnitNumbers]:
    part, classes = _part(data), int(data.attrs["classes"])
    columns = {
        f"largest singular value of the {part}": data["value"].isel(rank=0),
        f"share of |J|² of the {part} in {counted(classes, 'singular value')}": data["energy"],
        f"u1·v1 of the {part}": data["u1v1"],
    }
    found = {title: values.mean("sample") for title, values in columns.items()}
    near = data["u1v1"].isel(sample=0).copy(data=list(_neighbours(data).values()))
    return unit_numbers(data, {**found, "distance from alignment with the neighbours": near})
