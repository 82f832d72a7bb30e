"""Several runs beside each other: what changed, unit by unit, where their units have the same names.

Numbers are those of the maps. One table has a row per measure: the median over the units in each run, the difference of
the later runs from the first, and the unit that changed most. One figure has a panel per measure, with all runs on one
scale.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from skipscope.report.charts import Axis, Series, axis, chart
from skipscope.report.style import named_ticks, needs_logarithm
from skipscope.report.table import Table, number
from skipscope.report.views import Picture

PANELS = 6  # measures in the figure, in the order of the map
LABELS = {"gain": "factor", "share": "share", "size": "value"}  # of axes
ABOUT = (
    "Medians over the units that the runs have in common, the difference from the first run, and the unit where the "
    "difference is largest, with its numbers in both. Each run is shown by its first network that has these units."
)
CAPTION = (
    "The runs on one scale, unit by unit, with the numbers of the map{more}. Units that the runs do not have in common "
    "are left out."
)


@dataclass(frozen=True)
class _Compared:
    """One measure in every run: (runs, units)."""

    title: str
    scale: str
    values: numpy.ndarray


@dataclass(frozen=True)
class Comparison:
    table: Table
    picture: Picture


def comparison(labels: Sequence[str], maps: Sequence[Sequence[Mapping[str, Any]]]) -> Comparison | None:
    """maps: of each run. None where fewer than two runs have units, or no unit is in all of them."""
    chosen = _alike(maps)
    if chosen is None:
        return None
    inside = set.intersection(*({unit["name"] for unit in one["units"]} for one in chosen))
    units = [unit["name"] for unit in chosen[0]["units"] if unit["name"] in inside]
    measures = [_in_all(measure, chosen, units) for measure in chosen[0]["measures"]]
    compared = [one for one in measures if one is not None]
    if not units or not compared:
        return None
    rows = [row for one in compared for row in _rows(one, labels, units)]
    columns = ["measure", "other run", f"median in {labels[0]}", "in the other run", "difference"]
    columns += ["most different in", f"there in {labels[0]}", "in the other run"]
    table = Table("Differences between the runs", columns, rows, ABOUT, names=2)
    shown = compared[:PANELS]
    more = f" ({len(shown)} of {len(compared)} measures)" if len(shown) < len(compared) else ""
    return Comparison(table, Picture(CAPTION.format(more=more), _figure(shown, labels, units)))


def _alike(maps: Sequence[Sequence[Mapping[str, Any]]]) -> list[Mapping[str, Any]] | None:
    """One map per run: those of one network, if all runs have one of that name, else the first of each."""
    if len(maps) < 2 or not all(maps):
        return None
    common = set.intersection(*({one["network"] for one in own} for own in maps))
    wanted = next((one["network"] for one in maps[0] if one["network"] in common), None)
    return [next((one for one in own if one["network"] == wanted), own[0]) for own in maps]


def _in_all(measure: Mapping[str, Any], maps: Sequence[Mapping[str, Any]], units: Sequence[str]) -> _Compared | None:
    rows = []
    for one in maps:
        own = next((other for other in one["measures"] if other["title"] == measure["title"]), None)
        if own is None:
            return None
        by_unit = dict(zip((unit["name"] for unit in one["units"]), own["values"], strict=True))
        rows.append([math.nan if by_unit[unit] is None else by_unit[unit] for unit in units])
    values = numpy.array(rows, float)
    known = bool(numpy.isfinite(values).any(1).all())
    return _Compared(measure["title"], measure["scale"], values) if known else None


def _rows(one: _Compared, labels: Sequence[str], units: Sequence[str]) -> list[list[str]]:
    """One per later run, beside the first."""
    found = []
    first = one.values[0]
    for label, values in zip(labels[1:], one.values[1:], strict=True):
        before, after = float(numpy.nanmedian(first)), float(numpy.nanmedian(values))
        away = numpy.abs(values - first)
        cells = [label, number(before), number(after), _signed(after - before)]
        if numpy.isfinite(away).any():
            most = int(numpy.nanargmax(away))
            cells += [units[most], number(float(first[most])), number(float(values[most]))]
        else:
            cells += ["-"] * 3
        found.append([one.title, *cells])
    return found


def _signed(value: float) -> str:
    text = number(value)
    return f"+{text}" if value > 0 else text


def _figure(compared: Sequence[_Compared], labels: Sequence[str], units: Sequence[str]) -> Any:
    columns = 2 if len(compared) > 1 else 1
    rows = -(-len(compared) // columns)
    series: list[Series] = []
    y: list[Axis] = []
    for panel, one in enumerate(compared):
        for place, (label, values) in enumerate(zip(labels, one.values, strict=True)):
            hover = "%{text}: %{y:.3g}"
            series.append(Series(label, range(len(units)), values, hover, panel=panel, place=place, text=list(units)))
        y.append(axis(LABELS[one.scale], log=needs_logarithm(one.values.ravel())))
    last = [panel + columns >= len(compared) for panel in range(rows * columns)]
    return chart(
        series,
        panels=[one.title for one in compared],
        columns=columns,
        x=[{**named_ticks(list(units)), "showticklabels": here, **axis("unit" if here else "")} for here in last],
        y=y,
        height=240 * rows + 140,
        vertical_spacing=0.25 / rows,
        horizontal_spacing=0.1,
    )
