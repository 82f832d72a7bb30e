"""Networks that differ in one number: small pictures, one per quantity, with intervals over networks."""

from __future__ import annotations

from typing import Any

import numpy
import xarray

from skipscope.report.charts import Axis, Series, axis, chart
from skipscope.report.style import GREY, names_of, needs_logarithm

COLUMNS = 4
ROW = 190  # height of a row of pictures
CHANCE = "chance"  # in the names of quantities that are relative to it
APART = 0.12  # of the distance of two doses, between series
LEAST_SPAN = 0.04  # of an axis of shares or correlations, whose intervals keep .001 away from 1
FAR = 20  # times the median size of a quantity's values: beyond the edge of its picture
MARGIN = 0.08  # of what is drawn, at both ends of an axis


def doses(dataset: xarray.Dataset) -> Any:
    """Each quantity after the training against the dose: one small point per network, means with 95 % intervals.

    dataset: of the studies A.skips, A.labels, A.classes, A.sizes and A.decay. Doses are drawn at equal distances.
    """
    quantities, series_names = names_of(dataset, "quantity"), list(dict.fromkeys(names_of(dataset, "series")))
    amounts = sorted({float(dose) for dose in dataset["dose"].values})
    drawn: list[Series] = []
    y = []
    for panel, quantity in enumerate(quantities):
        here = dataset.sel(quantity=quantity)
        for place, name in enumerate(series_names):
            own = here.isel(case=numpy.flatnonzero(dataset["series"].values == name)).sortby("dose")
            shift = APART * (place - (len(series_names) - 1) / 2)
            drawn += _of_series(own, name, place, panel, amounts, shift)
        y.append(_range(here))
    rows = -(-len(quantities) // COLUMNS)
    ticks = {"tickvals": list(range(len(amounts))), "ticktext": [f"{amount:g}" for amount in amounts]}
    title = str(dataset.attrs["dose_is"])
    figure = chart(
        drawn,
        panels=quantities,
        columns=COLUMNS,
        x=[{**ticks, **axis(title if panel + COLUMNS >= len(quantities) else "")} for panel in range(len(quantities))],
        y=y,
        height=ROW * rows + 150,
        vertical_spacing=0.32 / rows,
        horizontal_spacing=0.06,
    )
    for panel, quantity in enumerate(quantities):
        if CHANCE in quantity:
            line = {"color": GREY, "width": 1, "dash": "dot"}
            figure.add_hline(y=1, line=line, row=panel // COLUMNS + 1, col=panel % COLUMNS + 1)
    return figure.update_annotations(font_size=12).update_xaxes(range=[-0.5, len(amounts) - 0.5])


def beyond(dataset: xarray.Dataset) -> int:
    """Values that are beyond the edge of their picture, such as the slope of 1 / s_1 where a block has died."""
    return sum(
        int(_far(dataset.sel(quantity=quantity)["value"].values).sum()) for quantity in names_of(dataset, "quantity")
    )


def _far(values: numpy.ndarray) -> numpy.ndarray:
    size = numpy.abs(values)
    return size > FAR * float(numpy.nanmedian(size)) if numpy.isfinite(size).any() else numpy.zeros_like(size, bool)


def _range(here: xarray.Dataset) -> Axis:
    """Of one quantity: around its values and intervals, without those that are far away."""
    values, scale = here["value"].values, str(here["scale"].item())
    there = values[numpy.isfinite(values) & ~_far(values)]
    if not there.size:
        return {}
    if scale == "ratio" and needs_logarithm(there):
        return axis(log=True)
    ends = numpy.concatenate(
        [there, *(here[name].values[numpy.isfinite(here[name].values)] for name in ("low", "high"))]
    )
    ends = ends[numpy.abs(ends) <= max(numpy.abs(there).max(), FAR * numpy.median(numpy.abs(there)))]
    low, high = float(ends.min()), float(ends.max())
    if scale in ("share", "correlation") and high - low < LEAST_SPAN:
        low, high = (low + high - LEAST_SPAN) / 2, (low + high + LEAST_SPAN) / 2
    margin = MARGIN * ((high - low) or 1.0)
    return axis(range=[low - margin, high + margin])


def _of_series(
    own: xarray.Dataset, name: str, place: int, panel: int, amounts: list[float], shift: float
) -> list[Series]:
    """The networks of one series as points, and their means with intervals."""
    texts = [f"{dose:g}" for dose in own["dose"].values]
    x = numpy.array([amounts.index(float(dose)) for dose in own["dose"].values]) + shift
    value = own["value"].transpose("case", "network").values
    case, network = numpy.nonzero(numpy.isfinite(value))
    title = name or "mean and 95 % interval"
    points = {"marker": {"size": 4, "color": GREY, "opacity": 0.6}, "line": None, "legendgroup": None}
    one = Series(
        "one network",
        x[case],
        value[case, network],
        "%{text}: %{y:.4g}",
        name,
        panel,
        0,
        "markers",
        labelled=panel == 0 and place == 0,
        text=[texts[k] for k in case],
        more=points,
    )
    mean, low, high = (own[key].values for key in ("mean", "low", "high"))
    middle = Series(
        title, x, mean, "%{text}: %{y:.4g}", "{name}", panel, place, size=6, width=1.5, labelled=panel == 0, text=texts
    )
    return [one, middle.with_error(numpy.nan_to_num(mean - low), numpy.nan_to_num(high - mean))]
