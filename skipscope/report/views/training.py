"""Training: how far networks got, and how large activations, weights and gradients of chosen layers are on the way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import xarray

from skipscope.report.figures import training
from skipscope.report.figures.distributions import distributions, layer_in_words
from skipscope.report.style import by_network
from skipscope.report.table import Table, number
from skipscope.report.views.view import NETWORKS_IN_SUMMARY, Picture, View, counted, made_by, named

HISTORY = {"loss": "training loss", "train_accuracy": "training accuracy", "test_accuracy": "test accuracy"}
ABOUT_HISTORY = "Values after the last epoch; seconds of training in all."
NETWORKS_IN_SENTENCE = 4  # networks of which a sentence speaks
SIDE_BY_SIDE = 4  # networks of a figure
QUANTITIES = {
    "activations": "what the layer passes on to the next one, after norm, activation and skip",
    "weights": "the entries of the layer's weight",
    "gradients": "the entries of the weight's gradient, of the mean loss of a batch",
}
FIGURES = {"activations": 4, "weights": 5, "gradients": 6}  # of the paper
CAPTION = (
    "{title}: {meaning}, over {samples}, one column per epoch that was looked at. Cells: share of all finite values, "
    "on a logarithmic scale of colours; lines: extremes, 1 %, 50 % and 99 % quantiles. Nothing is normalised; a row "
    "has one axis, linear around zero and logarithmic from there on. Crosses at the top: NaN or infinite values. The "
    "paper (Oyedotun et al., figure {figure}) shows values of PlainNet that blow up at layer 1, and moderate ones at "
    "the last layer but one and in residual networks."
)
COLUMNS = ["network", "quantity", "layer", "epoch", "p99 of |x|", "smallest", "1 %", "median", "99 %", "largest"]
ABOUT = (
    "At the first and the last look. Quantiles are within {error:.1%} of the value; smallest and largest are exact. "
    "Deviation: of the finite values. Not finite: values that are NaN or infinite."
)


def history_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    networks = named(datasets)
    rows = [
        [
            network,
            str(data.sizes["epoch"]),
            str(data.attrs["status"]),
            *(number(float(data[key][-1])) if key in data else "-" for key in HISTORY),
            number(float(data["seconds"].sum())),
        ]
        for network, data in networks.items()
    ]
    table = Table(
        "Training", ["network", "epochs", "status", *HISTORY.values(), "seconds"], rows, ABOUT_HISTORY, names=3
    )
    picture = Picture("Training, epoch by epoch.", training(networks))
    sentences = [_history_sentence(name, data) for name, data in list(networks.items())[:NETWORKS_IN_SUMMARY]]
    return View([table], {"history": picture}, sentences)


def _history_sentence(network: str, data: xarray.Dataset) -> str:
    text = f"The network {network} was trained for {counted(data.sizes['epoch'], 'epoch')}"
    if data.attrs["status"] != "finished":
        return f"{text} and {data.attrs['status']}."
    reached = f"; test accuracy {float(data['test_accuracy'][-1]):.1%}" if "test_accuracy" in data else ""
    return f"{text} to a loss of {number(float(data['loss'][-1]))}{reached}."


def distributions_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    cases = by_network(named(datasets))
    whole = list(cases.items())
    groups = [dict(whole[start : start + SIDE_BY_SIDE]) for start in range(0, len(whole), SIDE_BY_SIDE)]
    study = made_by(next(iter(datasets.values())))
    figures, sentences = {}, []
    for what, meaning in QUANTITIES.items():
        for place, group in enumerate(groups):
            shown = {name: data for name, data in group.items() if what in data["what"].values}
            if shown:
                title = f"{what.capitalize()} of {', '.join(shown)}"
                caption = CAPTION.format(title=title, meaning=meaning, samples=_samples(shown), figure=FIGURES[what])
                name = f"{what}-{place + 1}" if place else what
                figures[name] = Picture(caption, distributions(shown, what), study)
        sentences += _sentence(what, {name: data for name, data in cases.items() if what in data["what"].values})
    return View([_table(cases)], figures, sentences)


def _samples(cases: Mapping[str, xarray.Dataset]) -> str:
    counts = sorted({int(data.attrs["batches"]) * int(data.attrs["batch"]) for data in cases.values()})
    modes = sorted({str(data.attrs["mode"]) for data in cases.values()})
    return f"{counted(counts[-1], 'sample')} in {' or '.join(modes)} mode"


def _sentence(what: str, cases: Mapping[str, xarray.Dataset]) -> list[str]:
    """Of the layer that comes first, at the last look."""
    found = []
    for name, data in list(cases.items())[:NETWORKS_IN_SENTENCE]:
        first = data.isel(layer=int(data["number"].values.argmin()), epoch=-1).sel(what=what)
        found.append(f"{number(float(first['p99_abs']))} in {name} (layer {int(first['number'])})")
    return [f"99 % of the absolute {what} are at most {', '.join(found)} at the last look."] if found else []


def _table(cases: Mapping[str, xarray.Dataset]) -> Table:
    rows = []
    for name, data in cases.items():
        for what in data["what"].values:
            for layer in range(data.sizes["layer"]):
                for look in sorted({0, data.sizes["epoch"] - 1}):
                    here = data.sel(what=what).isel(layer=layer, epoch=look)
                    quantiles = [float(here["quantiles"].sel(quantile=share)) for share in (0.01, 0.5, 0.99)]
                    numbers: list[Any] = [
                        here["p99_abs"],
                        here["minimum"],
                        *quantiles,
                        here["maximum"],
                        here["deviation"],
                    ]
                    lost = int(here["nan"]) + int(here["infinite"])
                    rows.append(
                        [name, str(what), layer_in_words(here), str(here["epoch"].item())]
                        + [number(float(value)) for value in numbers]
                        + [f"{float(here['zeros'] / here['count']):.1%}", str(lost)]
                    )
    error = max(float(data.attrs["relative_error"]) for data in cases.values())
    columns = [*COLUMNS, "deviation", "zeros", "not finite"]
    return Table("Activations, weights and gradients", columns, rows, ABOUT.format(error=error), names=3)
