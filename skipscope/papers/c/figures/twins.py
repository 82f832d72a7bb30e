"""PlainNet, ResNet and their kin, trained alike: the accuracies that they reach, and how they come there.

One colour per network, one thin line per seed. A network is shown at the learning rate at which it is measured.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy
import xarray

from skipscope.report.charts import GREY_LINE, Series, axis, chart, lines
from skipscope.report.style import COLOURS, GREY, names_of, without_foreign_markup

KNOWN = ("PlainNet", "ResNet", "ResNeXt", "DiracNet")  # look the same in all figures
ACCURACIES = {"train": "train accuracy", "test": "test accuracy"}
ALONG = {
    "loss": "training loss",
    "train_accuracy_along": "train accuracy",
    "test_accuracy_along": "test accuracy",
    "test_loss_along": "test loss, at looks",
}
WIDTH_OF_ONE, WIDTH_OF_SEVERAL = 2.0, 1.1  # of lines: of one seed, of several
MARKS: dict[str, dict[str, Any]] = {  # of accuracies, by what they are; drawn in this order
    "chance": {"symbol": "line-ns-open", "size": 18, "line": {"width": 2}},
    "one seed": {"size": 9, "opacity": 0.7},
    "the paper": {"symbol": "star-open", "size": 13, "line": {"width": 2}},
    "diverged at all rates": {"symbol": "x", "size": 9},
}
SAME_RATE = 1e-6  # relative
ROW = 30  # height of a network


def twin_accuracies(cases: Mapping[str, xarray.Dataset]) -> Any:
    """Train and test accuracies at the measured rate, one row per network, one point per seed, stars: the paper's.

    cases: by title, of the studies of paper C. Grey bars are chance; a cross at 0 is a seed that diverged at all rates.
    """
    rows: list[tuple[str, str, str]] = []  # title, network, colour; a title has a row of its own above its networks
    for title, data in cases.items():
        looks = places(names_of(data, "network"))
        rows += [(title, "", "")] + [(title, name, COLOURS[look % len(COLOURS)]) for name, look in looks.items()]
    named = {place: name for place, (_, name, _) in enumerate(rows) if name}
    series = []
    for panel, key in enumerate(ACCURACIES):
        marks: dict[str, list[tuple[float, int, str, str]]] = {
            kind: [] for kind in MARKS
        }  # accuracy, row, text, colour
        for place, name in named.items():
            title, _, colour = rows[place]
            data, text = cases[title], f"{name}, {title}"
            marks["chance"].append((float(data.attrs["chance"]), place, text, GREY))
            for one in at_best(data, key).sel(network=name):
                kind, accuracy = ("one seed", float(one)) if numpy.isfinite(one) else ("diverged at all rates", 0.0)
                marks[kind].append((accuracy, place, f"{text}, seed {int(one['seed'])}", colour))
            if name in in_paper(data, key):
                marks["the paper"].append((in_paper(data, key)[name], place, text, colour))
        for kind, found in marks.items():
            if found:
                x, y, texts, colours = map(list, zip(*found, strict=True))
                more = {"marker": {**MARKS[kind], "color": colours}, "line": None}
                points = Series(kind, x, y, "{name}: %{x:.4f}", "%{text}", panel, 0, "markers", text=texts, more=more)
                series.append(replace(points, labelled=panel == 0))
    figure = chart(
        series,
        panels=list(ACCURACIES.values()),
        x={"range": [-0.03, 1.03]},
        y={
            "tickvals": list(named),
            "ticktext": list(named.values()),
            "range": [len(rows) - 0.5, -0.5],
            "zeroline": False,
        },
        height=ROW * len(rows) + 170,
        shared_yaxes=True,
        horizontal_spacing=0.04,
    )
    at_left = {"x": 0, "xref": "x", "yref": "y", "xanchor": "left", "xshift": -100, "yshift": -4}
    for place, (title, name, _) in enumerate(rows):
        if not name:
            figure.add_annotation(y=place, text=title, showarrow=False, font={"size": 13}, **at_left)
    return without_foreign_markup(figure).update_layout(margin={"l": 40 + 7 * max(map(len, named.values()))})


def twin_curves(dataset: xarray.Dataset) -> Any:
    """Losses, train and test accuracy against the epoch at the measured rate: the paper's figures 2 and 3.

    dataset: of one case. Epochs without a test have no point; curves end where a network diverges.
    """
    series: list[Series] = []
    shown = {key: title for key, title in ALONG.items() if key in dataset}
    for panel, key in enumerate(shown):
        for name, place in places(names_of(dataset, "network")).items():
            tested = key.startswith("test")
            series += seed_lines(dataset[key].sel(network=name), name, place, panel, connected=tested)
    figure = chart(
        series,
        panels=list(shown.values()),
        x=axis("epoch"),
        y=[axis(log=True) if "loss" in key else {"range": [-0.02, 1.03]} for key in shown],
        height=420,
        horizontal_spacing=0.07,
    )
    for column in (2, 3):
        figure.add_hline(y=float(dataset.attrs["chance"]), line={**GREY_LINE, "dash": "dot"}, row=1, col=column)
    return figure


def generalisation(dataset: xarray.Dataset, fitted: float = 0.99) -> Any:
    """Test minus train accuracy against the condition number of hidden states, one point per network.

    dataset: of the study C.accuracy. Open: networks whose train accuracy is below `fitted`.
    """
    fits = dataset["train_accuracy"].values >= fitted
    gaps = dataset.assign(gap=dataset["test_accuracy"] - dataset["train_accuracy"])
    series: list[Series] = []
    hover = "%{text}<br>log10 cond %{x:.3g}, test - train accuracy %{y:.4f}"
    kinds = {"fitted": (fits, "circle"), f"train accuracy below {fitted:g}": (~fits, "circle-open")}
    for name, (chosen, symbol) in kinds.items():
        marker = {"size": 9, "symbol": symbol, "color": COLOURS[1]}
        points: dict[str, Any] = {"mode": "markers", "labelled": True, "heading": ""}
        points["more"] = {"marker": marker, "line": None, "legendgroup": None}
        if chosen.any():
            shown, text = gaps.isel(case=chosen), "{model}, seed {seed}"
            series += lines(shown, "condition", {"gap": name}, hover, text=text, **points)
    x, y = axis("median log10 condition number of hidden states"), axis("test - train accuracy")
    return chart(series, x=x, y=y, height=420)


def seed_lines(
    values: xarray.DataArray, name: str, place: int, panel: int = 0, *, connected: bool = False
) -> Iterator[Series]:
    """One line per seed against epoch or layer, the other dimension; what is not finite is a gap, unless connected."""
    (along,) = [str(dimension) for dimension in values.dims if dimension != "seed"]
    width = WIDTH_OF_SEVERAL if values.sizes["seed"] > 1 else WIDTH_OF_ONE
    hover = f"{along} %{{x}}: %{{y:.4g}}"
    for seed in values["seed"].values:
        heading = f"{name}, seed {seed}"
        curve = values.sel(seed=seed)
        finite = curve.where(numpy.isfinite(curve))
        mode = "lines" if bool(finite.notnull().all()) else "lines+markers"
        more = {"connectgaps": connected, "meta": {"series": heading}}
        yield Series(name, values[along], finite, hover, heading, panel, place, mode, 4, width, more=more)


def places(names: Sequence[str]) -> dict[str, int]:
    """By which networks look: the known ones have their own places, others those behind them."""
    others = [name for name in names if name not in KNOWN]
    return {name: KNOWN.index(name) if name in KNOWN else len(KNOWN) + others.index(name) for name in names}


def at_best(dataset: xarray.Dataset, key: str) -> xarray.DataArray:
    """Train or test accuracies (network, seed) at the measured rate; NaN for networks that diverged."""
    values, rates = dataset[f"{key}_accuracy"], dataset["best_rate"]
    there = abs(values["rate"] / rates - 1) < SAME_RATE
    if "best_warmup" in dataset:  # datasets of the first edition have none
        there = there & (dataset["warmup"] == dataset["best_warmup"])
    return values.where(there).max("rate").transpose("network", "seed")


def in_paper(dataset: xarray.Dataset, key: str) -> dict[str, float]:
    """By network, of those that the paper has."""
    text = str(dataset.attrs[f"paper_{key}"])
    return {name: float(value) for name, value in json.loads(text).items() if value != ""} if text else {}
