"""Residual alignment along training and when one thing is changed; neural collapse along training.

Means over seeds with a band of one standard deviation. Epochs are drawn at log10(1 + epoch), so that the first ones
can be told apart and the start, epoch 0, has a place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy

from skipscope.report.figures.alignment import SHOWN_VALUES, decay
from skipscope.report.style import (
    COLOURS,
    GREY,
    by_network,
    look,
    named_ticks,
    names_of,
    needs_logarithm,
    shade,
    styled,
)

if TYPE_CHECKING:
    import xarray

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
LINE = {"color": GREY, "width": 1, "dash": "dot"}
WRAPPED = 28  # characters of a case's title above a small panel


def emergence(datasets: xarray.Dataset | Mapping[str, xarray.Dataset]) -> Any:
    """Straightness, alignment, rank and decay against the epoch, one panel a quantity, one curve a case.

    datasets: of the studies of paper A, with quantities (seed, epoch).
    """
    from plotly.subplots import make_subplots

    cases = by_network(datasets)
    columns = 3
    rows = -(-len(PANELS) // columns)
    figure = make_subplots(
        rows, columns, subplot_titles=list(PANELS.values()), vertical_spacing=0.2, horizontal_spacing=0.07
    )
    for panel, quantity in enumerate(PANELS):
        here = {"row": panel // columns + 1, "col": panel % columns + 1}
        for place, (name, data) in enumerate(cases.items()):
            values = data[quantity].transpose("seed", "epoch").values
            style = look(name, place) | {"showlegend": panel == 0 and len(cases) > 1}
            _band(figure, data["epoch"].values, values, style, **here)
        if quantity == "over_chance_all":
            figure.add_hline(y=1, line=LINE, annotation_text="chance", annotation_font_color=GREY, **here)
    _epoch_axis(figure, [int(epoch) for data in cases.values() for epoch in data["epoch"].values])
    figure.update_xaxes(title_text="epoch", row=rows)
    above = LEGEND_LINE * (sum(map(len, cases)) + 8 * len(cases)) // LEGEND_LETTERS
    return styled(figure, height=600 + above).update_layout(margin={"t": 80 + above})


def last_values(dataset: xarray.Dataset) -> Any:
    """1 / s_1 with its line and the leading singular values against depth, after training, means over samples and
    seeds: the paper's figures 38 to 46."""
    return decay(as_alignment(dataset))


def as_alignment(dataset: xarray.Dataset) -> xarray.Dataset:
    """The singular values in the end as `ss.alignment` has them, a seed in the place of a sample."""
    return dataset[["value"]].isel(epoch=-1).rename(seed="sample").assign_attrs(measure="alignment")


