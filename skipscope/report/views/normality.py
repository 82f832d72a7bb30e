"""Eigenvalues of unit Jacobians: one row per unit, curves over the units, and the complex plane."""

from __future__ import annotations

from collections.abc import Mapping

import xarray

from skipscope.report.figures.normality import eigenvalues, normality, plane
from skipscope.report.style import names_of
from skipscope.report.table import Cell, Table, number, table_of
from skipscope.report.views.view import (
    Curve,
    Picture,
    UnitCurves,
    View,
    alike,
    counted,
    described,
    made_by,
    named,
    samples_of,
    title_of,
    titles,
    unit_numbers,
)

COLUMNS = {
    "spectral_radius": "spectral radius",
    "departure": "departure",
    "amplification": "s1 / radius",
    "rotation": "rotation",
    "frobenius": "|J|",
}
ABOUT = (
    "Eigenvalues of the Jacobian of {what}{tokens}. Departure from normality (Henrici): the share of |J| that the "
    "eigenvalues do not account for, 0 for a normal matrix. s1 / radius: the largest singular value over the largest "
    "magnitude of an eigenvalue, how much more a unit can do in one step than its eigenvalues say. Rotation: the share "
    "of imaginary parts. Medians over {samples}."
)
CAPTION = (
    "{title}, unit by unit: medians over the samples, bars reach from the lower to the upper quartile. A normal "
    "Jacobian has departure 0 and ratio 1."
)
PLANE = "{title}: eigenvalues in the complex plane at the first sample, one panel per unit ({shown} of {count})."
MAPPED = {"departure": "departure from normality", "spectral_radius": "spectral radius of the Jacobian"}


def normality_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    tables, figures, numbers, planes = [], {}, [], []
    for group in alike(datasets, "unit"):
        first = next(iter(group))
        title = title_of("Eigenvalues", group)
        figures[_key(first)] = Picture(CAPTION.format(title=title), normality(named(group)), made_by(group[first]))
    for name, title in titles("Eigenvalues", datasets).items():
        data = datasets[name]
        tables.append(_table(title, data))
        picture = eigenvalues(data)
        count = sum(not reason for reason in names_of(data, "reason"))
        caption = PLANE.format(title=title, shown=len(picture.data), count=counted(count, "unit"))
        figures[f"{_key(name)}-plane"] = Picture(caption, picture, made_by(data))
        medians = data.median("sample")
        numbers += unit_numbers(medians, {MAPPED["departure"]: medians["departure"]}, scale="share")
        numbers += unit_numbers(medians, {MAPPED["spectral_radius"]: medians["spectral_radius"]}, scale="gain")
        planes.append(_curves(data))
    return View(tables, figures, described(datasets, _sentence, "Eigenvalues"), numbers, planes)


def _key(name: str) -> str:
    return name if name.split("-")[-1] == "normality" else f"{name}-normality"


def _table(title: str, data: xarray.Dataset) -> Table:
    what = "a unit's branch" if data.attrs["of"] == "branch" else "a unit"
    tokens = "" if data.attrs["tokens"] == "all" else f", at position {data.attrs['tokens']}"
    about = ABOUT.format(what=what, tokens=tokens, samples=samples_of(data))
    missing = [reason for reason in names_of(data, "reason") if reason]
    if missing:
        about += f" Left out: {'; '.join(missing)}."
    columns: dict[str, Cell] = {short: key for key, short in COLUMNS.items()}
    return table_of(data[list(COLUMNS)].median("sample"), title, columns, about, rows={"unit": "unit"})


def _curves(data: xarray.Dataset) -> UnitCurves:
    found = {}
    for place, (name, reason) in enumerate(zip(names_of(data, "unit"), names_of(data, "reason"), strict=True)):
        if not reason:
            real, imaginary = plane(data, place, 0)
            found[name] = [Curve(f"sample {data['sample'].values[0]}", real, imaginary, points=True)]
    return UnitCurves(str(data.attrs.get("network", "")), "Eigenvalues", "real part", "imaginary part", found)


def _sentence(words: str, data: xarray.Dataset) -> str:
    medians = data.median("sample")
    departure = medians["departure"]
    most = names_of(data, "unit")[int(departure.argmax("unit"))]
    radius = number(float(medians["spectral_radius"].max()))
    return (
        f"{words}the Jacobians depart from normality by {number(float(departure.median()))} in the median, most in "
        f"{most} ({number(float(departure.max()))}); their spectral radii reach {radius}."
    )
