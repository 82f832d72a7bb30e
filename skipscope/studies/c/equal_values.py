"""PlainNets whose weights have equal singular values, at the beginning or throughout, and those of He et al."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy
from torch import nn
from torch.nn.utils import parametrizations

import skipscope.models.names as names
from skipscope.errors import InputError
from skipscope.studies.bench import Bench
from skipscope.studies.c.commuting_weights import MEASURE
from skipscope.training import Settings
from skipscope.training.evaluation import accuracy
from skipscope.training.loop import train
from skipscope.training.networks import Network

if TYPE_CHECKING:
    import xarray

    from skipscope.data import Dataset

MODELS = {  # options of the network: what it is
    "": "He weights",
    "-orthogonal": "orthogonal weights",
    "-linear": "linear units, He weights",
    "-linear-orthogonal": "linear units, orthogonal weights",
    "-nonorm-orthogonal": "no norms, orthogonal weights",
}
KEPT = "weights kept orthogonal"
JUDGED = ("He weights", "orthogonal weights")


@dataclass(frozen=True)
class Plan:
    """What is trained."""

    data: str
    samples: int | None
    depth: int
    epochs: int
    rates: tuple[float, ...]
    networks: int  # seeds of those that are judged
    besides: int  # seeds of the others


def _images(bench: Bench, plan: Plan) -> Dataset:
    data = bench.data(plan.data)
    if plan.samples is not None and plan.samples < len(data.train):
        data = data.subset(samples=plan.samples)
    return data


def _named(options: str, data: Dataset, depth: int) -> str:
    name = names.fitting(f"plainnet{depth}-mnist-connected{options}", tuple(data.shape), data.classes)
    if not name:
        raise InputError(f"no PlainNet takes images of {tuple(data.shape)} and {data.classes} classes")
    return name


def _recipe(plan: Plan, rate: float) -> Settings:
    return Settings(plan.epochs, batch=128, rate=rate, weight_decay=1e-4)


def training(bench: Bench, plan: Plan) -> xarray.Dataset:
    """Train accuracies (network, rate, seed); NaN for seeds that a network is not trained with."""
    data = _images(bench, plan)
    seeds = bench.seeds(max(plan.networks, plan.besides))
    values = numpy.full((len(MODELS), len(plan.rates), len(seeds)), numpy.nan)
    for place, (options, title) in enumerate(MODELS.items()):
        chosen = seeds[: plan.networks if title in JUDGED else plan.besides]
        for row, rate in enumerate(plan.rates):
            for column, seed in enumerate(chosen):
                model = _named(options, data, plan.depth)
                found = bench.trained(model, data, _recipe(plan, rate), seed=seed)
                values[place, row, column] = accuracy(found.model, data.train)
    return _accuracies(list(MODELS.values()), plan, seeds, values, data, "training")


def kept(bench: Bench, plan: Plan) -> xarray.Dataset:
    """The same with the weights of blocks constrained to orthogonal matrices throughout training (Cayley's map)."""
    data = _images(bench, plan)
    seeds = bench.seeds(plan.besides)
    values = numpy.full((1, len(plan.rates), len(seeds)), numpy.nan)
    for row, rate in enumerate(plan.rates):
        for column, seed in enumerate(seeds):
            network = Network(_named("-orthogonal", data, plan.depth), data, _recipe(plan, rate), seed, bench.device)
            model = network.initial()
            for layer in [module for module in model.stage1.modules() if isinstance(module, nn.Linear)]:
                parametrizations.orthogonal(layer, orthogonal_map="cayley")
            steps = bench.steps(f"training {network.title}, kept orthogonal")
            train(model, data.train, dataclasses.replace(network.settings, seed=seed), progress=steps)
            values[0, row, column] = accuracy(model, data.train)
    return _accuracies([KEPT], plan, seeds, values, data, "kept")


def _accuracies(
    titles: list[str],
    plan: Plan,
    seeds: list[int],
    values: numpy.ndarray,
    data: Dataset,
    part: str,
) -> xarray.Dataset:
    import xarray

    return xarray.Dataset(
        {"train_accuracy": (("network", "rate", "seed"), values)},
        {"network": titles, "rate": list(plan.rates), "seed": seeds},
        {
            "measure": MEASURE,
            "part": part,
            "depth": plan.depth,
            "networks": plan.networks,
            "data": data.name,
            "epochs": plan.epochs,
        },
    )
