"""PlainNets whose weights, or whose layers' maps, have equal singular values at the beginning or throughout.

Without norms: He et al.'s weights; orthogonal ones, of which ReLUs leave half; weights by which a layer with ReLUs is
an orthogonal map at first (looks-linear); and orthogonal ones with tanh. With norms, which change the map, beside them.
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
from skipscope.papers.c.twins import chosen
from skipscope.papers.kit import Bench
from skipscope.training.loop import accuracy, train

JUDGED = {  # options of the network: what it is
    "-nonorm": "He weights",
    "-nonorm-orthogonal": "orthogonal weights",
    "-nonorm-lookslinear": "looks-linear weights",
    "-nonorm-orthogonal-tanh": "orthogonal weights, tanh",
}
ORTHOGONAL = "-orthogonal"  # which begin as those that are kept so
WITH_NORMS = {"": "He weights, norms", ORTHOGONAL: "orthogonal weights, norms"}
MODELS = JUDGED | WITH_NORMS
KEPT = "weights kept orthogonal, norms"


def plan(data: str, depth: int, *, networks: int, other_networks: int, **others: Any) -> TwinSettings:
    """What is trained. data: its name, with a path where it needs one. networks: seeds of those that are judged.
    other_networks: of the others."""
    texts = {options: _text(data, depth, options) for options in MODELS}
    return TwinSettings(
        subjects=tuple(texts.values()),
        most_networks_of=tuple(texts[options] for options in JUDGED),
        titles=(PLAIN,),
        go_on=1,
        networks=networks,
        other_networks=other_networks,
        least_steps=1,
        **others,
    )


def _text(data: str, depth: int, options: str) -> str:
    name, colon, path = data.partition(":")
    return f"{name}-{depth}-connected{options}{colon}{path}"


def training(bench: Bench, settings: TwinSettings) -> xarray.Dataset:
    """Train accuracies (network, rate, seed), each network at the rate that is the best for its kind on a calibration
    seed; NaN for other rates, and for seeds that a network is not trained with."""
    kinds = [subject(bench, settings, text) for text in settings.subjects]
    recipes = [chosen(bench, of).go_on[0] for of in kinds]
    rates, seeds = sorted({recipe.rate for recipe in recipes}, reverse=True), max((of.seeds for of in kinds), key=len)
    values = numpy.full((len(kinds), len(rates), len(seeds)), numpy.nan)
    for (place, of), recipe in zip(enumerate(kinds), recipes, strict=True):
        for column, network in enumerate(of.twin(PLAIN, recipe).trained_all(bench).values()):
            values[place, rates.index(recipe.rate), column] = accuracy(network.model, of.data.train)
    found = _accuracies(list(MODELS.values()), kinds[0], rates, seeds, values, "training")
    return found.assign_coords(
        subject=("network", [of.name for of in kinds]), warmup=("network", [recipe.warmup for recipe in recipes])
    )


def kept(bench: Bench, settings: TwinSettings) -> xarray.Dataset:
    """The same with the weights of blocks constrained to orthogonal matrices throughout training (Cayley's map)."""
    of = subject(bench, settings, settings.subjects[list(MODELS).index(ORTHOGONAL)], settings.other_networks)
    recipe = chosen(bench, of).go_on[0]
    values = numpy.full((1, 1, len(of.seeds)), numpy.nan)
    for column, seed in enumerate(of.seeds):
        network = of.twin(PLAIN, recipe).network(seed, bench.device)
        model = network.initial()
        for layer in [module for module in model.stage1.modules() if isinstance(module, nn.Linear)]:
            parametrizations.orthogonal(layer, orthogonal_map="cayley")
        steps = bench.steps(f"training {network.title}, kept orthogonal")
        train(model, of.data.train, dataclasses.replace(network.settings, seed=seed), progress=steps)
        values[0, 0, column] = accuracy(model, of.data.train)
    return _accuracies([KEPT], of, [recipe.rate], of.seeds, values, "kept")


def _accuracies(
    titles: list[str],
    of: TwinSubject,
    rates: Sequence[float],
    seeds: Sequence[int],
    values: numpy.ndarray,
    part: str,
) -> xarray.Dataset:
    return xarray.Dataset(
        {"train_accuracy": (("network", "rate", "seed"), values)},
        {"network": titles, "rate": list(rates), "seed": list(seeds)},
        {
            "measure": MEASURE,
            "part": part,
            "depth": of.depth,
            "data": of.data.name,
            "epochs": of.epochs,
        },
    )
