"""Distributions of activations, weights and gradients along training, as they are: nothing is normalised."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy
import xarray

from skipscope.errors import InputError
from skipscope.report.style import COLOURS, GREY, by_network, named_ticks, styled

ROWS = 96  # cells of a panel from its smallest to its largest value
DECADES = 8.0  # at most, of an axis on either side of zero
TICKS = 9  # labels of an axis, at most
LABEL = 0.06  # of an axis, the height of a label
EMPTIEST = -5  # log10 of the share of values from which on a cell has a colour
EPOCHS_SHOWN = 8
LINES: dict[str | float, tuple[str, str, str]] = {  # quantity: name, colour, dash; quantiles by their share
    "minimum": ("smallest and largest", GREY, "dot"),
    "maximum": ("smallest and largest", GREY, "dot"),
    0.01: ("1 % and 99 %", COLOURS[1], "solid"),
    0.99: ("1 % and 99 %", COLOURS[1], "solid"),
    0.5: ("median", COLOURS[6], "dash"),
}


def distributions(datasets: xarray.Dataset | Mapping[str, xarray.Dataset], what: str = "activations") -> Any:
    """All values of a quantity against the epoch, one row per layer, one column per network.

    Cells are the share of values, lines are quantiles. An axis is linear around zero and logarithmic from there on, the
    same for all networks of a row. datasets: of `training.trackers.distributions`, with dimension `network` or by name.
    """
    from plotly.subplots import make_subplots

    cases = {name: data.sel(what=what) for name, data in by_network(datasets).items() if what in data["what"].values}
    if not cases:
        raise InputError(f"distributions: no dataset has '{what}'; expected what from {', '.join(_known(datasets))}")
    rows, columns = max(data.sizes["layer"] for data in cases.values()), len(cases)
    panels = {
        (row, column): data.isel(layer=row)
        for row in range(rows)
        for column, data in enumerate(cases.values())
        if row < data.sizes["layer"]
    }
    names = list(cases)
    figure = make_subplots(
        rows,
        columns,
        subplot_titles=[
            _title(names[column], panels[row, column]) if (row, column) in panels else ""
            for row in range(rows)
            for column in range(columns)
        ],
        shared_yaxes=True,
        vertical_spacing=0.3 / rows,
        horizontal_spacing=0.03,
    )
    for row in range(rows):
        of_row = {column: data for (place, column), data in panels.items() if place == row}
        axis = _Axis(list(of_row.values()))
        for column, data in of_row.items():
            _panel(figure, data, axis, legend=(row, column) == next(iter(panels)), row=row + 1, col=column + 1)
        figure.update_yaxes(**axis.ticks(), row=row + 1)
    figure.update_yaxes(title_text=what, col=1)
    figure.update_xaxes(title_text="epoch", row=rows)
    figure.update_layout(
        coloraxis={
            "colorscale": "Blues",
            "cmin": EMPTIEST,
            "cmax": 0,
            "colorbar": {
                "title": "share of<br>values",
                "thickness": 12,
                "tickvals": list(range(EMPTIEST, 1)),
                "ticktext": [f"10<sup>{power}</sup>" for power in range(EMPTIEST, 0)] + ["1"],
            },
        }
    )
    return styled(figure, height=120 + 300 * rows).update_layout(margin={"t": 100})


def layer_in_words(data: xarray.Dataset) -> str:
    """Of a dataset at one layer."""
    return f"{_number(data)}: {data['layer'].item()}"


def _known(datasets: xarray.Dataset | Mapping[str, xarray.Dataset]) -> list[str]:
    return sorted({str(what) for data in by_network(datasets).values() for what in data["what"].values})


class _Axis:
    """x -> sign(x) log10(1 + |x| / linear): the values of several panels on one axis."""

    def __init__(self, panels: list[xarray.Dataset]) -> None:
        ends = numpy.concatenate([data[name].values.ravel() for data in panels for name in ("minimum", "maximum")])
        ends = ends[numpy.isfinite(ends)]
        self.low, self.high = (float(ends.min()), float(ends.max())) if ends.size else (-1.0, 1.0)
        sizes = numpy.concatenate([data["p99_abs"].values.ravel() for data in panels])
        sizes = sizes[numpy.isfinite(sizes) & (sizes > 0)]
        largest = max(abs(self.low), abs(self.high)) or 1.0
        least = max(sizes.min() / 100 if sizes.size else largest, largest / 10**DECADES)
        self.linear = 10.0 ** numpy.floor(numpy.log10(least))
        bottom, top = self(numpy.array([self.low, self.high]))
        margin = 0.03 * (top - bottom) or 0.5
        self.range = (float(bottom - margin), float(top + margin))

    def __call__(self, values: numpy.ndarray) -> numpy.ndarray:
        finite = numpy.where(numpy.isfinite(values), values, numpy.nan)
        return numpy.sign(finite) * numpy.log10(1 + abs(finite) / self.linear)

    def edges(self) -> numpy.ndarray:
        """Of cells of one height, on the axis."""
        return numpy.linspace(*self.range, ROWS + 1)

    def values(self, places: numpy.ndarray) -> numpy.ndarray:
        return numpy.sign(places) * self.linear * (10 ** abs(places) - 1)

    def ticks(self) -> dict[str, Any]:
        """Zero and powers of ten, every second or third where they are many."""
        first = round(numpy.log10(self.linear))
        last = int(numpy.floor(numpy.log10(max(abs(self.low), abs(self.high), self.linear))))
        step = -(-(2 * (last - first) + 3) // TICKS)
        signed = [(0.0, "0")]
        for power in range(last, first - 1, -step):
            text = f"{10.0**power:g}" if -3 <= power <= 3 else f"10<sup>{power}</sup>"
            signed += [(10.0**power, text), (-(10.0**power), f"-{text}")]
        places = self(numpy.array([value for value, _ in signed]))
        apart = LABEL * (self.range[1] - self.range[0])
        inside = [self.range[0] <= place <= self.range[1] and (place == 0 or abs(place) > apart) for place in places]
        return {
            "tickvals": [float(place) for place, shown in zip(places, inside, strict=True) if shown],
            "ticktext": [text for (_, text), shown in zip(signed, inside, strict=True) if shown],
            "range": list(self.range),
            "zeroline": False,
        }


def _title(name: str, data: xarray.Dataset) -> str:
    """Of one network with the layer's name; beside other networks names would run into each other."""
    return f"{name}<br>{_number(data)}" if name else layer_in_words(data)


