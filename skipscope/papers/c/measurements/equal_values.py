"""PlainNets whose weights have equal singular values, at the beginning or throughout, and those of He et al.

They are subjects like those of C.accuracy, trained alike, so that a run has each network once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy
import xarray
from torch import nn
from torch.nn.utils import parametrizations

from skipscope.papers.c.measurements.commuting_weights import MEASURE
from skipscope.papers.c.subjects import PLAIN, TwinSettings, TwinSubject, subject
from skipscope.papers.kit import Bench
from skipscope.training.loop import accuracy, train

MODELS = {  # options of the network: what it is
    "": "He weights",
    "-orthogonal": "orthogonal weights",
    "-linear": "linear units, He weights",
    "-linear-orthogonal": "linear units, orthogonal weights",
    "-nonorm-orthogonal": "no norms, orthogonal weights",
}
ORTHOGONAL = "-orthogonal"  # which begin as those that are kept so
KEPT = "weights kept orthogonal"
JUDGED = ("", ORTHOGONAL)
TITLES = (*MODELS.values(), KEPT)


def plan(data: str, depth: int, *, networks: int, other_networks: int, **others: Any) -> TwinSettings:
    """What is trained. data: its name, with a path where it needs one. networks: seeds of those that are judged.
    other_networks: of the others."""
    texts = {options: _text(data, depth, options) for options in MODELS}
    return TwinSettings(
        subjects=tuple(texts.values()),
        deciding=tuple(texts[options] for options in JUDGED),
        titles=(PLAIN,),
        networks=networks,
        other_networks=other_networks,
        least_steps=1,
        **others,
    )


def _text(data: str, depth: int, options: str) -> str:
    name, colon, path = data.partition(":")
    return f"{name}-{depth}-connected{options}{colon}{path}"


def training(bench: Bench, settings: TwinSettings) -> xarray.Dataset:
    """Train accuracies (network, rate, seed); NaN for seeds that a network is not trained with."""
    seeds = bench.seeds(max(settings.networks, settings.other_networks))
    values = numpy.full((len(MODELS), len(settings.rates), len(seeds)), numpy.nan)
    for place, text in enumerate(settings.subjects):
        of = subject(bench, settings, text)
        for row, rate in enumerate(settings.rates):
            for column, seed in enumerate(of.seeds):
                values[place, row, column] = accuracy(of.twin(PLAIN, rate).trained(bench, seed).model, of.data.train)
    return _accuracies(list(MODELS.values()), of, seeds, values, "training")


def kept(bench: Bench, settings: TwinSettings) -> xarray.Dataset:
    """The same with the weights of blocks constrained to orthogonal matrices throughout training (Cayley's map)."""
    of = subject(bench, settings, settings.subjects[list(MODELS).index(ORTHOGONAL)], settings.other_networks)
    values = numpy.full((1, len(settings.rates), len(of.seeds)), numpy.nan)
    for row, rate in enumerate(settings.rates):
        for column, seed in enumerate(of.seeds):
            network = of.twin(PLAIN, rate).network(seed, bench.device)
            model = network.initial()
            for layer in [module for module in model.stage1.modules() if isinstance(module, nn.Linear)]:
                parametrizations.orthogonal(layer, orthogonal_map="cayley")
            steps = bench.steps(f"training {network.title}, kept orthogonal")
            train(model, of.data.train, dataclasses.replace(network.settings, seed=seed), progress=steps)
            values[0, row, column] = accuracy(model, of.data.train)
    return _accuracies([KEPT], of, list(of.seeds), values, "kept")


def _accuracies(
    titles: list[str], of: TwinSubject, seeds: Sequence[int], values: numpy.ndarray, part: str
) -> xarray.Dataset:
    return xarray.Dataset(
        {"train_accuracy": (("network", "rate", "seed"), values)},
        {"network": titles, "rate": list(of.settings.rates), "seed": list(seeds)},
        {
            "measure": MEASURE,
            "part": part,
            "depth": of.depth,
            "networks": of.settings.networks,
            "data": of.data.name,
            "epochs": of.epochs,
        },
    )
