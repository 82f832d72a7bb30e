"""A training that was monitored, with its steps as the axis: numbers of the whole network and of all units."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy
import xarray

from skipscope.errors import InputError
from skipscope.report.charts import Axis, Series, axis, chart
from skipscope.report.style import COLOURS, GREY, named_ticks, names_of, needs_logarithm, styled, thinned
from skipscope.wording import number

ALARMS = "alarms"  # the name of the dataset that has them, one row each
TOO_SHARP = "too sharp for the rate"  # the alarm whose value is that of a panel
ALARM_COLOUR = COLOURS[1]
SCALE = 2.0  # powers of ten of a change that the colours of a heat map reach to
LINE_HEIGHT = 230  # of a row of panels


class Followed(NamedTuple):
    """A quantity over the steps: its dataset, its variable and what a panel calls it."""

    part: str
    key: str
    title: str
    label: str
    over: str = ""  # a variable that it is divided by


WHOLE = (
    Followed("loss", "loss", "loss of the training", "loss"),
    Followed("loss", "rate", "learning rate", "rate"),
    Followed("sharpness", "value", "sharpness over what the rate bears", "ratio", "limit"),
)
OF_UNITS = (
    Followed("sizes", "state_rms", "state RMS at a unit's entry", "RMS"),
    Followed("sizes", "gradient_rms", "gradient RMS at a unit's entry", "RMS"),
    Followed("sizes", "gradient_gain", "gain of the gradient, entry / exit", "gain"),
    Followed("sizes", "branch_over_skip", "|branch| / |skip|", "ratio"),
    Followed("sizes", "branch_spread", "what a branch makes of different samples", "ratio"),
    Followed("sizes", "state_spread", "what differs between samples' states", "ratio"),
    Followed("singular", "value", "largest singular value of a unit", "value"),
    Followed("stable_rank", "stable_rank", "stable rank of a weight", "rank"),
    Followed("alignment", "coupling", "coupling with the next unit, 1 = chance", "ratio", "chance"),
    Followed("conditioning", "state_condition", "condition number of the states", "condition"),
    Followed("conditioning", "weight_condition", "condition number of a weight", "condition"),
    Followed("streams", "product_second_value", "differences between streams that are left", "value"),
)
MAPPED = ("state_rms", "gradient_gain", "branch_spread", "state_spread")  # of sizes, drawn as heat maps


def values_of(parts: Mapping[str, xarray.Dataset], one: Followed) -> xarray.DataArray | None:
    """None where it was not measured."""
    data = parts.get(one.part)
    if data is None or one.key not in data or (one.over and one.over not in data):
        return None
    values = data[one.key].astype(float)
    values = values / data[one.over] if one.over else values
    return None if bool(values.isnull().all()) else values


def monitored(parts: Mapping[str, xarray.Dataset]) -> Any:
    """parts: the datasets of a monitor, by the name of the measure. One panel per quantity; of all units, or weights,
    the median, with a band from the smallest to the largest. Alarms are vertical lines. That the loss is too sharp for
    the rate may have rung between two looks, at a new rate: a diamond is the value that it rang at, with the threshold.
    """
    if not isinstance(parts, Mapping) or not all(isinstance(data, xarray.Dataset) for data in parts.values()):
        raise InputError("monitored: expected the datasets of a monitor by their names, such as monitor.datasets")
    shown = [(one, values) for one in (*WHOLE, *OF_UNITS) if (values := values_of(parts, one)) is not None]
    if not shown:
        raise InputError(
            "monitored: there is nothing to draw; expected the datasets of a monitor by their names, such as "
            f"monitor.datasets after a look, got {', '.join(map(str, parts)) or 'none'}"
        )
    end = max([*(float(values["step"].max()) for _, values in shown), *map(float, alarm_steps(parts))])
    series: list[Series] = []
    y: list[Axis] = []
    for panel, (one, values) in enumerate(shown):
        some = values.isel(step=thinned(values.sizes["step"]))
        step, numbers = some["step"].values, numpy.where(numpy.isfinite(some.values), some.values, numpy.nan)
        hover = "step %{x}: %{y:.3g}"
        middle, band = numbers, None
        if numbers.ndim > 1:
            numbers, step = _with_numbers(numbers, step)
            middle, band = numpy.nanmedian(numbers, 1), (numpy.nanmin(numbers, 1), numpy.nanmax(numbers, 1))
        mode = "lines" if len(step) > 50 else "lines+markers"
        more = {"meta": {"quantity": one.part if one.key == "value" else one.key}}
        series.append(
            Series(
                "training", step, middle, hover, one.title, panel, 0, mode, 5, 1.5, labelled=False, band=band, more=more
            )
        )
        finite = numbers[numpy.isfinite(numbers)]
        if one.part == "sharpness" and (rang := too_sharp(parts)) is not None:
            marks = _marks_of(rang, panel, end)
            series += marks
            finite = numpy.concatenate([finite, *(numpy.asarray(mark.y) for mark in marks)])
        y.append(axis(one.label, log=needs_logarithm(finite)))
    columns = 2 if len(shown) > 1 else 1
    rows = -(-len(shown) // columns)
    last = [panel + columns >= len(shown) for panel in range(rows * columns)]
    figure = chart(
        series,
        panels=[one.title for one, _ in shown],
        columns=columns,
        x=[axis("step" if here else "", range=[-0.02 * end, 1.02 * end]) for here in last],
        y=y,
        height=LINE_HEIGHT * rows + 140,
        vertical_spacing=0.25 / rows,
        horizontal_spacing=0.12,
    )
    for alarm in alarm_steps(parts):  # as high as the panel, whatever its axis becomes beside another training
        figure.add_vline(alarm, line={"color": GREY, "width": 1, "dash": "dot"}, row="all", col="all")
    return figure


class Rang(NamedTuple):
    step: int
    value: float
    threshold: float


def too_sharp(parts: Mapping[str, xarray.Dataset]) -> Rang | None:
    """When the loss was too sharp for the rate; None where that alarm did not ring, or at no finite value."""
    alarms = parts.get(ALARMS)
    if alarms is None or TOO_SHARP not in names_of(alarms, "name"):
        return None
    one = alarms.isel(alarm=names_of(alarms, "name").index(TOO_SHARP))
    found = Rang(int(one["step"]), float(one["value"]), float(one["threshold"]))
    return found if numpy.isfinite(found).all() else None


def _marks_of(rang: Rang, panel: int, end: float) -> list[Series]:
    """The value that the alarm rang at, and the threshold."""
    step, value, threshold = rang
    colour = {"color": ALARM_COLOUR}
    line = {"line": {**colour, "width": 1, "dash": "dash"}, "marker": None, "textposition": "top right"}
    line |= {"hoverinfo": "skip", "meta": {"drawn": "only"}}
    mark = {
        "marker": {**colour, "symbol": "diamond", "size": 10},
        "textposition": "middle left" if step > end / 2 else "middle right",
        "meta": {"series": f"alarm: {TOO_SHARP}"},
    }
    return [
        _mark("threshold", [0.0, end], [threshold] * 2, "lines", [f"alarm above {number(threshold)}", ""], panel, line),
        _mark("alarm", [step], [value], "markers", [f"alarm at {number(value)}"], panel, mark),
    ]


def _mark(
    name: str, x: list[float], y: list[float], mode: str, text: list[str], panel: int, more: Mapping[str, Any]
) -> Series:
    hover = "step %{x}: %{y:.3g}"
    return Series(name, x, y, hover, panel=panel, mode=f"{mode}+text", labelled=False, text=text, more=more)


def _with_numbers(values: numpy.ndarray, step: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
    """The looks at which some unit has a finite number."""
    there = ~numpy.isnan(values).all(1)
    return values[there], step[there]


def alarm_steps(parts: Mapping[str, xarray.Dataset]) -> list[int]:
    """As the attribute `alarms` of the datasets has them: "120 states grow; 150 not finite"."""
    texts = {str(data.attrs.get("alarms", "")) for data in parts.values()}
    return sorted({int(one.split()[0]) for text in texts for one in text.split("; ") if one})


def monitored_units(sizes: xarray.Dataset) -> Any:
    """Every unit over the steps: how much each size has changed since the first look, in powers of ten."""
    from plotly.subplots import make_subplots

    keys = [key for key in MAPPED if key in sizes and bool(sizes[key].notnull().any())]
    titles = {one.key: one.title for one in OF_UNITS}
    columns = 2 if len(keys) > 1 else 1
    rows = -(-len(keys) // columns)
    figure = make_subplots(
        rows,
        columns,
        subplot_titles=[titles[key] for key in keys],
        vertical_spacing=0.3 / rows,
        horizontal_spacing=0.12,
    )
    some = sizes.isel(step=thinned(sizes.sizes["step"]))
    units = names_of(sizes, "unit")
    for place, key in enumerate(keys):
        values = some[key].transpose("unit", "step").values.astype(float)
        with numpy.errstate(all="ignore"):
            changed = numpy.log10(values) - numpy.log10(_first(values))
        texts = [[f"{unit}, step {step}" for step in some["step"].values] for unit in units]
        figure.add_heatmap(
            x=some["step"].values,
            y=list(range(len(units))),
            z=numpy.clip(changed, -SCALE, SCALE),
            customdata=values,
            text=texts,
            hovertemplate="%{text}: %{customdata:.3g}<extra></extra>",
            zmin=-SCALE,
            zmax=SCALE,
            colorscale="RdBu_r",
            colorbar={"title": {"text": "change"}, "tickvals": [-2, -1, 0, 1, 2], "ticktext": CHANGES},
            showscale=place == 0,
            row=place // columns + 1,
            col=place % columns + 1,
        )
    figure.update_xaxes(zeroline=False)
    figure.update_xaxes(title_text="step", row=rows)
    figure.update_yaxes(**{**named_ticks(units), "tickangle": 0}, zeroline=False, linecolor=GREY)
    return styled(figure, 260 * rows + 140)


CHANGES = ["÷ 100", "÷ 10", "same", "x 10", "x 100"]


def _first(values: numpy.ndarray) -> numpy.ndarray:
    """Of every unit the first number that is above zero: (units, 1)."""
    there = numpy.isfinite(values) & (values > 0)
    place = there.argmax(1)
    return numpy.where(there.any(1), values[numpy.arange(len(values)), place], numpy.nan)[:, None]
