"""Residual alignment along training and when one thing is changed; neural collapse along training.

Means over seeds with a band of one standard deviation. Epochs are drawn at log10(1 + epoch), so that the first ones
are not on top of each other and the start, epoch 0, has a place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy
import xarray

from skipscope.report.charts import Axis, Series, axis, chart, titled_first
from skipscope.report.figures.alignment import VALUES_AGAINST_DEPTH, decay, leading_values
from skipscope.report.style import COLOURS, GREY, by_network, look, members, named_ticks, names_of, needs_logarithm

PANELS = {
    "line_shape": "line shape score, 1 = straight",
    "step_variation": "variation of the steps, 0 = equal",
    "over_chance_all": "m<sub>K</sub> / chance, 0 = aligned",
    "u1v1": "u<sub>1</sub> · v<sub>1</sub>, 1 = alike",
    "energy": "energy in the first C values",
    "r_squared": "R² of 1 / s<sub>1</sub> over depth",
}
COMPARED = {"line_shape": PANELS["line_shape"], "over_chance_all": PANELS["over_chance_all"]}
APART = 0.09  # of an axis, between the labels of two epochs
LEGEND_LINE, LEGEND_LETTERS = 24, 130  # height of a line of the legend, and how much stands in it
COLUMNS = 3  # of panels
LINE = {"color": GREY, "width": 1, "dash": "dot"}
WRAPPED = 28  # characters of a case's title above a small panel


def emergence(datasets: xarray.Dataset | Mapping[str, xarray.Dataset]) -> Any:
    """Straightness, alignment, rank and decay against the epoch, one panel per quantity, one curve per case.

    datasets: of the studies of paper A, with quantities (seed, epoch).
    """
    cases = by_network(datasets)
    labelled = None if len(cases) > 1 else False
    above = LEGEND_LINE * (sum(map(len, cases)) + 8 * len(cases)) // LEGEND_LETTERS
    ticks = _epoch_ticks(cases)
    figure = chart(
        [
            _mean_curve(name, data["epoch"].values, data[key].transpose("seed", "epoch").values, panel, place, labelled)
            for panel, key in enumerate(PANELS)
            for place, (name, data) in enumerate(cases.items())
        ],
        panels=list(PANELS.values()),
        columns=COLUMNS,
        x=[{**ticks, **axis("epoch" if panel + COLUMNS >= len(PANELS) else "")} for panel in range(len(PANELS))],
        y={},
        height=600 + above,
        vertical_spacing=0.2,
        horizontal_spacing=0.07,
    )
    chance = divmod(list(PANELS).index("over_chance_all"), COLUMNS)
    figure.add_hline(
        y=1,
        line=LINE,
        annotation_text="chance",
        annotation_font_color=GREY,
        row=chance[0] + 1,
        col=chance[1] + 1,
    )
    return figure.update_layout(margin={"t": 80 + above})


def last_values(dataset: xarray.Dataset) -> Any:
    """1 / s_1 with its line and the leading singular values against depth, after training, means over samples and
    seeds: the paper's figures 38 to 46."""
    return decay(as_alignment(dataset))


def as_alignment(dataset: xarray.Dataset) -> xarray.Dataset:
    """The singular values in the end as `ss.alignment` has them, a seed in the place of a sample."""
    return dataset[["value"]].isel(epoch=-1).rename(seed="sample").assign_attrs(measure="alignment")


