"""The twins of a subject, trained at every learning rate of a grid, and each as it is at its best rate.

The rate with the highest train accuracy counts for its seed, so that no network fails for its rate. A network that
diverges at every rate is measured as it was when it was last looked at, which may be before the training; the run says
so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy
import xarray

from skipscope.models.network import BlockNetwork
from skipscope.papers.c.subjects import PATHS, PLAIN, RESIDUAL, TwinSubject, without_path
from skipscope.papers.kit import Bench
from skipscope.training import accuracy
from skipscope.training.networks import Trained

NOT_TRAINED = "not trained"
PAPER: dict[str, dict[str, tuple[float, float]]] = {  # accuracies in training and in the test, tables 1 to 4
    "mnist-110": {PLAIN: (0.1120, 0.1135), RESIDUAL: (0.9999, 0.9957), PATHS: (0.9999, 0.9971)},
    "cifar10-110": {PLAIN: (0.1026, 0.1005), RESIDUAL: (0.9998, 0.9329), PATHS: (0.9998, 0.9365)},
    "cifar100-110": {PLAIN: (0.0372, 0.0368), RESIDUAL: (0.9984, 0.7227), PATHS: (0.9999, 0.7243)},
    "imagenet-101": {PLAIN: (0.1537, 0.1494), RESIDUAL: (0.8856, 0.7732), PATHS: (0.8974, 0.7848)},
    "mnist-200": {PLAIN: (0.1123, 0.0892)},
}


def twins(bench: Bench, of: TwinSubject) -> xarray.Dataset:
    """Accuracies (network, seed, rate), NaN for networks that diverged, and all of training at the best rate.

    reached_...: of the network that is measured: after `reached_epoch`, the last one unless all rates diverged.
    """
    return bench.shared(f"twins-{of.key(bench.device)}", partial(_trained_twins, bench, of), studies=[of.study])


def _trained_twins(bench: Bench, of: TwinSubject) -> xarray.Dataset:
    rates = sorted({rate for title in of.models for rate in of.rates(title)}, reverse=True)
    shape = (len(of.models), len(of.seeds))
    along = {name: numpy.full((*shape, of.epochs), numpy.nan) for name in ("loss", "train_accuracy", "test_accuracy")}
    by_rate = {name: numpy.full((*shape, len(rates)), numpy.nan) for name in ("train_accuracy", "test_accuracy")}
    by_rate["status"] = numpy.full((*shape, len(rates)), NOT_TRAINED, dtype=object)
    names = ("best_rate", "reached_epoch", "reached_train_accuracy", "reached_test_accuracy")
    reached = {name: numpy.zeros(shape, int if name == "reached_epoch" else float) for name in names}
    for row, title in enumerate(of.models):
        for column, seed in enumerate(of.seeds):
            here = row, column
            found = {rate: of.twin(title, rate).trained(bench, seed) for rate in of.rates(title)}
            for rate, network in found.items():
                place = (*here, rates.index(rate))
                by_rate["status"][place] = network.history.status
                if not network.diverged:
                    by_rate["train_accuracy"][place] = accuracy(network.model, of.data.train)
                    by_rate["test_accuracy"][place] = network.test_accuracy
            best, epoch = _best(found, dict(zip(rates, by_rate["train_accuracy"][here], strict=True)), of.epochs)
            reached["best_rate"][here], reached["reached_epoch"][here] = best, epoch
            model = Reached(of, title, seed, best, epoch, found[best], bench.device).at(epoch)
            reached["reached_train_accuracy"][here] = accuracy(model, of.data.train)
            reached["reached_test_accuracy"][here] = accuracy(model, of.data.test)
            history = found[best].history.to_dataset()
            for name, values in along.items():
                values[here][: history.sizes["epoch"]] = history[name].values
    papers = PAPER.get(without_path(of.text), {})
    return xarray.Dataset(
        {
            **{name: (("network", "seed", "rate"), values) for name, values in by_rate.items()},
            **{name: (("network", "seed"), values) for name, values in reached.items()},
            "loss": (("network", "seed", "epoch"), along["loss"]),
            "train_accuracy_along": (("network", "seed", "epoch"), along["train_accuracy"]),
            "test_accuracy_along": (("network", "seed", "epoch"), along["test_accuracy"]),
        },
        {"network": list(of.models), "seed": list(of.seeds), "rate": rates, "epoch": range(1, of.epochs + 1)},
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
            "models": json.dumps(dict(of.models)),
        },
    )


def _best(found: Mapping[float, Trained], accuracies: Mapping[float, float], epochs: int) -> tuple[float, int]:
    """The rate of the highest train accuracy; where all diverged, the one that came farthest, and its last look."""
    finished = [rate for rate, network in found.items() if not network.diverged]
    if finished:
        return max(finished, key=lambda rate: accuracies[rate]), epochs
    last = {rate: max(network.snapshots, default=0) for rate, network in found.items()}
    farthest = max(sorted(last), key=lambda rate: last[rate])
    return farthest, last[farthest]


@dataclass(frozen=True)
class Reached:
    """A network at its best rate."""

    of: TwinSubject
    title: str
    seed: int
    rate: float
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
            return self.of.twin(self.title, self.rate).network(self.seed, self.device).initial().eval()
        finished = epoch == self.of.epochs and not self.trained.diverged
        return self.trained.model if finished else self.trained.at(epoch)


def reached(bench: Bench, of: TwinSubject, title: str, seed: int, among: xarray.Dataset) -> Reached:
    """among: the subject's twins."""
    chosen = among.sel(network=title, seed=seed)
    rate, epoch = float(chosen["best_rate"]), int(chosen["reached_epoch"])
    if epoch < of.epochs:
        name = f"{of.models[title]}, seed {seed}"
        bench.note(f"{name}, diverged at all rates: it is measured after {epoch} of {of.epochs} epochs")
    return Reached(of, title, seed, rate, epoch, of.twin(title, rate).trained(bench, seed), bench.device)


def measured_twins(
    bench: Bench, of: TwinSubject, what: str, measure: Callable[[Reached], Mapping[str, Any]]
) -> dict[str, numpy.ndarray]:
    """What a function measures of one network, by name; of all twins at their best rates: (network, seed, ...)."""
    among, pairs = twins(bench, of), list(product(of.models, of.seeds))
    progress, rows = bench.steps(f"{what} of {of.title}"), []
    for done, (title, seed) in enumerate(pairs):
        progress(done, len(pairs))
        rows.append(measure(reached(bench, of, title, seed, among)))
    columns = {name: numpy.array([row[name] for row in rows]) for name in rows[0]}
    shape = (len(of.models), len(of.seeds))
    return {name: values.reshape(*shape, *values.shape[1:]) for name, values in columns.items()}
