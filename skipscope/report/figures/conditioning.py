"""Condition numbers of states and weights layer by layer; those that are not finite have a place above the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy

from skipscope.report.style import GREY, by_network, look, named_ticks, names_of, styled

if TYPE_CHECKING:
    import xarray

PANELS = {"state": ("layer", "hidden states"), "weight": ("weight", "weights")}  # prefix: dimension, title
SYMBOLS = {"numerically infinite": "triangle-up-open", "infinite": "triangle-up", "overflow": "x"}


def conditioning(datasets: xarray.Dataset | Mapping[str, xarray.Dataset], *, reduction: str = "max") -> Any:
    """Condition number against layer, one curve per network; marks on the dotted line are not finite, and say how."""
    from plotly.subplots import make_subplots

    named = by_network(datasets)
    panels = {key: panel for key, panel in PANELS.items() if any(f"{key}_condition" in d for d in named.values())}
    figure = make_subplots(
        len(panels), 1, subplot_titles=[title for _, title in panels.values()], vertical_spacing=0.44 / len(panels)
    )
    labelled: set[str] = set()
    for row, (key, (along, _)) in enumerate(panels.items(), start=1):
        there = {name: data for name, data in named.items() if f"{key}_condition" in data}
        ceiling = _ceiling(there, key, reduction)
        beyond = False
        for place, (name, data) in enumerate(named.items()):
            if name in there:
                fresh = name not in labelled and len(named) > 1
                beyond |= _draw(figure, row, data.sel(reduction=reduction), key, along, name, place, ceiling, fresh)
                labelled.add(name)
        longest = max(there.values(), key=lambda data: data.sizes[along])
        figure.update_xaxes(**named_ticks(names_of(longest, along)), row=row, col=1)
        figure.update_yaxes(type="log", exponentformat="power", title_text="condition number", row=row, col=1)
        if beyond:
            figure.add_hline(y=ceiling, line={"color": GREY, "width": 1, "dash": "dot"}, row=row, col=1)
    return styled(figure, height=400 * len(panels) + 60)


def _ceiling(datasets: Mapping[str, xarray.Dataset], key: str, reduction: str) -> float:
    """A power of ten above all that is finite."""
    largest = 1.0
    for data in datasets.values():
        here = data.sel(reduction=reduction)
        finite = _statuses(here, key) == "finite"
        largest = max([largest, *here[f"{key}_condition"].values[finite]])
    return float(10 ** (numpy.ceil(numpy.log10(largest)) + 1))


def _draw(
    figure: Any,
    row: int,
    data: xarray.Dataset,
    key: str,
    along: str,
    name: str,
    place: int,
    ceiling: float,
    labelled: bool,
) -> bool:
    """One network's curve in a panel; whether something of it is not finite."""
    names, values, statuses = names_of(data, along), data[f"{key}_condition"].values, _statuses(data, key)
    style = look(name, place)
    figure.add_scatter(
        x=list(range(len(names))),
        y=numpy.where(statuses == "finite", values, numpy.nan),
        text=names,
        mode="lines+markers",
        showlegend=labelled,
        **style,
        hovertemplate=f"{name}<br>%{{text}}: %{{y:.6g}}<extra></extra>",
        row=row,
        col=1,
    )
    for status, symbol in SYMBOLS.items():
        places = numpy.flatnonzero(statuses == status)
        if len(places):
            title = f"{name}, {status}" if name else status
            figure.add_scatter(
                x=places,
                y=numpy.full(len(places), ceiling),
                text=[f"{names[k]}<br>{status}" for k in places],
                mode="markers",
                name=title,
                legendgroup=style["legendgroup"],
                showlegend=all(drawn.name != title for drawn in figure.data),
                marker={**style["marker"], "symbol": symbol, "size": 10},
                meta={"y": [status] * len(places)},
                hovertemplate=f"{name}<br>%{{text}}<extra></extra>",
                row=row,
                col=1,
            )
    return bool((statuses != "finite").any())


def _statuses(dataset: xarray.Dataset, key: str) -> numpy.ndarray:
    return dataset[f"{key}_status"].values.astype(str)
