"""Condition numbers of states and weights layer by layer, and spectra of Hessians."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy
import xarray

from skipscope.report.charts import GREY_LINE, Axis, Series, axis, chart
from skipscope.report.style import COLOURS, by_network, look, named_ticks, names_of, thinned

PANELS = {"state": ("layer", "hidden states"), "weight": ("weight", "weights")}  # prefix: dimension, title
SYMBOLS = {"numerically infinite": "triangle-up-open", "infinite": "triangle-up", "overflow": "x"}
SIGNS = {"positive": 1, "negative": -1}  # of eigenvalues of a Hessian
BINS = 80


def conditioning(datasets: xarray.Dataset | Mapping[str, xarray.Dataset], *, reduction: str = "max") -> Any:
    """Condition number against layer, one curve per network; marks on the dotted line are not finite, and say how."""
    networks = by_network(datasets)
    panels = {key: panel for key, panel in PANELS.items() if any(f"{key}_condition" in d for d in networks.values())}
    series: list[Series] = []
    x: list[Axis] = []
    ceilings: dict[int, float] = {}  # by panel, of those where something is not finite
    for panel, (key, (along, _)) in enumerate(panels.items()):
        there = {name: data for name, data in networks.items() if f"{key}_condition" in data}
        ceiling = _ceiling(there, key, reduction)
        for name, data in there.items():
            place, here = list(networks).index(name), data.sel(reduction=reduction)
            labelled = None if len(networks) > 1 else False
            series += _curve(here, key, along, name, place, panel, ceiling, labelled)
            if bool((_statuses(here, key) != "finite").any()):
                ceilings[panel] = ceiling
        longest = max(there.values(), key=lambda data: data.sizes[along])
        x.append({**named_ticks(names_of(longest, along)), **axis(along)})
    figure = chart(
        series,
        panels=[title for _, title in panels.values()],
        columns=1,
        x=x,
        y=axis("condition number", log=True),
        height=430 * len(panels) + 60,
        vertical_spacing=0.52 / len(panels),
    )
    for panel, ceiling in ceilings.items():
        figure.add_hline(y=ceiling, line={**GREY_LINE, "dash": "dot"}, row=panel + 1, col=1)
    return figure


def _ceiling(datasets: Mapping[str, xarray.Dataset], key: str, reduction: str) -> float:
    """A power of ten above all that is finite."""
    largest = 1.0
    for data in datasets.values():
        here = data.sel(reduction=reduction)
        finite = _statuses(here, key) == "finite"
        largest = max([largest, *here[f"{key}_condition"].values[finite]])
    return float(10 ** (numpy.ceil(numpy.log10(largest)) + 1))


def _curve(
    data: xarray.Dataset,
    key: str,
    along: str,
    name: str,
    place: int,
    panel: int,
    ceiling: float,
    labelled: bool | None,
) -> Iterator[Series]:
    """One network in a panel: a line of what is finite, and marks at the ceiling for what is not."""
    names, statuses = names_of(data, along), _statuses(data, key)
    finite = numpy.where(statuses == "finite", data[f"{key}_condition"].values, numpy.nan)
    hover = "%{text}: %{y:.3g}"
    yield Series(name, range(len(names)), finite, hover, "{name}", panel, place, labelled=labelled, text=names)
    for status, symbol in SYMBOLS.items():
        places = numpy.flatnonzero(statuses == status)
        if len(places):
            style = look(name, place)
            more = {
                "legendgroup": style["legendgroup"],
                "marker": {**style["marker"], "symbol": symbol, "size": 10},
                "line": None,
                "meta": {"y": [status] * len(places)},
            }
            title, text = f"{name}, {status}" if name else status, [f"{names[k]}<br>{status}" for k in places]
            y = numpy.full(len(places), ceiling)
            yield Series(title, places, y, "%{text}", name, panel, place, "markers", text=text, more=more)


def _statuses(dataset: xarray.Dataset, key: str) -> numpy.ndarray:
    return dataset[f"{key}_status"].values.astype(str)


def hessian(dataset: xarray.Dataset) -> Any:
    """Eigenvalues of a Hessian: their sizes by rank, one marker per sign, open where not converged; and how they are
    distributed, as a histogram of all of them or as the estimated density.

    dataset: of `ss.curvature`.
    """
    values, ranks = dataset["value"].values, dataset["eigenvalue"].values
    sure = dataset["converged"].values.astype(bool) if "converged" in dataset else numpy.ones(len(values), bool)
    series = []
    for place, (name, sign) in enumerate(SIGNS.items()):
        chosen = numpy.flatnonzero(sign * values > 0)
        chosen = chosen[thinned(len(chosen))]
        marker = look(name, place, size=5)["marker"]
        marker["symbol"] = [marker["symbol"] + ("" if sure[k] else "-open") for k in chosen]
        x, y, heading = ranks[chosen], numpy.abs(values[chosen]), "{name} eigenvalue %{x}: size %{y:.3g}"
        more = {"marker": marker, **dict.fromkeys(("line", "legendgroup", "showlegend"))}
        series.append(Series(name, x, y, "", heading, 0, place, "markers", more=more))
    more = {"legendgroup": None, "showlegend": False}
    if "density" in dataset:
        distribution, heading = "density", "%{x:.3g}: density %{y:.3g}"
        more |= {"line": {"color": COLOURS[2], "width": 2}, "marker": None}
        series.append(Series("density", dataset["grid"], dataset["density"], "", heading, 1, mode="lines", more=more))
    else:
        distribution, heading = "eigenvalues", "%{x:.3g}: %{y} eigenvalues"
        counts, edges = numpy.histogram(values[numpy.isfinite(values)], bins=BINS)
        more |= {"marker": {"color": COLOURS[2], "line": {"width": 0}}}
        centres = (edges[1:] + edges[:-1]) / 2
        series.append(Series("eigenvalues", centres, counts, "", heading, 1, mode="bars", more=more))
    figure = chart(
        series,
        panels=["sizes of eigenvalues", "distribution"],
        x=[axis("rank"), axis("eigenvalue")],
        y=[axis("|eigenvalue|", log=True), axis(distribution, type="log")],
        height=420,
        horizontal_spacing=0.1,
    )
    return figure if "density" in dataset else figure.update_layout(bargap=0)
