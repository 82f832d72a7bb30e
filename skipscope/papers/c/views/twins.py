"""PlainNet, ResNet and their kin, trained alike: accuracies beside the paper's, learning rates, curves."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping

import numpy
import xarray

from skipscope.papers.c.figures.twins import at_best, generalisation, in_paper, twin_accuracies, twin_curves
from skipscope.report.style import names_of
from skipscope.report.table import Cell, EachOf, Table, table_of, table_of_each, with_error
from skipscope.report.views.view import NETWORKS_IN_SUMMARY, Picture, View, counted, distinct, made_by, others_named

ACCURACIES = (
    "Accuracies after training, at the learning rate at which networks are measured: one point per seed, open "
    "stars the paper's (Oyedotun et al., tables 1 to 4, section 6.3), grey bars chance. The paper finds PlainNets near "
    "chance and networks with skips near 1 on the training set; ResNeXt ahead of ResNet on the test set, by 0.14 to "
    "1.16 points.{lost}"
)
LOST = " A cross at 0 is a seed that diverged."
CURVES = (
    "{title}: losses on a logarithmic axis, train and test accuracy against the epoch, one line per seed at the rate "
    "at which networks are measured; dotted: chance. The paper (Oyedotun et al., figures 2 and 3, CIFAR-100) "
    "shows PlainNet with an extremely large loss and accuracies that stay low, and residual networks that converge. "
    "Curves end where a network diverges; epochs without a test have no point. {epochs} in batches of {batch}."
)
GENERALISATION = (
    "Test minus train accuracy against the median over layers of log10 of the condition number of the hidden states, "
    "networks of several kinds, depths and widths on {data}; open ones do not fit the training images, and all have to."
    " The paper (Oyedotun et al., proposition 3) argues that better conditioned networks generalise better, "
    "and gives no test of it: points should fall to the right."
)
ABOUT = (
    "Train and test accuracy at the learning rate at which networks are measured, mean and standard deviation over the "
    "seeds that did not diverge (last column); beside them what the paper has for its networks of that depth and data. "
    "Rates in the order of seeds, where they differ."
)
RATES = (
    "Train / test accuracy at every learning rate, means over {seeds}; in brackets how many of them diverged. A dash "
    "is a rate that a network was not trained at."
)

DRIFT = {
    "drift": "mean |a - 1|",
    "factor": "mean a",
    "first_distance": "|h^L - h^0| / |h^0|, at first",
    "distance": "in the end",
}
ABOUT_DRIFT = (
    "a: the factors of the identity in a DiracNet's weights, which begin at 1. The distance of the last state from the "
    "first, mean over images, at initialisation and after training. Mean and standard deviation over seeds. The paper "
    "(Oyedotun et al., section 6.5) holds that a drifts from 1, that the last state is then far from the input, and "
    "that DiracNets do worse than ResNets for it; it has no numbers."
)

# The name of a dataset, such as twins-mnist-60-connected-linear-0123abcd; the group holds the networks' options.
NAME_OF_TWINS = re.compile(r".*?-\d+((?:-[a-z]+\d*)*)-[0-9a-f]{8}")


def twins_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    cases = by_title(datasets)
    names = dict(zip(cases, datasets, strict=True))
    shown = drawn(cases)
    groups: dict[str, dict[str, xarray.Dataset]] = {}
    for title, data in shown.items():
        groups.setdefault(_study_names(names[title], data), {})[title] = data
    figures = {}
    for studies, group in groups.items():
        lost = any(bool(at_best(data, "train").isnull().any()) for data in group.values())
        caption = ACCURACIES.format(lost=LOST if lost else "")
        first = next(iter(group.values()))
        figures[f"{studies}-accuracies"] = Picture(caption, twin_accuracies(group), made_by(first))
    for title, data in shown.items():
        words = {"title": sentence_case(title), "epochs": counted(int(data.attrs["epochs"]), "epoch")}
        caption = CURVES.format(batch=data.attrs["batch"], **words)
        figures[f"{names[title]}-curves"] = Picture(caption, twin_curves(data), made_by(data))
    tables = [_accuracies(cases), *(_rates(title, data) for title, data in shown.items())]
    sentences = [_sentence(title, data) for title, data in list(shown.items())[:NETWORKS_IN_SUMMARY]]
    return View(tables, figures, [*sentences, *others_named(list(shown), "Accuracies")])


def generalisation_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    from skipscope.papers.c.studies.generalisation import FITTED

    figures, tables = {}, []
    for name, data in datasets.items():
        caption = GENERALISATION.format(data=data.attrs["data"])
        figures[name] = Picture(caption, generalisation(data, FITTED), made_by(data))
        columns: dict[str, Cell] = {
            "model": "model",
            "seed": lambda here: str(here["seed"].item()),
            "log10 cond": "condition",
            "train": lambda here: f"{100 * float(here['train_accuracy']):.2f} %",
            "test": lambda here: f"{100 * float(here['test_accuracy']):.2f} %",
            "test - train": lambda here: f"{100 * float(here['test_accuracy'] - here['train_accuracy']):.2f} %",
        }
        about = f"log10 cond: of hidden states, median over layers. Only those with {FITTED:.0%} in training count."
        tables.append(table_of(data, "Conditioning and generalisation", columns, about))
    return View(tables, figures)


def drift_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    columns: dict[str, Cell] = {title: over_seeds(key) for key, title in DRIFT.items()}
    columns |= {"train": _reached("train"), "test": _reached("test")}
    title, rows = "Identities of DiracNets", {"network": "network"}
    return View([table_of_each(by_title(datasets), title, columns, ABOUT_DRIFT, what="case", rows=rows, names=2)])


# -- cases


def by_title(datasets: Mapping[str, xarray.Dataset]) -> dict[str, xarray.Dataset]:
    """By what a case is called; where several are called the same, also by its networks, or by its dataset's name."""
    texts = {name: str(data.attrs["title"]) for name, data in datasets.items()}
    networks = {name: "; ".join(names_of(data, "network")) for name, data in datasets.items()}
    texts = distinct(distinct(texts, networks))
    return {texts[name]: data for name, data in datasets.items()}


