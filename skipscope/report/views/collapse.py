"""Neural collapse: one row per layer, and the classifier's features."""

from __future__ import annotations

import math
from collections.abc import Mapping

import xarray

from skipscope.report.figures import collapse
from skipscope.report.table import Cell, Table, number, table_of, table_of_each
from skipscope.report.views.view import Picture, View, alike, counted, described, named, title_of, titles, unit_numbers

COLUMNS = {
    "nc1": "NC1",
    "cdnv": "CDNV",
    "nc2_equinorm": "NC2 norms",
    "nc2_equiangular": "NC2 angles",
    "nc2_maximal_angle": "NC2 |cos + 1/(C-1)|",
    "nearest_mean_accuracy": "nearest mean right",
    "rank": "rank",
}
CLASSIFIER: dict[str, Cell] = {
    "NC1": lambda data: number(float(data["nc1"][-1])),
    "NC3": "nc3",
    "NC4": "nc4",
    "accuracy": "accuracy",
}
DEPTH = (
    "{title} against depth: at the entry of every unit and at the exit of the last, then at the classifier's entry. "
    "NC1 and CDNV are spreads within classes over distances between class means, 0 where every class is one point. "
    "NC2 is 0 where the class means are the corners of a simplex around their mean."
)
ABOUT = (
    "Over {samples} of {classes}, every class counting the same. NC1 = tr(S_W S_B⁺)/C. CDNV: mean over pairs of "
    "classes of their variance over the squared distance of their means. NC2: standard deviation over mean of the "
    "norms of the centred class means; standard deviation of their cosines; mean distance of the cosines from "
    "-1/(C-1). Rank: dimensions that the centred class means span, C-1 where S_B is not deficient."
)
LAST = (
    "Of the features at the classifier's entry. NC3: |W^T/|W| - M/|M||²; NC4: samples whose answer is not that of the "
    "nearest class mean. All but the accuracy are 0 for collapsed features."
)


def collapse_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    tables = [_table(title, datasets[name]) for name, title in titles("Neural collapse by layer", datasets).items()]
    tables.append(table_of_each(named(datasets), "Neural collapse at the classifier", CLASSIFIER, LAST))
    figures = {}
    for group in alike({name: data for name, data in datasets.items() if data.sizes["layer"] > 1}, "layer"):
        caption = DEPTH.format(title=title_of("Neural collapse", group, "Collapse"))
        figures[next(iter(group))] = Picture(caption, collapse(named(group)))
    numbers = [
        one
        for data in datasets.values()
        for one in unit_numbers(data, {"NC1 at the entry": data["nc1"]}, along="layer", logarithmic=True)
    ]
    return View(tables, figures, described(datasets, _sentence, "Neural collapse"), numbers)


def _table(title: str, data: xarray.Dataset) -> Table:
    about = ABOUT.format(samples=_samples(data), classes=counted(data.sizes["label"], "class", "classes"))
    notes = str(data.attrs.get("notes", ""))
    about += f" Notes: {notes}." if notes else ""
    return table_of(data, title, {short: key for key, short in COLUMNS.items()}, about, rows={"layer": "layer"})


def _sentence(words: str, data: xarray.Dataset) -> str:
    last = float(data["nc1"][-1])
    if math.isnan(last):
        return f"{words}all classes have the same mean features before the classifier."
    text = f"{words}the spread within classes over that between them (NC1) is {number(last)} before the classifier"
    first = float(data["nc1"][0])
    if data.sizes["layer"] > 1 and not math.isnan(first):
        text += f" and {number(first)} at {data['layer'].values[0]}"
    return (
        f"{text}; {float(data['nc4']):.1%} of {_samples(data)} are answered with another class than the nearest mean's."
    )


def _samples(data: xarray.Dataset) -> str:
    return counted(int(data["samples"].sum()), "sample")
