"""PlainNet, ResNet and their kin, trained alike: the accuracies that they reach, and how they come there.

One colour per network, one thin line per seed. A network is shown at its own best learning rate.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy
import xarray

from skipscope.report.charts import Series, axis, chart, lines
from skipscope.report.style import COLOURS, GREY, names_of, styled

KNOWN = ("PlainNet", "ResNet", "ResNeXt", "DiracNet")  # look the same in all figures
ACCURACIES = {"train": "train accuracy", "test": "test accuracy"}
ALONG = {"loss": "training loss", "train_accuracy_along": "train accuracy", "test_accuracy_along": "test accuracy"}
WIDTH_OF_ONE, WIDTH_OF_SEVERAL = 2.0, 1.1  # of lines: of one seed, of several
CHANCE = {"color": GREY, "width": 1, "dash": "dot"}
SAME_RATE = 1e-6  # relative
ROW = 30  # height of a network


def twin_accuracies(cases: Mapping[str, xarray.Dataset]) -> Any:
    """Train and test accuracies at the best learning rate, one row per network, one point per seed, stars: the paper's.

    cases: by title, of the studies of paper C. Grey bars are chance; a cross at 0 is a seed that diverged at all rates.
    """
    from plotly.subplots import make_subplots

    figure = make_subplots(1, 2, subplot_titles=list(ACCURACIES.values()), shared_yaxes=True, horizontal_spacing=0.04)
    rows: list[tuple[str, str, str]] = []  # title, network, colour; a title has a row of its own above its networks
    for title, data in cases.items():
        looks = places(names_of(data, "network"))
        rows += [(title, "", "")] + [(title, name, COLOURS[look % len(COLOURS)]) for name, look in looks.items()]
    for column, key in enumerate(ACCURACIES):
        here = {"row": 1, "col": column + 1, "showlegend": column == 0}
        best = {title: at_best(data, key) for title, data in cases.items()}
        paper = {title: in_paper(data, key) for title, data in cases.items()}
        chance, seeds, stars, lost = [], [], [], []
        for place, (title, name, colour) in enumerate(rows):
            if not name:
                continue
            chance.append(_Mark(float(cases[title].attrs["chance"]), place, f"{name}, {title}", GREY))
            for one in best[title].sel(network=name):
                mark = _Mark(float(one), place, f"{name}, {title}, seed {int(one['seed'])}", colour)
                if numpy.isfinite(mark.accuracy):
                    seeds.append(mark)
                else:
                    lost.append(replace(mark, accuracy=0.0))
            if name in paper[title]:
                stars.append(_Mark(paper[title][name], place, f"{name}, {title}", colour))
        _draw(figure, "chance", chance, {"symbol": "line-ns-open", "size": 18, "line": {"width": 2}}, **here)
        _draw(figure, "one seed", seeds, {"size": 9, "opacity": 0.7}, **here)
        _draw(figure, "the paper", stars, {"symbol": "star-open", "size": 13, "line": {"width": 2}}, **here)
        _draw(figure, "diverged at all rates", lost, {"symbol": "x", "size": 9}, **here)
    for place, (title, name, _) in enumerate(rows):
        if not name:
            figure.add_annotation(
                x=0,
                y=place,
                text=title,
                xref="x",
                yref="y",
                xanchor="left",
                xshift=-100,
                yshift=-4,
                showarrow=False,
                font={"size": 13},
            )
    named = {place: name for place, (_, name, _) in enumerate(rows) if name}
    figure.update_xaxes(range=[-0.03, 1.03])
    figure.update_yaxes(
        tickvals=list(named), ticktext=list(named.values()), range=[len(rows) - 0.5, -0.5], zeroline=False
    )
    return styled(figure, height=ROW * len(rows) + 170).update_layout(
        margin={"l": 40 + 7 * max(map(len, named.values()))}
    )


def twin_curves(dataset: xarray.Dataset) -> Any:
    """Loss, train and test accuracy against the epoch at the best learning rate: the paper's figures 2 and 3.

    dataset: of one case. Epochs without a test have no point; curves end where a network diverges.
    """
    series: list[Series] = []
    for panel, key in enumerate(ALONG):
        for name, place in places(names_of(dataset, "network")).items():
            tested = key == "test_accuracy_along"
            series += seed_lines(dataset[key].sel(network=name), name, place, panel, connected=tested)
    figure = chart(
        series,
        panels=list(ALONG.values()),
        x=axis("epoch"),
        y=[axis(log=True), *[{"range": [-0.02, 1.03]}] * 2],
        height=420,
        horizontal_spacing=0.07,
    )
    for column in (2, 3):
        figure.add_hline(y=float(dataset.attrs["chance"]), line=CHANCE, row=1, col=column)
    return figure


def generalisation(dataset: xarray.Dataset, fitted: float = 0.99) -> Any:
    """Test minus train accuracy against the condition number of hidden states, one point per network.

    dataset: of the study C.accuracy. Open: networks whose train accuracy is below `fitted`.
    """
    fits = dataset["train_accuracy"].values >= fitted
    gaps = dataset.assign(gap=dataset["test_accuracy"] - dataset["train_accuracy"])
    series: list[Series] = []
    for name, chosen, symbol in (
        ("fitted", fits, "circle"),
        (f"train accuracy below {fitted:g}", ~fits, "circle-open"),
    ):
        look_of_points = {
            "marker": {"size": 9, "symbol": symbol, "color": COLOURS[1]},
            "line": None,
            "legendgroup": None,
        }
        if chosen.any():
            hover = "%{text}<br>log10 cond %{x:.3g}, test - train accuracy %{y:.4f}"
            series += lines(
                gaps.isel(case=chosen),
                "condition",
                {"gap": name},
                hover,
                text="{model}, seed {seed}",
                heading="",
                mode="markers",
                labelled=True,
                more=look_of_points,
            )
    return chart(
        series,
        x=axis("median log10 condition number of hidden states"),
        y=axis("test - train accuracy"),
        height=420,
    )


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
    """Train or test accuracies (network, seed) at the best learning rate; NaN where all rates diverged."""
    values, rates = dataset[f"{key}_accuracy"], dataset["best_rate"]
    return values.where(abs(values["rate"] / rates - 1) < SAME_RATE).max("rate").transpose("network", "seed")


def in_paper(dataset: xarray.Dataset, key: str) -> dict[str, float]:
    """By network, of those that the paper has."""
    text = str(dataset.attrs[f"paper_{key}"])
    return {name: float(value) for name, value in json.loads(text).items() if value != ""} if text else {}


@dataclass(frozen=True)
class _Mark:
    accuracy: float
    place: int  # row
    text: str
    colour: str


def _draw(figure: Any, name: str, marks: Sequence[_Mark], marker: dict[str, Any], **more: Any) -> None:
    if marks:
        figure.add_scatter(
            x=[mark.accuracy for mark in marks],
            y=[mark.place for mark in marks],
            text=[mark.text for mark in marks],
            mode="markers",
            name=name,
            legendgroup=name,
            marker={**marker, "color": [mark.colour for mark in marks]},
            hovertemplate=f"%{{text}}<br>{name}: %{{x:.4f}}<extra></extra>",
            **more,
        )