def drawn(cases: Mapping[str, xarray.Dataset]) -> Mapping[str, xarray.Dataset]:
    """Those in which networks are compared; networks on their own have pictures where there is nothing else."""
    return {title: data for title, data in cases.items() if data.sizes["network"] > 1} or cases


def _study_names(name: str, data: xarray.Dataset) -> str:
    """Of the studies that a case was trained for, without the paper's letter: "accuracy" for C.accuracy.

    Datasets of version 0.1.0 do not say it: there the networks tell, and the options in the dataset's name.
    """
    if studies := made_by(data):
        return "-".join(study.partition(".")[2] for study in studies)
    if any("DiracNet" in network for network in names_of(data, "network")):
        return "dirac"
    found = NAME_OF_TWINS.fullmatch(name)
    options = found[1].split("-")[1:] if found else []
    return "histograms" if "nonorm" in options else "linear" if "linear" in options else "accuracy"


def sentence_case(title: str) -> str:
    return title[:1].upper() + title[1:]


# -- numbers and words


def mean_and_spread(values: numpy.ndarray) -> str:
    """Over the seeds that have a value; a dash where none has."""
    there = values[~numpy.isnan(values)]
    if not there.size:
        return "-"
    with numpy.errstate(invalid="ignore"):  # of infinite ones there is a mean and no deviation
        spread = float(there.std(ddof=1)) if there.size > 1 else float("nan")
        return with_error(float(there.mean()), spread)


def over_seeds(key: str) -> Callable[[xarray.Dataset], str]:
    """A cell with mean and standard deviation of a variable."""
    return lambda here: mean_and_spread(here[key].values)


def _reached(key: str) -> Callable[[xarray.Dataset], str]:
    return lambda here: _percent(here[f"reached_{key}_accuracy"].values)


def _percent(values: numpy.ndarray) -> str:
    there = values[~numpy.isnan(values)]
    if not there.size:
        return "diverged"
    spread = f" ± {100 * there.std(ddof=1):.2f}" if there.size > 1 else ""
    return f"{100 * there.mean():.2f}{spread} %"


def _sentence(title: str, data: xarray.Dataset) -> str:
    best = at_best(data, "train").mean("seed")
    words = ", ".join(
        f"{name} {float(best.sel(network=name)):.1%}" if numpy.isfinite(best.sel(network=name)) else f"{name} diverges"
        for name in names_of(data, "network")
    )
    return f"{title}, train accuracy (chance {float(data.attrs['chance']):.1%}): {words}."


def _accuracies(cases: Mapping[str, xarray.Dataset]) -> Table:
    rows = []
    for title, data in cases.items():
        models = json.loads(str(data.attrs["models"]))
        other = f" ({data.attrs['paper_data']})" if data.attrs.get("paper_data") else ""  # than ours
        for name in names_of(data, "network"):
            cells = []
            for key in ("train", "test"):
                paper = in_paper(data, key)
                cells += [_percent(at_best(data, key).sel(network=name).values)]
                cells += [f"{100 * paper[name]:.2f} %{other}" if name in paper else "-"]
            rates = data["best_rate"].sel(network=name).values
            shown = dict.fromkeys("-" if numpy.isnan(rate) else f"{rate:g}" for rate in rates)
            seeds = int(at_best(data, "train").sel(network=name).notnull().sum())
            rows.append([title, name, models[name], *cells, ", ".join(shown), f"{seeds} of {len(rates)}"])
    columns = ["case", "network", "model", "train", "paper", "test", "paper", "rate", "seeds"]
    return Table("Accuracies beside the paper's", columns, rows, ABOUT, names=3)


def _rates(title: str, data: xarray.Dataset) -> Table:
    about = RATES.format(seeds=counted(data.sizes["seed"], "seed"))
    warmups = data["warmup"].values if "warmup" in data.coords else numpy.zeros(data.sizes["rate"])
    labels = [
        f"{rate:g}" + (f", {warmup:g} of warm-up" if warmup else "")
        for rate, warmup in zip(data["rate"].values, warmups, strict=True)
    ]
    data = data.drop_vars("warmup", errors="ignore").assign_coords(rate=labels)
    columns = {"rate {0}": EachOf("rate", _at_rate)}
    return table_of(data, f"Learning rates: {title}", columns, about, rows={"network": "network"})


def _at_rate(here: xarray.Dataset) -> str:
    train, test = here["train_accuracy"].values, here["test_accuracy"].values
    lost = int(numpy.isnan(train).sum())
    if (here["status"] == "not trained").all():
        return "-"
    if lost == train.size:
        return "diverged"
    text = f"{100 * numpy.nanmean(train):.1f} / {100 * numpy.nanmean(test):.1f} %"
    return f"{text} ({lost})" if lost else text
