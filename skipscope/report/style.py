"""How every figure looks, and which parts of a dataset it shows.

Colours are those of Okabe and Ito, which readers with any colour vision can tell apart; dashes and markers say the same
once more.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy
import xarray

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("solid", "dash", "dot", "dashdot")
MARKERS = ("circle", "diamond", "square", "triangle-up", "x", "cross", "star")
GREY = "#999999"
LOGARITHMIC_FROM = 20  # largest over smallest value, from which on an axis is logarithmic
POINTS_IN_CURVE = 500  # of a curve with more of them, evenly spaced; the ends are always there
NAMES_ON_AXIS = 12  # tick labels of one axis, so that they do not run into each other
FOREIGN = re.compile(r"<(?!/?(?:br|sub|sup|extra)>)")  # what begins a tag that is not one of ours
BRANCHES = {"linear": "MLP"}  # kinds of branches with another name for readers
NOT_CONVERGED_MARK = " *"  # behind the name of what did not converge


def by_network(datasets: xarray.Dataset | Mapping[str, xarray.Dataset]) -> dict[str, xarray.Dataset]:
    """One dataset per network; those of a dataset with the dimension `network` by their own names."""
    if isinstance(datasets, xarray.Dataset):
        datasets = {str(datasets.attrs.get("network", "")): datasets}
    found: dict[str, xarray.Dataset] = {}
    for name, data in datasets.items():
        if "network" in data.dims:
            found |= {str(own): data.sel(network=own) for own in data["network"].values}
        else:
            found[name] = data
    return found


def members(dataset: xarray.Dataset, key: str) -> Iterator[tuple[Any, xarray.Dataset]]:
    """What charts draw as one series or panel and tables show as one row: members of a dimension, or rows with the same
    value of a variable, in the order of the first of each; value and part."""
    if not key:
        yield "", dataset
        return
    (dimension,) = dataset[key].dims
    for value in dict.fromkeys(dataset[key].values.tolist()):
        chosen = dataset[key].values == value
        yield value, dataset.isel({dimension: chosen.argmax() if key == dimension else chosen})


def needs_logarithm(values: numpy.ndarray) -> bool:
    """Whether numbers differ so much that only a logarithmic axis shows them all, which has no place below zero."""
    there = values[~numpy.isnan(values)]
    return bool(there.size) and there.min() > 0 and bool(there.max() > LOGARITHMIC_FROM * there.min())


def names_of(dataset: xarray.Dataset, dimension: str) -> list[str]:
    return [str(name) for name in dataset[dimension].values]


def converged(dataset: xarray.Dataset, name: str, dimension: str = "unit") -> bool:
    """Whether all numbers of one unit did, as far as the dataset says."""
    return "converged" not in dataset or bool(dataset["converged"].sel({dimension: name}).all())


def marked(dataset: xarray.Dataset, name: str, dimension: str = "unit") -> str:
    return name if converged(dataset, name, dimension) else name + NOT_CONVERGED_MARK


def middle_and_spread(
    data: xarray.Dataset, key: str
) -> tuple[numpy.ndarray, numpy.ndarray | None, numpy.ndarray | None]:
    """A quantity with the lengths of its error bars below and above: of several samples the median and the way to the
    quartiles, else the value and its standard error; None where there is neither."""
    values = data[key]
    if "sample" in values.dims:
        middle = values.median("sample")
        if values.sizes["sample"] == 1:
            return middle.values, None, None
        with warnings.catch_warnings():  # a unit without any number has no quartiles either
            warnings.filterwarnings("ignore", "All-NaN slice encountered")
            low, high = (values.quantile(share, "sample").values for share in (0.25, 0.75))
        return middle.values, middle.values - low, high - middle.values
    error = data[f"{key}_error"].values if f"{key}_error" in data and data[f"{key}_error"].dims == values.dims else None
    return values.values, error, error


def kinds_of_branch(data: xarray.Dataset) -> dict[str, list[int]]:
    """Places of the units by what is in their branches (attention, MLP), as far as the dataset says."""
    found: dict[str, list[int]] = {}
    if "branch" in data.coords and data["branch"].dims == ("unit",):
        for place, kind in enumerate(names_of(data, "branch")):
            found.setdefault(BRANCHES.get(kind, kind), []).append(place)
    found.pop("", None)
    return found


def look(name: str, place: int, size: int = 6, width: float = 2) -> dict[str, Any]:
    colour = COLOURS[place % len(COLOURS)]
    return {
        "name": name,
        "legendgroup": name,
        "line": {"color": colour, "dash": DASHES[place % len(DASHES)], "width": width},
        "marker": {"symbol": MARKERS[place % len(MARKERS)], "size": size, "color": colour},
    }


def thinned(count: int, shown: int = POINTS_IN_CURVE) -> list[int]:
    if count <= shown:
        return list(range(count))
    return [round(k * (count - 1) / (shown - 1)) for k in range(shown)]


def named_ticks(names: Sequence[str], shown: int = NAMES_ON_AXIS) -> dict[str, Any]:
    """Of an axis over the places 0, 1, ... of names: as many labels as can be read."""
    step = -(-len(names) // shown)
    places = list(range(0, len(names), step))
    margin = 0.02 * len(names) + 0.1
    return {
        "tickvals": places,
        "ticktext": [names[place] for place in places],
        "tickangle": -45,
        "range": [-margin, len(names) - 1 + margin],
    }


def shade(
    figure: Any, x: numpy.ndarray, low: numpy.ndarray, high: numpy.ndarray, style: dict[str, Any], **here: Any
) -> None:
    """The band between two curves, in the colour of a style of `look` and shown or hidden with its curve.

    Where a curve is NaN there is no band.
    """
    there = ~numpy.isnan(low)
    x, low, high = x[there], low[there], high[there]
    colour = style["line"]["color"]
    figure.add_scatter(
        x=numpy.concatenate([x, x[::-1]]),
        y=numpy.concatenate([high, low[::-1]]),
        mode="lines",
        fill="toself",
        fillcolor=colour,
        opacity=0.15,
        line={"width": 0, "color": colour},
        legendgroup=style["legendgroup"],
        showlegend=False,
        hoverinfo="skip",
        **here,
    )


def without_foreign_markup(figure: Any) -> Any:
    """The figure with only our own tags in it.

    Plotly takes any text for HTML, links and styles with addresses included, and names in a dataset may come from
    anybody. Done where every figure ends, so that none can forget it.
    """
    before = figure.to_plotly_json()
    after = _literal(before)
    return figure if after is before else figure.update(after, overwrite=True)  # in place: it keeps its panels


def _literal(value: Any) -> Any:
    """The same object where nothing in it has to change."""
    if isinstance(value, str):
        return FOREIGN.sub("&lt;", value) if FOREIGN.search(value) else value
    if isinstance(value, dict):
        changed = {key: _literal(part) for key, part in value.items()}
        return value if all(changed[key] is value[key] for key in value) else changed
    if isinstance(value, (list, tuple)):
        parts = [_literal(part) for part in value]
        return value if all(new is old for new, old in zip(parts, value, strict=True)) else parts
    if isinstance(value, numpy.ndarray) and value.dtype.kind in "OUS":
        listed = value.tolist()
        parts = _literal(listed)
        return value if parts is listed else parts
    return value


def styled(figure: Any, height: int) -> Any:
    figure = without_foreign_markup(figure)
    figure.update_layout(
        template="plotly_white",
        height=height,
        font={"family": "system-ui, sans-serif", "size": 13},
        legend={"orientation": "h", "yref": "container", "y": 1, "yanchor": "top", "x": 0, "xanchor": "left"},
        margin={"l": 60, "r": 20, "t": 80, "b": 70},
    )
    # Small numbers as powers of ten, as everywhere else, and not as 500µ.
    figure.update_xaxes(exponentformat="power")
    figure.update_yaxes(exponentformat="power")
    return figure
