"""A training that was monitored, with its steps as the axis: numbers of the whole network and of all units."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy
import xarray

from skipscope.report.charts import Axis, Series, axis, chart, reference
from skipscope.report.style import GREY, named_ticks, names_of, needs_logarithm, styled, thinned

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
    the median, with a band from the smallest to the largest. Alarms are vertical lines."""
    shown = [(one, values) for one in (*WHOLE, *OF_UNITS) if (values := values_of(parts, one)) is not None]
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
        if finite.size:
            ends = [float(finite.min()), float(finite.max())]
            series += [reference([rang, rang], ends, panel=panel, dash="dot") for rang in alarm_steps(parts)]
        y.append(axis(one.label, log=needs_logarithm(finite)))
    end = max(float(values["step"].max()) for _, values in shown)
    columns = 2 if len(shown) > 1 else 1
    rows = -(-len(shown) // columns)
    last = [panel + columns >= len(shown) for panel in range(rows * columns)]
    return chart(
        series,
        panels=[one.title for one, _ in shown],
        columns=columns,
        x=[axis("step" if here else "", range=[-0.02 * end, 1.02 * end]) for here in last],
        y=y,
        height=LINE_HEIGHT * rows + 140,
        vertical_spacing=0.25 / rows,
        horizontal_spacing=0.12,
    )


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