def values_by_case(datasets: Mapping[str, xarray.Dataset]) -> Any:
    """Leading singular values against depth after training, means over seeds, one panel a case; those up to the number
    of classes in one colour and the rest in another."""
    from plotly.subplots import make_subplots

    columns = min(4, len(datasets))
    rows = -(-len(datasets) // columns)
    figure = make_subplots(
        rows,
        columns,
        subplot_titles=[_wrapped(name) for name in datasets],
        vertical_spacing=0.3 / rows,
        horizontal_spacing=0.05,
    )
    labelled: set[bool] = set()
    for panel, data in enumerate(datasets.values()):
        classes = int(data.attrs["classes"])
        values = data["value"].isel(epoch=-1, rank=slice(SHOWN_VALUES)).mean("seed").transpose("rank", "unit").values
        for place, row in enumerate(values):
            inside = place < classes
            figure.add_scatter(
                x=list(range(1, len(row) + 1)),
                y=row,
                mode="lines+markers",
                name="the first C" if inside else "after them",
                legendgroup="inside" if inside else "after",
                showlegend=inside not in labelled,
                line={"color": COLOURS[0 if inside else 1], "width": 1.2, "dash": "solid" if inside else "dot"},
                marker={"size": 4, "symbol": "circle" if inside else "diamond"},
                hovertemplate=f"unit %{{x}}, s{place + 1}: %{{y:.5g}}<extra></extra>",
                row=panel // columns + 1,
                col=panel % columns + 1,
            )
            labelled.add(inside)
    figure.update_yaxes(rangemode="tozero")
    figure.update_annotations(font_size=12)
    for column in range(1, columns + 1):  # below the last panel of a column
        figure.update_xaxes(title_text="unit", row=rows - (column > (len(datasets) - 1) % columns + 1), col=column)
    return styled(figure, height=230 * rows + 130)


def counterfactuals(datasets: Mapping[str, xarray.Dataset], base: str = "") -> Any:
    """Straightness and alignment after training, a row a case: a point a seed, a bar at their mean.

    base: the case that the others are compared with, whose means are dotted lines.
    """
    from plotly.subplots import make_subplots

    names = list(datasets)
    titles = list(COMPARED.values())
    figure = make_subplots(1, len(titles), subplot_titles=titles, shared_yaxes=True, horizontal_spacing=0.04)
    for column, quantity in enumerate(COMPARED):
        here = {"row": 1, "col": column + 1}
        columns = [_last(data, quantity) for data in datasets.values()]
        points = [(value, place) for place, values in enumerate(columns) for value in values]
        means = [_mean(values) for values in columns]
        own = [COLOURS[1] if name == base else COLOURS[0] for name in names]
        figure.add_scatter(
            x=means,
            y=list(range(len(names))),
            text=names,
            mode="markers",
            name="mean",
            showlegend=column == 0,
            marker={"symbol": "line-ns-open", "size": 20, "color": own, "line": {"width": 2}},
            hovertemplate="%{text}, mean: %{x:.4g}<extra></extra>",
            **here,
        )
        figure.add_scatter(
            x=[value for value, _ in points],
            y=[place for _, place in points],
            text=[names[place] for _, place in points],
            mode="markers",
            name="one seed",
            showlegend=column == 0,
            marker={"size": 8, "color": [own[place] for _, place in points], "opacity": 0.7},
            hovertemplate="%{text}: %{x:.4g}<extra></extra>",
            **here,
        )
        if base in datasets:
            figure.add_vline(x=means[names.index(base)], line=LINE, **here)
        if needs_logarithm(numpy.concatenate(columns)):
            figure.update_xaxes(type="log", exponentformat="power", **here)
    figure.update_yaxes(
        tickvals=list(range(len(names))),
        ticktext=[_wrapped(name) for name in names],
        range=[len(names) - 0.5, -0.5],
    )
    return styled(figure, height=44 * len(names) + 190).update_layout(margin={"l": 190})


def collapse_in_training(datasets: xarray.Dataset | Mapping[str, xarray.Dataset]) -> Any:
    """NC1 at the classifier's entry against the epoch, and against depth at the first and at the last epoch.

    datasets: of the study A.collapse, `nc1` (epoch, layer), by network.
    """
    from plotly.subplots import make_subplots

    cases = by_network(datasets)
    titles = ["before the classifier", "by layer: first epoch (open) and last"]
    figure = make_subplots(1, 2, subplot_titles=titles, horizontal_spacing=0.1)
    for place, (name, data) in enumerate(cases.items()):
        nc1, epochs = data["nc1"].transpose("epoch", "layer").values, data["epoch"].values
        style = look(name, place, size=7)
        figure.add_scatter(
            x=_place(epochs),
            y=nc1[:, -1],
            text=[str(epoch) for epoch in epochs],
            mode="lines+markers",
            showlegend=len(cases) > 1,
            **style,
            hovertemplate=f"{name}<br>epoch %{{text}}: %{{y:.4g}}<extra></extra>",
            row=1,
            col=1,
        )
        for row, open_marker in ((0, "-open"), (-1, "")):
            marker = style["marker"] | {"symbol": style["marker"]["symbol"] + open_marker}
            figure.add_scatter(
                x=list(range(nc1.shape[1])),
                y=nc1[row],
                text=names_of(data, "layer"),
                mode="lines+markers",
                showlegend=False,
                **(style | {"marker": marker}),
                hovertemplate=f"{name}, epoch {epochs[row]}<br>%{{text}}: %{{y:.4g}}<extra></extra>",
                row=1,
                col=2,
            )
    longest = max(cases.values(), key=lambda data: data.sizes["layer"])
    _epoch_axis(figure, [int(epoch) for data in cases.values() for epoch in data["epoch"].values], row=1, col=1)
    figure.update_xaxes(title_text="epoch", row=1, col=1)
    figure.update_xaxes(**named_ticks(names_of(longest, "layer")), row=1, col=2)
    figure.update_yaxes(type="log", exponentformat="power")
    figure.update_yaxes(title_text="NC1", row=1, col=1)
    return styled(figure, height=460)


def _band(figure: Any, epochs: numpy.ndarray, values: numpy.ndarray, style: dict[str, Any], **here: int) -> None:
    """A curve of means over the seeds that have a value, in a band of one standard deviation; values: seed, epoch."""
    there = numpy.isfinite(values)
    counts = there.sum(0)
    x = _place(epochs)
    mean = numpy.array([_mean(column) for column in values.T])
    several = counts > 1
    if several.any():
        width = numpy.nanstd(numpy.where(there, values, numpy.nan)[:, several], 0, ddof=1)
        shade(figure, x[several], mean[several] - width, mean[several] + width, style, **here)
    figure.add_scatter(
        x=x,
        y=mean,
        text=[f"epoch {epoch}, n = {count}" for epoch, count in zip(epochs, counts, strict=True)],
        mode="lines+markers",
        **style,
        hovertemplate=f"{style['name']}<br>%{{text}}: %{{y:.4g}}<extra></extra>",
        **here,
    )


def _epoch_axis(figure: Any, epochs: Sequence[int], **here: int) -> None:
    """Labels where there is room for them; the first and the last have one."""
    every = sorted(set(epochs))
    room = APART * float(_place(every)[-1] - _place(every)[0])
    shown = every[:1]
    for epoch in every[1:-1]:
        if min(_place([epoch])[0] - _place(shown)[-1], _place(every)[-1] - _place([epoch])[0]) >= room:
            shown.append(epoch)
    shown += every[-1:] if len(every) > 1 else []
    figure.update_xaxes(tickvals=_place(shown), ticktext=[str(epoch) for epoch in shown], **here)


def _place(epochs: Sequence[int] | numpy.ndarray) -> numpy.ndarray:
    return numpy.log10(1 + numpy.asarray(epochs, dtype=float))


def _last(data: xarray.Dataset, quantity: str) -> numpy.ndarray:
    """One value a seed that has one."""
    values = data[quantity].isel(epoch=-1).values
    return values[numpy.isfinite(values)]


def _mean(values: numpy.ndarray) -> float:
    there = values[numpy.isfinite(values)]
    return float(there.mean()) if there.size else float("nan")


def _wrapped(name: str) -> str:
    """In lines that fit beside and above a panel."""
    import textwrap

    return "<br>".join(textwrap.wrap(name, WRAPPED))
