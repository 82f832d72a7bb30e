"""The map of a trunk: its units with branch and skip, coloured by a measure that the reader picks, and what is known of
each unit.

Its data go into the page as JSON; `map.js` draws it. Numbers are texts already, as tables show them, and one scale of
colours per measure holds for every network on the page.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy
import xarray

from skipscope.report.style import names_of
from skipscope.report.table import number
from skipscope.report.views import UnitCurves, UnitNumbers, View

SMALLEST_FACTOR = 1.5  # a scale of gains reaches from 1 / factor to the factor: what is closer to 1 stays pale
LARGEST_FACTOR = 10.0  # what is beyond has the colour of the end


def trunk_maps(
    datasets: Mapping[str, xarray.Dataset],
    views: Iterable[View],
    side_outputs: Mapping[str, Sequence[str]] | None = None,
) -> list[dict[str, Any]]:
    """One entry per network of which there are numbers unit by unit, large networks first.

    side_outputs: by unit, of a run's only network, the values inside that are also used elsewhere.
    """
    numbers: dict[str, dict[str, UnitNumbers]] = {}
    curves: dict[str, list[UnitCurves]] = {}
    for view in views:
        for one in view.numbers:
            known = numbers.setdefault(one.network, {})
            known[one.title] = _merged(known[one.title], one) if one.title in known else one
        for drawn in view.curves:
            curves.setdefault(drawn.network, []).append(drawn)
    maps = [_map(name, list(found.values()), curves.get(name, []), datasets) for name, found in numbers.items()]
    maps = [one for one in maps if one["units"]]  # there may be numbers of blocks alone
    if side_outputs and len(maps) == 1:
        for unit in maps[0]["units"]:
            if unit["name"] in side_outputs:
                unit["side_outputs"] = ", ".join(side_outputs[unit["name"]])
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
    numbers = [one for one in numbers if not one.values.keys().isdisjoint(names)]
    return {
        "network": network,
        "units": units,
        "measures": [
            {
                "title": one.title,
                "scale": one.scale,
                "logarithmic": one.logarithmic,
                "values": [_plain(one.values.get(name, math.nan)) for name in names],
                "texts": [_text(one, name) for name in names],
                "unsure": [name in one.unsure for name in names],
                "words": [one.words.get(name, "") for name in names],
            }
            # Whole ones first, and of those gains, which say at a glance what grows and what shrinks.
            for one in sorted(numbers, key=lambda one: (len(one.values) < len(names), one.scale != "gain"))
        ],
        "curves": {name: drawn for name in names if (drawn := [_drawn(one, name) for one in curves if name in one.of])},
    }


def _text(one: UnitNumbers, unit: str) -> str:
    value = one.values.get(unit, math.nan)
    if math.isfinite(value):
        return number(value)
    words = one.words.get(unit, "")
    return "∞" if math.isinf(value) or "infinite" in words else "!" if words else "-"


# -- what is known of the structure


def _units(network: str, numbers: list[UnitNumbers], datasets: Mapping[str, xarray.Dataset]) -> list[dict[str, Any]]:
    """All that some measure knows, in the order of the longest list of them; with stage, skip, kind of branch and shape
    of the entry, where known. Where datasets say which units there are, other names are left out: coupling has numbers
    of blocks, which hold units and are none."""
    own = [data for data in datasets.values() if str(data.attrs.get("network", "")) == network]
    known: dict[str, dict[str, Any]] = {}
    for data in own:
        if "unit" in data.dims and "stage" in data.coords:
            for name, stage, skip, branch in zip(
                names_of(data, "unit"),
                data["stage"].values,
                _labels(data, "skip"),
                _labels(data, "branch"),
                strict=True,
            ):
                there = known.setdefault(name, {"stage": int(stage), "skip": skip, "branch": branch})
                there["branch"] = there["branch"] or branch
    listed = {unit for data in own for unit in str(data.attrs.get("units", "")).split("; ") if unit}
    real = known.keys() | (listed if known else set())
    lists = [[name for name in one.values if name in real or not real] for one in numbers]
    order = max(lists, key=len)
    order += sorted({name for names in lists for name in names} - set(order), key=naturally)
    shapes = _shapes(order, own)
    nothing = {"stage": None, "skip": "", "branch": ""}
    return [{"name": name, **known.get(name, nothing), "shape": shapes.get(name, "")} for name in order]


def _labels(data: xarray.Dataset, key: str) -> list[str]:
    return [str(value) for value in data[key].values] if key in data.coords else [""] * data.sizes["unit"]


def _shapes(units: Sequence[str], datasets: Sequence[xarray.Dataset]) -> dict[str, str]:
    """Of what enters a unit: the shape of its first layer's input without the samples, else the number of entries."""
    found: dict[str, str] = {}
    for data in datasets:
        if "layer_shape" in data.coords and "layer" in data.dims:
            layers = dict(zip(names_of(data, "layer"), names_of(data, "layer_shape"), strict=True))
            for unit in units:
                first = next((shape for layer, shape in layers.items() if f"{layer}.".startswith(f"{unit}.")), "")
                samples, _, rest = first.partition(" x ")
                if rest and samples == str(data.attrs.get("samples", "")):
                    found.setdefault(unit, rest)
    for data in datasets:
        if "entries" in data and data["entries"].dims == ("unit",):
            for unit, entries in zip(names_of(data, "unit"), data["entries"].values, strict=True):
                found.setdefault(unit, f"{int(entries)} numbers")
    return found


def naturally(name: str) -> list[Any]:
    return [(0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"(\d+)", name)]


# -- scales of colours


def scales(maps: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """By the title of a measure, one scale for all networks that are shown together.

    A gain is a factor: its scale is logarithmic and its middle is 1, which keeps sizes. A share begins at 0. Any other
    size reaches from the smallest to the largest.
    """
    values: dict[str, list[float]] = {}
    kinds: dict[str, tuple[str, bool]] = {}
    for one in maps:
        for measure in one["measures"]:
            values.setdefault(measure["title"], []).extend(value for value in measure["values"] if value is not None)
            kind, logarithmic = kinds.get(measure["title"], (measure["scale"], False))
            kinds[measure["title"]] = (kind, logarithmic or measure["logarithmic"])
    return {title: _scale(*kinds[title], numpy.array(found)) for title, found in values.items()}


def _scale(kind: str, logarithmic: bool, values: numpy.ndarray) -> dict[str, Any]:
    if kind == "gain":
        positive = values[values > 0]
        factor = max([SMALLEST_FACTOR, *numpy.maximum(positive, 1 / positive)])
        low, high, beyond = 1 / min(factor, LARGEST_FACTOR), min(factor, LARGEST_FACTOR), factor > LARGEST_FACTOR
        ends = [f"{'≤ ' if beyond else ''}{number(low)}", f"{'≥ ' if beyond else ''}{number(high)}"]
        return {"kind": kind, "logarithmic": True, "low": low, "high": high, "ends": ends}
    there = values[values > 0] if logarithmic else values
    low, high = (float(there.min()), float(there.max())) if there.size else (0.0, 1.0)
    low = 0.0 if kind == "share" else low
    ends = [number(low), number(high) + (", logarithmic" if logarithmic else "")]
    return {"kind": kind, "logarithmic": logarithmic, "low": low, "high": high, "ends": ends}


# -- curves of a unit


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
