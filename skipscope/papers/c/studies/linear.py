"""C.linear: figures 12 and 13 of paper C, networks with linear units.

    skipscope study run C.linear --preset quick --out DIR
    skipscope study run C.linear --preset full --device cuda --out DIR

The paper finds, with 164 layers on MNIST, the order of the networks with ReLUs: larger condition numbers of PlainNet's
weights and hidden states, and an infinite one of its first hidden states.

We expect the ratio of the hidden states at the last block alone. The first state of a linear network is an affine image
of the data, and as well conditioned with skips as without; and no unit of it dies.

Linear units take the place of ReLUs; batch norms stay, of which running statistics make affine maps. Numerical infinity
is 1 / (eps of float64 times the largest dimension of the state); an infinite condition number counts as that.
"""

from __future__ import annotations

from functools import partial

import numpy
import xarray

from skipscope.papers.c import PAPER
from skipscope.papers.c.layer_conditions import between, layer_conditions, logarithms
from skipscope.papers.c.studies.accuracy import ACCURACY, of_title
from skipscope.papers.c.studies.weights import WORSE, difference
from skipscope.papers.c.subjects import LARGE, LONG, PLAIN, RESIDUAL, SMOKE, TwinSettings, gathered, subjects
from skipscope.papers.c.twins import twins
from skipscope.papers.kit import Bench, Claim, Evidence, Quantity, Study

FIRST = Quantity("log10 cond / numerical infinity, first hidden states, PlainNet")
LAST = Quantity("log10 cond of hidden states at the last block, PlainNet / ResNet")

C7 = Claim(
    "C7",
    "With linear units the same order holds.",
    "cond of PlainNet's first hidden states; cond of hidden states at the last block; cond of weights",
    criteria=(FIRST.at_least(0.0), LAST.at_least(3.0), WORSE.above(0.0)),
    seeds=3,
    note="A small network shows the hidden states' ratio, and the weights in the other order.",
)


def run(bench: Bench, settings: TwinSettings) -> Evidence:
    chosen = subjects(bench, settings, PLAIN, RESIDUAL)
    trained = {text: twins(bench, of) for text, of in chosen.items()}
    return evidence({text: layer_conditions(bench, of) for text, of in chosen.items()}, trained, settings.deciding)


def evidence(
    found: dict[str, xarray.Dataset], trained: dict[str, xarray.Dataset], deciding: tuple[str, ...] = ()
) -> Evidence:
    measured = gathered(found, deciding, {FIRST: first, LAST: last, WORSE: difference})
    accuracies = {ACCURACY["train", title]: partial(of_title, what="train", title=title) for title in (PLAIN, RESIDUAL)}
    return {C7: gathered(trained, deciding, accuracies) | measured}


def first(dataset: xarray.Dataset) -> numpy.ndarray:
    states = dataset.sel(network=PLAIN).isel(layer=0)
    return (logarithms(states, "hidden") - numpy.log10(states["hidden_infinity"])).values


def last(dataset: xarray.Dataset) -> numpy.ndarray:
    values = logarithms(dataset, "hidden").isel(layer=between(dataset)[-1])
    return (values.sel(network=PLAIN) - values.sel(network=RESIDUAL)).values


STUDY = Study(
    PAPER,
    "linear",
    paper_found="The same order as with ReLUs; PlainNet's first hidden states are singular.",
    we_expect="Badly conditioned hidden states at PlainNet's last block; its first ones and its weights are not.",
    presets={
        "smoke": TwinSettings(**{**SMOKE, "subjects": ("digits-6-connected-n4-linear",), "titles": (PLAIN, RESIDUAL)}),
        "quick": TwinSettings(subjects=("mnist-60-connected-linear",), titles=(PLAIN, RESIDUAL)),
        "full": TwinSettings(**{**LARGE, "subjects": ("mnist-164-linear",), "residual_rates": ()}),  # diverge at 0.1
        "paper": TwinSettings(subjects=("mnist-164-linear",), **LONG),
    },
    cost={
        "smoke": "seconds",
        "quick": "3 minutes on one core",
        "full": "half an hour of one GPU, of which every 10 minutes can be a command: --resume goes on",
        "paper": "a day of one GPU",
    },
    run=run,
    claims=(C7,),
)