def values_by_case(datasets: Mapping[str, xarray.Dataset]) -> Any:
    """Leading singular values against depth after training, means over seeds, one panel per case; those up to the
    number of classes in one colour and the rest in another."""
    columns = min(4, len(datasets))
    rows = -(-len(datasets) // columns)
    series: list[Series] = []
    for panel, data in enumerate(datasets.values()):
        values = (
            data["value"].isel(epoch=-1, rank=slice(VALUES_AGAINST_DEPTH)).mean("seed").transpose("rank", "unit").values
        )
        series += leading_values(values, int(data.attrs["classes"]), "the first C", panel)
    below = [axis("unit" if panel + columns >= len(datasets) else "") for panel in range(len(datasets))]
    return chart(
        series,
        panels=[_wrapped(name) for name in datasets],
        columns=columns,
        x=below,
        y={"rangemode": "tozero"},
        height=230 * rows + 130,
        vertical_spacing=0.3 / rows,
        horizontal_spacing=0.05,
    ).update_annotations(font_size=12)


def counterfactuals(datasets: Mapping[str, xarray.Dataset], base: str = "") -> Any:
    """Straightness and alignment after training, one row per case: one point per seed, a bar at their mean.

    base: the case that the others are compared with, whose means are dotted lines.
    """
    names = list(datasets)
    own = [COLOURS[1] if name == base else COLOURS[0] for name in names]
    nothing = dict.fromkeys(("legendgroup", "line"))
    series: list[Series] = []
    x: list[Axis] = []
    means_of_base: list[float] = []
    for panel, quantity in enumerate(COMPARED):
        values = [finite(data, quantity) for data in datasets.values()]
        rows = [place for place, seeds in enumerate(values) for _ in seeds]
        means = [_mean(seeds) for seeds in values]
        bars = {"symbol": "line-ns-open", "size": 20, "color": own, "line": {"width": 2}}
        points = {"size": 8, "color": [own[place] for place in rows], "opacity": 0.7}
        every, texts = numpy.concatenate(values), [names[place] for place in rows]
        more = {"marker": bars, **nothing}
        heading = "%{text}, mean: %{x:.4g}"
        series.append(Series("mean", means, range(len(names)), "", heading, panel, 0, "markers", text=names, more=more))
        more = {"marker": points, **nothing}
        series.append(
            Series(
                "one seed", every.tolist(), rows, "", "%{text}: %{x:.4g}", panel, 0, "markers", text=texts, more=more
            )
        )
        x.append(axis(log=needs_logarithm(every)))
        means_of_base += [means[names.index(base)]] if base in datasets else []
    figure = chart(
        series,
        panels=list(COMPARED.values()),
        x=x,
        y={
            "tickvals": list(range(len(names))),
            "ticktext": [_wrapped(name) for name in names],
            "range": [len(names) - 0.5, -0.5],
        },
        height=44 * len(names) + 190,
        shared_yaxes=True,
        horizontal_spacing=0.04,
    )
    for panel, mean in enumerate(means_of_base):
        figure.add_vline(x=mean, line=LINE, row=1, col=panel + 1)
    return figure.update_layout(margin={"l": 190})


def collapse_in_training(datasets: xarray.Dataset | Mapping[str, xarray.Dataset]) -> Any:
    """NC1 at the classifier's entry against the epoch, and against depth at the first and at the last epoch.

    datasets: of the study A.collapse, `nc1` (epoch, layer), by network.
    """
    cases = by_network(datasets)
    labelled = None if len(cases) > 1 else False
    series: list[Series] = []
    for place, (name, data) in enumerate(cases.items()):
        nc1, epochs = data["nc1"].transpose("epoch", "layer").values, data["epoch"].values
        texts, layers = [str(epoch) for epoch in epochs], names_of(data, "layer")
        hover, marker = "epoch %{text}: %{y:.4g}", look(name, place, size=7)["marker"]
        series.append(Series(name, _place(epochs), nc1[:, -1], hover, size=7, labelled=labelled, text=texts))
        for row, symbol in ((0, f"{marker['symbol']}-open"), (-1, marker["symbol"])):
            heading, more = f"{{name}}, epoch {epochs[row]}", {"marker": marker | {"symbol": symbol}}
            y, hover = nc1[row], "%{text}: %{y:.4g}"
            series.append(
                Series(name, range(len(layers)), y, hover, heading, 1, labelled=False, text=layers, more=more)
            )
    longest = max(cases.values(), key=lambda data: data.sizes["layer"])
    return chart(
        series,
        panels=["before the classifier", "by layer: first epoch (open) and last"],
        x=[{**_epoch_ticks(cases), **axis("epoch")}, named_ticks(names_of(longest, "layer"))],
        y=titled_first("NC1", 2, log=True),
        height=460,
        horizontal_spacing=0.1,
    )


def collapse_across(dataset: xarray.Dataset) -> Any:
    """NC1 against m over its chance level, one point per network, one colour per weight decay.

    dataset: of the study A.collapse, `nc1`, `over_chance_all`, `weight_decay` and `case` (network).
    """
    hover = "%{text}<br>NC1 %{x:.3g}, m / chance %{y:.3g}"
    return chart(
        [
            Series(
                f"decay {decay:g}",
                data["nc1"],
                data["over_chance_all"],
                hover,
                mode="markers",
                size=8,
                text=[str(case) for case in data["case"].values],
            )
            for decay, data in members(dataset.sortby("weight_decay"), "weight_decay")
        ],
        x=axis("NC1 before the classifier", log=True),
        y=axis("m / chance"),
        height=460,
    )


def _mean_curve(
    name: str, epochs: numpy.ndarray, values: numpy.ndarray, panel: int, place: int, labelled: bool | None
) -> Series:
    """Means over the seeds that have a value, in a band of one standard deviation; values: seed, epoch."""
    there = numpy.isfinite(values)
    counts = there.sum(0)
    mean = numpy.array([_mean(column) for column in values.T])
    text = [f"epoch {epoch}, n = {count}" for epoch, count in zip(epochs, counts, strict=True)]
    band = None
    if (counts > 1).any():
        width = numpy.full(len(epochs), numpy.nan)
        several = numpy.where(there, values, numpy.nan)[:, counts > 1]
        width[counts > 1] = numpy.nanstd(several, 0, ddof=1)
        band = mean - width, mean + width
    hover = "%{text}: %{y:.4g}"
    return Series(name, _place(epochs), mean, hover, "{name}", panel, place, labelled=labelled, band=band, text=text)


def _epoch_ticks(cases: Mapping[str, xarray.Dataset]) -> dict[str, Any]:
    """Labels where there is room for them; the first and the last epoch have one."""
    every = sorted({int(epoch) for data in cases.values() for epoch in data["epoch"].values})
    room = APART * float(_place(every)[-1] - _place(every)[0])
    shown = every[:1]
    for epoch in every[1:-1]:
        if min(_place([epoch])[0] - _place(shown)[-1], _place(every)[-1] - _place([epoch])[0]) >= room:
            shown.append(epoch)
    shown += every[-1:] if len(every) > 1 else []
    return {"tickvals": _place(shown), "ticktext": [str(epoch) for epoch in shown]}


def _place(epochs: Sequence[int] | numpy.ndarray) -> numpy.ndarray:
    return numpy.log10(1 + numpy.asarray(epochs, dtype=float))


def finite(data: xarray.Dataset, quantity: str, epoch: int = -1) -> numpy.ndarray:
    """One value per seed that has one: networks that diverged have none in the end."""
    values = data[quantity].isel(epoch=epoch).values
    return values[numpy.isfinite(values)]


def _mean(values: numpy.ndarray) -> float:
    there = values[numpy.isfinite(values)]
    return float(there.mean()) if there.size else float("nan")


def _wrapped(name: str) -> str:
    """In lines that fit beside and above a panel."""
    import textwrap

    return "<br>".join(textwrap.wrap(name, WRAPPED))
