"""A small grammar of figures: curves, points and bars in panels, drawn in the common look.

A figure says which variables of a dataset it draws against which (`lines`, or single `Series`), and what its panels and
axes are (`chart`); colours, dashes, markers, the legend and the places of panels follow from that. Heat maps are drawn
by hand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy
import xarray

from skipscope.report.style import GREY, look, members, shade, styled
from skipscope.report.table import number

Axis = Mapping[str, Any]  # attributes of an axis of Plotly
GREY_LINE = {"color": GREY, "width": 1}
FORMATTED = re.compile(r"%\{([xy]):[^}]*[efg]\}")  # a coordinate of a point with a format


@dataclass(frozen=True)
class Series:
    """Points of one name, which stand in one panel and are joined by a line where the mode says so."""

    name: str  # in the legend; series of one name share a look, and the first of them is in the legend
    x: Any  # an array, as xarray or numpy has it, or a list
    y: Any
    hover: str = ""  # what the pointer shows of a point, below the heading; {name} is that of the series
    heading: str = "{name}"
    panel: int = 0  # counted from 0, row after row
    place: int | None = None  # of the look; None: by the order of names
    mode: str = "lines+markers"  # as Plotly has it, or "bars"
    size: int = 6  # of markers
    width: float = 2  # of lines
    labelled: bool | None = None  # in the legend; None: the first of the name in a chart of several panels
    band: tuple[Any, Any] | None = None  # lower and upper edge of a band around the line
    error: tuple[Any, Any] | None = None  # lengths of error bars, below and above every point
    text: Sequence[str] | None = None  # per point, for the pointer
    more: Mapping[str, Any] = field(default_factory=dict)  # attributes of Plotly in place of the common look

    def with_error(self, below: Any, above: Any = None) -> Series:
        """With error bars, where there is an error; above: the same as below where nothing else is given."""
        return self if below is None else replace(self, error=(below, below if above is None else above))


def chart(
    series: Iterable[Series],
    *,
    height: int,
    x: Axis | Sequence[Axis],
    y: Axis | Sequence[Axis],
    panels: Sequence[str] = (),
    columns: int | None = None,
    **grid: Any,
) -> Any:
    """A figure of Plotly.

    panels: their titles; without any there is one panel. columns: of panels; all are in one row by default. x, y: of
    all panels, or one axis per panel. grid: options of Plotly's make_subplots.
    """
    figure, columns = _empty(panels, columns, grid)
    places: dict[str, int] = {}
    labelled: set[str] = set()
    for one in series:
        place = places.setdefault(one.name, len(places)) if one.place is None else one.place
        style = look(one.name, place, one.size, one.width)
        if one.mode == "bars":
            style = {key: style[key] for key in ("name", "legendgroup")} | {"marker": {"color": style["line"]["color"]}}
        style |= one.more
        here: dict[str, Any] = {"row": one.panel // columns + 1, "col": one.panel % columns + 1} if panels else {}
        if one.band is not None:
            low, high = one.band
            shade(figure, _array(one.x), low, high, style, **here)
        if one.labelled is not None:
            style["showlegend"] = one.labelled
        elif panels:
            style.setdefault("showlegend", one.name not in labelled)
        labelled.add(one.name)
        if one.error is not None:
            style["error_y"] = _bars(*one.error)
            if isinstance((style.get("marker") or {}).get("color"), list):
                style["error_y"]["color"] = GREY  # bars cannot have one colour per point: they would be black
        if "hovertemplate" not in style:
            style |= _hover("<br>".join(filter(None, (one.heading, one.hover))).replace("{name}", one.name), one)
        draw = figure.add_bar if one.mode == "bars" else partial(figure.add_scatter, mode=one.mode)
        draw(x=_array(one.x), y=_array(one.y), text=one.text, **style, **here)
    for update, axes in ((figure.update_xaxes, x), (figure.update_yaxes, y)):
        if isinstance(axes, Mapping):
            update(**axes)
        else:
            for panel, own in enumerate(axes):
                update(**own, row=panel // columns + 1, col=panel % columns + 1)
    return styled(figure, height)


def _empty(panels: Sequence[str], columns: int | None, grid: Mapping[str, Any]) -> tuple[Any, int]:
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    if not panels:
        return go.Figure(), 1
    columns = columns or len(panels)
    return make_subplots(-(-len(panels) // columns), columns, subplot_titles=list(panels), **grid), columns


def _number(value: Any) -> str:
    return number(float(value)) if isinstance(value, (int, float, numpy.number)) else str(value)


def _bars(below: Any, above: Any) -> dict[str, Any]:
    return {
        "type": "data",
        "symmetric": False,
        "array": _array(above),
        "arrayminus": _array(below),
        "thickness": 1,
        "width": 2,
    }


def _hover(template: str, one: Series) -> dict[str, Any]:
    """Coordinates that the template formats are written as tables write numbers, which no format of Plotly does: what
    is between the first and the last of them becomes the text of each point."""
    found = list(FORMATTED.finditer(template))
    if found and "%{" in FORMATTED.sub("", template[found[0].start() : found[-1].end()]):
        found = found[:1]
    if not found:
        return {"hovertemplate": f"{template}<extra></extra>"}
    first, last = found[0].start(), found[-1].end()
    pattern = FORMATTED.sub(lambda match: f"%{match[1]}%", template[first:last])
    texts = [
        pattern.replace("%x%", _number(x)).replace("%y%", _number(y))
        for x, y in zip(_array(one.x), _array(one.y), strict=True)
    ]
    return {
        "hovertemplate": f"{template[:first]}%{{hovertext}}{template[last:]}<extra></extra>",
        "hovertext": texts,
    }


def _array(values: Any) -> Any:
    return list(values) if isinstance(values, range) else getattr(values, "values", values)


def reference(x: Any, y: Any, name: str = "", panel: int = 0, **line: Any) -> Series:
    """A thin line to compare with, grey and without data; in the legend where it has a name."""
    look_of_its_own = {
        "line": {**GREY_LINE, **line},
        "name": name or None,
        "showlegend": None if name else False,
        **dict.fromkeys(("legendgroup", "marker", "hovertemplate")),
        "hoverinfo": "skip",
    }
    return Series(name, x, y, panel=panel, place=0, mode="lines", more=look_of_its_own)


def thin_lines(
    name: str,
    x: Any,
    rows: Mapping[str, Any],
    hover: str,
    *,
    panel: int = 0,
    text: Sequence[str] | None = None,
    **more: Any,
) -> Iterator[Series]:
    """One thin grey line per member, all of one name in the legend; rows: by member. more: attributes of Plotly."""
    for count, (member, row) in enumerate(rows.items()):
        thin = {"line": GREY_LINE, "marker": None, "meta": {"series": member}, **more}
        labelled = count == panel == 0
        yield Series(name, x, row, hover, member, panel, None, "lines", labelled=labelled, text=text, more=thin)


def axis(title: str = "", *, log: bool = False, **more: Any) -> Axis:
    """log: logarithmic, with powers of ten as its labels and few between them."""
    found = {"title_text": title} if title else {}
    return {**found, **({"type": "log", "exponentformat": "power", "nticks": 3} if log else {}), **more}


def titled_first(title: str, count: int, **more: Any) -> list[Axis]:
    """Axes of panels side by side that share what they show: the first one has the title."""
    return [axis(title if panel == 0 else "", **more) for panel in range(count)]


def lines(
    dataset: xarray.Dataset,
    x: str,
    y: str | Mapping[str, str],
    hover: str,
    *,
    by: str = "",
    panels: str = "",
    name: str = "{0}",
    text: str = "",
    custom: Sequence[str] = (),
    **more: Any,
) -> Iterator[Series]:
    """One series per member of a dimension, or per value of a variable, of a dataset.

    x, y: variables. y as a mapping: variables with their titles, one panel each; without `by` they are the series.
    panels: dimension whose members have one panel each. name: of a series, with the member as {0} and what has a single
    value there by its own name; text: of a point, from the variables along the line. custom: variables that the hover
    text reads as %{customdata[0]}, %{customdata[1]}, ... more: attributes of all `Series`.
    """
    variables = {y: ""} if isinstance(y, str) else y
    for panel, (_, in_panel) in enumerate(members(dataset, panels)):
        for value, here in members(in_panel, by):
            single = {str(key): part.values.item() for key, part in here.variables.items() if part.ndim == 0}
            if custom:
                more["more"] = {"customdata": numpy.stack([here[key].values for key in custom], -1)}
            for count, (variable, title) in enumerate(variables.items()):
                yield Series(
                    name.format(value, **single) if by else title,
                    here[x],
                    here[variable],
                    hover,
                    panel=panel if panels or not by else count,
                    text=_texts(here, x, text) if text else None,
                    **more,
                )


def _texts(dataset: xarray.Dataset, along: str, text: str) -> list[str]:
    columns = {
        str(key): part.values.tolist() for key, part in dataset.variables.items() if part.dims == dataset[along].dims
    }
    return [text.format(**dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]
