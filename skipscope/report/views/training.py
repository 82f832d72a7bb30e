"""Training: how far networks got, and how large activations, weights and gradients of chosen layers are on the way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import xarray

from skipscope.report.figures import training
from skipscope.report.figures.distributions import distributions, layer_in_words
from skipscope.report.style import by_network
from skipscope.report.table import Cell, Table, number, table_of_each
from skipscope.report.views.view import (
    NETWORKS_IN_SUMMARY,
    Picture,
    View,
    counted,
    in_groups,
    made_by,
    named,
    others_named,
)

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
ABOUT = (
    "At the first and the last look. Quantiles are within {error:.1%} of the value; smallest and largest are exact. "
    "Deviation: of the finite values. Not finite: values that are NaN or infinite."
)


def history_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    networks = named(datasets)
    columns: dict[str, Cell] = {
        "epochs": lambda data: str(data.sizes["epoch"]),
        "status": lambda data: str(data.attrs["status"]),
        **{title: partial(_last, key=key) for key, title in HISTORY.items()},
        "seconds": ("seconds", "sum"),
    }
    table = table_of_each(networks, "Training", columns, ABOUT_HISTORY, names=3)
    picture = Picture("Training, epoch by epoch.", training(networks))
    sentences = [_history_sentence(name, data) for name, data in list(networks.items())[:NETWORKS_IN_SUMMARY]]
    sentences += others_named(list(networks), "Training")
    return View([table], {"history": picture}, sentences)


def _last(data: xarray.Dataset, key: str) -> str:
    return number(float(data[key][-1])) if key in data else "-"


def _history_sentence(network: str, data: xarray.Dataset) -> str:
    text = f"The network {network} was trained for {counted(data.sizes['epoch'], 'epoch')}"
    if data.attrs["status"] != "finished":
        return f"{text} and {data.attrs['status']}."
    reached = f"; test accuracy {float(data['test_accuracy'][-1]):.1%}" if "test_accuracy" in data else ""
    return f"{text} to a loss of {number(float(data['loss'][-1]))}{reached}."


def distributions_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    cases = by_network(named(datasets))
    study = made_by(next(iter(datasets.values())))
    figures, sentences = {}, []
    for what, meaning in QUANTITIES.items():
        for name, group in in_groups(what, cases, SIDE_BY_SIDE).items():
            shown = {network: data for network, data in group.items() if what in data["what"].values}
            if shown:
                title = f"{what.capitalize()} of {', '.join(shown)}"
                caption = CAPTION.format(title=title, meaning=meaning, samples=_samples(shown), figure=FIGURES[what])
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
    if not found:
        return []
    sentence = f"99 % of the absolute {what} are at most {', '.join(found)} at the last look."
    return [sentence, *others_named(list(cases), what.capitalize(), NETWORKS_IN_SENTENCE)]


def _table(cases: Mapping[str, xarray.Dataset]) -> Table:
    columns: dict[str, Cell] = {
        "layer": layer_in_words,
        "epoch": "epoch",
        "p99 of |x|": "p99_abs",
        "smallest": "minimum",
        "1 %": _quantile(0.01),
        "median": _quantile(0.5),
        "99 %": _quantile(0.99),
        "largest": "maximum",
        "deviation": "deviation",
        "zeros": lambda here: f"{float(here['zeros'] / here['count']):.1%}",
        "not finite": lambda here: str(int(here["nan"]) + int(here["infinite"])),
    }
    looks = {name: data.isel(epoch=sorted({0, data.sizes["epoch"] - 1})) for name, data in cases.items()}
    about = ABOUT.format(error=max(float(data.attrs["relative_error"]) for data in cases.values()))
    title, rows = "Activations, weights and gradients", {"what": "quantity", "layer": "", "epoch": ""}
    return table_of_each(looks, title, columns, about, rows=rows, names=3)


def _quantile(share: float) -> Callable[[xarray.Dataset], str]:
    return lambda here: number(float(here["quantiles"].sel(quantile=share)))
