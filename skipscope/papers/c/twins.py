"""The twins of a subject: their rates are chosen on a calibration seed, then they are trained and measured.

PlainNet and ResNet are trained for a few epochs at every rate, with and without a warm-up, on one seed that no claim is
judged on. What goes on is the best for ResNet and the best for PlainNet, by train accuracy, and where this is the same,
PlainNet's next best. At both of them all twins are trained. They are measured at equal rates, at the one that is the
best for ResNet, because PlainNet's accuracies are all close to chance. A network that diverges is measured as it was
when it was last looked at, which may be before the training; the run says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy
import torch
import xarray
from torch import nn
from torch.nn import functional

from skipscope.data import Split
from skipscope.models.network import BlockNetwork
from skipscope.papers.c.subjects import PATHS, PLAIN, RESIDUAL, WITH_PATHS, Recipe, TwinSubject
from skipscope.papers.kit import Bench
from skipscope.training import accuracy
from skipscope.training.networks import Trained
from skipscope.training.surroundings import in_mode

NOT_TRAINED = "not trained"
PAPER: dict[str, dict[str, tuple[float, float]]] = {  # accuracies in training and in the test, tables 1 to 4
    "mnist-110": {PLAIN: (0.1120, 0.1135), RESIDUAL: (0.9999, 0.9957), PATHS: (0.9999, 0.9971)},
    "cifar10-110": {PLAIN: (0.1026, 0.1005), RESIDUAL: (0.9998, 0.9329), PATHS: (0.9998, 0.9365)},
    "cifar100-110": {PLAIN: (0.0372, 0.0368), RESIDUAL: (0.9984, 0.7227), PATHS: (0.9999, 0.7243)},
    "imagenet-101": {PLAIN: (0.1537, 0.1494), RESIDUAL: (0.8856, 0.7732), PATHS: (0.8974, 0.7848)},
    "mnist-200": {PLAIN: (0.1123, 0.0892)},
}
# Our subjects beside which a table of another name stands, and its data where they differ from ours. Table 3 says 101
# layers, where the figures of the same networks say 110.
IN_PLACE_OF = {
    "cifar100-101": ("cifar100-110", ""),
    "cifar100-101-large": ("cifar100-110", ""),
    "imagenette-101": ("imagenet-101", "ImageNet"),
    "imagenette-101-large": ("imagenet-101", "ImageNet"),
}
BOTTLENECK = "-bottleneck"


@dataclass(frozen=True)
class Chosen:
    """By the calibration."""

    go_on: tuple[Recipe, ...]  # that all twins are trained at
    measured: Mapping[str, Recipe]  # title: at which a network is measured


def calibration(bench: Bench, of: TwinSubject) -> xarray.Dataset:
    """Train accuracies on a calibration seed (network, recipe); NaN for those that diverged."""
    return bench.shared(f"calibration-{of.key(bench.device)}", partial(_calibrated, bench, of), studies=[of.study])


def _calibrated(bench: Bench, of: TwinSubject) -> xarray.Dataset:
    (seed,), recipes = bench.calibration_seeds(1), of.settings.recipes
    pairs = list(product(of.calibrated, recipes))
    networks = [of.calibration(title, recipe).network(seed, bench.device) for title, recipe in pairs]
    reached = [
        numpy.nan if network.diverged else accuracy(network.model, of.data.train)
        for network in bench.trained_fleet(networks)
    ]
    values = numpy.array(reached).reshape(len(of.calibrated), len(recipes))
    return xarray.Dataset(
        {"train_accuracy": (("network", "recipe"), values)},
        {
            "network": list(of.calibrated),
            "rate": ("recipe", [recipe.rate for recipe in recipes]),
            "warmup": ("recipe", [recipe.warmup for recipe in recipes]),
        },
        {"part": "piece", "title": of.title, "seed": seed, "epochs": of.settings.calibration_epochs},
    )


def chosen(bench: Bench, of: TwinSubject) -> Chosen:
    """The recipes of a subject; a single one needs no calibration."""
    recipes = of.settings.recipes
    if len(recipes) == 1:
        return Chosen(recipes, dict.fromkeys(of.models, recipes[0]))
    accuracies = calibration(bench, of)["train_accuracy"]
    ranked = {title: best_first(recipes, accuracies.sel(network=title).values) for title in of.calibrated}
    return choice(ranked, tuple(of.models), of.settings.go_on, equal=of.settings.equal_rates)


def best_first(recipes: Sequence[Recipe], accuracies: Sequence[float] | numpy.ndarray) -> list[Recipe]:
    """Those that diverged last; of equal ones the earlier first."""
    found = dict(zip(recipes, numpy.nan_to_num(accuracies, nan=-1.0), strict=True))
    return sorted(recipes, key=lambda recipe: -found[recipe])


def choice(ranked: Mapping[str, Sequence[Recipe]], titles: Sequence[str], go_on: int, *, equal: bool) -> Chosen:
    """ranked: of the networks that were calibrated, the best recipe first."""
    if not equal:
        own = {title: ranked[title][0] for title in titles}
        return Chosen(tuple(dict.fromkeys(own.values())), own)
    first, last = next(iter(ranked.values())), ranked.get(RESIDUAL, next(iter(ranked.values())))
    going = tuple(dict.fromkeys([last[0], *first]))[:go_on]
    return Chosen(going, dict.fromkeys(titles, last[0]))


def twins(bench: Bench, of: TwinSubject) -> xarray.Dataset:
    """Accuracies (network, seed, rate), NaN for networks that diverged, and all of training at the measured rate.

    test_loss_along: at the epochs of looks, NaN at others, since trainings keep test accuracies alone.
    reached_...: of the network that is measured, at `best_rate` and `best_warmup`: after `reached_epoch`, the last one
    unless it diverged.
    """
    return bench.shared(f"twins-{of.key(bench.device)}", partial(_trained_twins, bench, of), studies=[of.study])


def _trained_twins(bench: Bench, of: TwinSubject) -> xarray.Dataset:
    recipes = chosen(bench, of)
    shape = (len(of.models), len(of.seeds))
    along = {name: numpy.full((*shape, of.epochs), numpy.nan) for name in ("loss", "train_accuracy", "test_accuracy")}
    test_loss = numpy.full((*shape, of.epochs), numpy.nan)
    each = (*shape, len(recipes.go_on))
    by_rate = {name: numpy.full(each, numpy.nan) for name in ("train_accuracy", "test_accuracy")}
    by_rate["status"] = numpy.full(each, NOT_TRAINED, dtype=object)
    names = ("best_rate", "best_warmup", "reached_epoch", "reached_train_accuracy", "reached_test_accuracy")
    reached = {name: numpy.zeros(shape, int if name == "reached_epoch" else float) for name in names}
    for row, title in enumerate(of.models):
        measured = recipes.measured[title]
        trained_at = recipes.go_on if of.settings.equal_rates else (measured,)
        pairs = list(product(of.seeds, trained_at))
        networks = [of.twin(title, recipe).network(seed, bench.device) for seed, recipe in pairs]
        of_title = dict(zip(pairs, bench.trained_fleet(networks), strict=True))
        for column, seed in enumerate(of.seeds):
            here = row, column
            found = {recipe: of_title[seed, recipe] for recipe in trained_at}
            for recipe, network in found.items():
                place = (*here, recipes.go_on.index(recipe))
                by_rate["status"][place] = network.history.status
                if not network.diverged:
                    by_rate["train_accuracy"][place] = accuracy(network.model, of.data.train)
                    by_rate["test_accuracy"][place] = network.test_accuracy
            epoch = last_epoch(found[measured], of.epochs)
            reached["best_rate"][here], reached["best_warmup"][here] = measured.rate, measured.warmup
            reached["reached_epoch"][here] = epoch
            network_reached = Reached(of, title, seed, measured, epoch, found[measured], bench.device)
            for look in network_reached.looks[1:]:  # before the training norms have no statistics of their own
                test_loss[(*here, look - 1)] = mean_loss(network_reached.at(look), of.data.test)
            model = network_reached.at(epoch)
            reached["reached_train_accuracy"][here] = accuracy(model, of.data.train)
            reached["reached_test_accuracy"][here] = accuracy(model, of.data.test)
            history = found[measured].history.to_dataset()
            for name, values in along.items():
                values[here][: history.sizes["epoch"]] = history[name].values
    papers, papers_data = in_tables(of.name, tuple(of.models))
    return xarray.Dataset(
        {
            **{name: (("network", "seed", "rate"), values) for name, values in by_rate.items()},
            **{name: (("network", "seed"), values) for name, values in reached.items()},
            "loss": (("network", "seed", "epoch"), along["loss"]),
            "train_accuracy_along": (("network", "seed", "epoch"), along["train_accuracy"]),
            "test_accuracy_along": (("network", "seed", "epoch"), along["test_accuracy"]),
            "test_loss_along": (("network", "seed", "epoch"), test_loss),
        },
        {
            "network": list(of.models),
            "seed": list(of.seeds),
            "rate": [recipe.rate for recipe in recipes.go_on],
            "warmup": ("rate", [recipe.warmup for recipe in recipes.go_on]),
            "epoch": range(1, of.epochs + 1),
        },
        {
            **of.kind("twins"),
            "title": of.title,
            "data": of.data.name,
            "epochs": of.epochs,
            "batch": of.settings.batch,
            "depth": of.depth,
            "chance": 1 / of.data.classes,
            "paper_train": json.dumps({title: train for title, (train, _) in papers.items()}) if papers else "",
            "paper_test": json.dumps({title: test for title, (_, test) in papers.items()}) if papers else "",
            "paper_data": papers_data,
            "models": json.dumps(dict(of.models)),
        },
    )


def mean_loss(model: nn.Module, split: Split, batch: int = 512) -> float:
    """Cross-entropy in evaluation mode, mean over all images."""
    weight, whole = next(model.parameters()), 0.0
    with in_mode(model, training=False), torch.no_grad():
        for part in torch.arange(len(split), device=split.device).split(batch):
            answers = model(split.images(part).to(weight.device, weight.dtype))
            whole += float(functional.cross_entropy(answers, split.labels[part].to(weight.device), reduction="sum"))
    return whole / len(split)


def in_tables(subject: str, titles: Sequence[str]) -> tuple[dict[str, tuple[float, float]], str]:
    """What tables 1 to 4 have for networks with these titles, and of which data where these are others than ours.

    The paper says neither what blocks nor how many paths its networks have: theirs stand beside ours of every form.
    """
    name, data = IN_PLACE_OF.get(subject.removesuffix(BOTTLENECK), (subject.removesuffix(BOTTLENECK), ""))
    table = PAPER.get(name, {})
    found = {title: PATHS if title in WITH_PATHS else title for title in titles}
    return {title: table[theirs] for title, theirs in found.items() if theirs in table}, data if table else ""


def last_epoch(network: Trained, epochs: int) -> int:
    """The last one of which there are weights: of a network that diverged, that of its last look."""
    return max(network.snapshots, default=0) if network.diverged else epochs


@dataclass(frozen=True)
class Reached:
    """A network at the rate that it is measured at."""

    of: TwinSubject
    title: str
    seed: int
    recipe: Recipe
    epoch: int  # the last one that it came to
    trained: Trained
    device: str

    @property
    def looks(self) -> tuple[int, ...]:
        """Epochs that there are weights of: before the training, along it, at last."""
        return tuple(sorted({0, *self.trained.snapshots, self.epoch}))

    def at(self, epoch: int) -> BlockNetwork | Any:
        """As it was after so many epochs, in evaluation mode."""
        if epoch == 0:
            return self.of.twin(self.title, self.recipe).network(self.seed, self.device).initial().eval()
        finished = epoch == self.of.epochs and not self.trained.diverged
        return self.trained.model if finished else self.trained.at(epoch)


def reached(bench: Bench, of: TwinSubject, title: str, seed: int, among: xarray.Dataset) -> Reached:
    """among: the subject's twins."""
    row = among.sel(network=title, seed=seed)
    recipe, epoch = Recipe(float(row["best_rate"]), int(row["best_warmup"])), int(row["reached_epoch"])
    if epoch < of.epochs:
        name = f"{of.models[title]}, seed {seed}"
        bench.note(f"{name}, diverged: it is measured after {epoch} of {of.epochs} epochs")
    return Reached(of, title, seed, recipe, epoch, of.twin(title, recipe).trained(bench, seed), bench.device)


def with_fit(data: xarray.Dataset, among: xarray.Dataset) -> xarray.Dataset:
    """What was measured of twins, with the train accuracies by which a subject is fit to decide."""
    return data.assign(reached_train_accuracy=among["reached_train_accuracy"]).assign_attrs(
        chance=among.attrs["chance"]
    )


def measured_twins(
    bench: Bench, of: TwinSubject, what: str, measure: Callable[[Reached], Mapping[str, Any]]
) -> dict[str, numpy.ndarray]:
    """What a function measures of one network, by name; of all twins at equal rates: (network, seed, ...)."""
    among, pairs = twins(bench, of), list(product(of.models, of.seeds))
    rows = [
        measure(reached(bench, of, title, seed, among)) for title, seed in bench.each(f"{what} of {of.title}", pairs)
    ]
    columns = {name: numpy.array([row[name] for row in rows]) for name in rows[0]}
    shape = (len(of.models), len(of.seeds))
    return {name: values.reshape(*shape, *values.shape[1:]) for name, values in columns.items()}