def _number(data: xarray.Dataset) -> str:
    return f"layer {int(data['number'])} of {int(data.attrs['layers'])}"


def _panel(figure: Any, data: xarray.Dataset, axis: _Axis, *, legend: bool, **here: Any) -> None:
    from skipscope.training.streaming import rebinned  # which needs torch

    epochs = [str(epoch) for epoch in data["epoch"].values]
    places, edges = numpy.arange(len(epochs)), axis.edges()
    counts = data["histogram"].transpose("epoch", "bin").fillna(0).values
    values = axis.values(edges)
    cells = numpy.stack([rebinned(data["bin"].values, row, values) for row in counts], 1)  # ROWS, epochs
    with numpy.errstate(divide="ignore", invalid="ignore"):
        shares = cells / counts.sum(1)
        logarithms = numpy.where(shares > 0, numpy.log10(shares), numpy.nan)
    figure.add_heatmap(
        x=places,
        y=(edges[1:] + edges[:-1]) / 2,
        z=logarithms.astype(numpy.float32),
        coloraxis="coloraxis",
        hoverongaps=False,
        customdata=numpy.stack(
            [numpy.broadcast_to(edge[:, None], cells.shape) for edge in (values[:-1], values[1:])] + [shares], -1
        ),
        hovertemplate="%{customdata[2]:.2%} from %{customdata[0]:.3g} to %{customdata[1]:.3g}<extra></extra>",
        **here,
    )
    shown: set[str] = set()
    for quantity, (name, colour, dash) in LINES.items():
        line = data[quantity] if isinstance(quantity, str) else data["quantiles"].sel(quantile=quantity)
        figure.add_scatter(
            x=places,
            y=axis(line.values),
            customdata=line.values,
            text=epochs,
            mode="lines+markers" if len(epochs) == 1 else "lines",
            name=name,
            legendgroup=name,
            showlegend=legend and name not in shown,
            line={"color": colour, "dash": dash, "width": 1.5},
            hovertemplate=f"{_exactly(quantity)} at epoch %{{text}}: %{{customdata:.4g}}<extra></extra>",
            **here,
        )
        shown.add(name)
    lost = (data["nan"] + data["infinite"]).values
    if lost.any():
        figure.add_scatter(
            x=places[lost > 0],
            y=numpy.full((lost > 0).sum(), axis.range[1]),
            customdata=lost[lost > 0],
            mode="markers",
            name="NaN or infinite",
            showlegend=False,
            cliponaxis=False,
            marker={"symbol": "x", "size": 9, "color": COLOURS[1]},
            hovertemplate="%{customdata} values are NaN or infinite<extra></extra>",
            **here,
        )
    ticks = named_ticks(epochs, EPOCHS_SHOWN)
    figure.update_xaxes(
        **{**ticks, "tickangle": 0, "range": [-0.5, len(epochs) - 0.5]}, showgrid=False, zeroline=False, **here
    )


def _exactly(quantity: str | float) -> str:
    return quantity if isinstance(quantity, str) else f"{quantity:.0%} quantile"
