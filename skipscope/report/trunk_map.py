"""The map of a trunk: one cell per unit, coloured by a measure that the reader picks, and what is known of each unit.

Its data go into the page as JSON; `report.js` draws it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy
import xarray

from skipscope.report.views import UnitCurves, UnitNumbers, View


def trunk_maps(datasets: Mapping[str, xarray.Dataset], views: Iterable[View]) -> list[dict[str, Any]]:
    """One entry per network of which there are numbers unit by unit, large networks first."""
    numbers: dict[str, dict[str, UnitNumbers]] = {}
    curves: dict[str, list[UnitCurves]] = {}
    for view in views:
        for one in view.numbers:
            known = numbers.setdefault(one.network, {})
            known[one.title] = _merged(known[one.title], one) if one.title in known else one
        for drawn in view.curves:
            curves.setdefault(drawn.network, []).append(drawn)
    maps = [_map(name, list(found.values()), curves.get(name, []), datasets) for name, found in numbers.items()]
    return sorted(maps, key=lambda one: -len(one["units"]))


def _merged(first: UnitNumbers, second: UnitNumbers) -> UnitNumbers:
    """Of one measure, from two datasets; where both have a unit, the first one's number."""
    new = {name: value for name, value in second.values.items() if name not in first.values}
    return replace(
        first,
        values={**first.values, **new},
        unsure=first.unsure | (second.unsure & new.keys()),
        words={**second.words, **first.words},
    )


def _map(
    network: str, numbers: list[UnitNumbers], curves: list[UnitCurves], datasets: Mapping[str, xarray.Dataset]
) -> dict[str, Any]:
    units = _units(network, numbers, datasets)
    names = [unit["name"] for unit in units]
    return {
        "network": network,
        "units": units,
        "measures": [
            {
                "title": one.title,
                "logarithmic": one.logarithmic,
                "values": [_plain(one.values.get(name, math.nan)) for name in names],
                "unsure": [name in one.unsure for name in names],
                "words": [one.words.get(name, "") for name in names],
            }
            for one in sorted(numbers, key=lambda one: len(one.values) < len(names))  # whole ones first
        ],
        "curves": {name: drawn for name in names if (drawn := [_drawn(one, name) for one in curves if name in one.of])},
    }


def _units(network: str, numbers: list[UnitNumbers], datasets: Mapping[str, xarray.Dataset]) -> list[dict[str, Any]]:
    """All that some measure knows, in the order of the longest list of them; with stage and skip, where known."""
    order = max((list(one.values) for one in numbers), key=len)
    others = {name for one in numbers for name in one.values} - set(order)
    order += sorted(others, key=naturally)
    known: dict[str, dict[str, Any]] = {}
    for data in datasets.values():
        if str(data.attrs.get("network", "")) == network and "unit" in data.dims and "stage" in data.coords:
            skips = data["skip"].values if "skip" in data.coords else [""] * data.sizes["unit"]
            for name, stage, skip in zip(data["unit"].values, data["stage"].values, skips, strict=True):
                known.setdefault(str(name), {"stage": int(stage), "skip": str(skip)})
    return [{"name": name, **known.get(name, {"stage": None, "skip": ""})} for name in order]


def naturally(name: str) -> list[Any]:
    return [(0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"(\d+)", name)]


def _drawn(one: UnitCurves, unit: str) -> dict[str, Any]:
    return {
        "title": one.title,
        "x": one.x,
        "y": one.y,
        "logarithmic": one.logarithmic,
        "about": one.about,
        "curves": [
            {"name": curve.name, "points": curve.points, "x": _list(curve.x), "y": _list(curve.y)}
            for curve in one.of[unit]
        ],
    }


def _list(values: Sequence[float] | numpy.ndarray) -> list[float | None]:
    return [_plain(value) for value in numpy.asarray(values).tolist()]


def _plain(value: float) -> float | None:
    """To nine digits: what the reader sees has fewer, and the page stays small. JSON has no NaN."""
    return float(f"{value:.9g}") if math.isfinite(value) else None
