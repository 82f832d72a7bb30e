"""C.linear: figures 12 and 13 of paper C, networks with linear units.

    skipscope study run C.linear --preset quick --out DIR
    skipscope study run C.linear --preset full --device cuda --out DIR

The paper finds, with 164 layers on MNIST, the order of the networks with ReLUs: larger condition numbers of PlainNet's
weights and hidden states, and an infinite one of its first hidden states.

We expect the ratio of the hidden states at the last block alone. The first state of a linear network is an affine image
of the data, and as well conditioned with skips as without; and no unit of it dies.

PlainNet and ResNet are compared at equal rates. Linear units take the place of ReLUs; batch norms stay, of which
running statistics make affine maps. Numerical infinity is 1 / (eps of float64 times the largest dimension of the
state); an infinite condition number counts as that.
"""

from __future__ import annotations

from functools import partial

import numpy
import xarray

from skipscope.papers.c import PAPER
from skipscope.papers.c.layer_conditions import between, layer_conditions, logarithms
from skipscope.papers.c.studies.accuracy import ACCURACY, of_title
from skipscope.papers.c.studies.weights import WORSE, difference
from skipscope.papers.c.subjects import LARGE, LONG, PLAIN, QUICK, RESIDUAL, SMOKE, TwinSettings, gathered, subjects
from skipscope.papers.kit import Bench, Claim, Evidence, Part, Quantity, Study

FIRST = Quantity("log10 cond / numerical infinity, first hidden states, PlainNet")
TYPICAL = Quantity("log10 cond of hidden states, median over blocks of PlainNet / ResNet")
LAST = Quantity("log10 cond of hidden states at the last block, PlainNet / ResNet")

C7 = Claim(
    "C7",
    "With linear units the same order holds.",
    "cond of hidden states at the last block and over all blocks; cond of weights; PlainNet over ResNet",
    parts=(
        Part("hidden states at the last block", (LAST.at_least(3.0),)),
        Part("hidden states of all blocks", (TYPICAL.above(0.0),)),
        Part("weights", (WORSE.above(0.0),)),
    ),
    subjects={"mnist-164-linear": 5, "mnist-60-connected-linear": 8},
    cost="skipscope study run C.linear --preset full --device cuda (about 10 minutes of one H200)",
    note=(
        "The first state is reported: that it is singular is impossible in fully connected networks, and automatic for "
        "16 channels on grey images, with skips or without."
    ),
)


def run(bench: Bench, settings: TwinSettings) -> Evidence:
    chosen = subjects(bench, settings, PLAIN, RESIDUAL)
    return evidence({name: layer_conditions(bench, of) for name, of in chosen.items()})


def evidence(found: dict[str, xarray.Dataset]) -> Evidence:
    accuracies = {ACCURACY["train", title]: partial(of_title, what="train", title=title) for title in (PLAIN, RESIDUAL)}
    return {C7: gathered(found, {LAST: last, TYPICAL: typical, WORSE: difference, FIRST: first, **accuracies})}


def first(dataset: xarray.Dataset) -> numpy.ndarray:
    states = dataset.sel(network=PLAIN).isel(layer=0)
    return (logarithms(states, "hidden") - numpy.log10(states["hidden_infinity"])).values


def last(dataset: xarray.Dataset) -> numpy.ndarray:
    values = logarithms(dataset, "hidden").isel(layer=between(dataset)[-1])
    return (values.sel(network=PLAIN) - values.sel(network=RESIDUAL)).values


def typical(dataset: xarray.Dataset) -> numpy.ndarray:
    """Median over all states between blocks."""
    values = logarithms(dataset, "hidden").isel(layer=between(dataset))
    return (values.sel(network=PLAIN) - values.sel(network=RESIDUAL)).median("layer", skipna=False).values


STUDY = Study(
    PAPER,
    "linear",
    paper_found="The same order as with ReLUs; PlainNet's first hidden states are singular.",
    we_expect="Badly conditioned hidden states at PlainNet's last block; its first ones and its weights are not.",
    presets={
        "smoke": TwinSettings(**{**SMOKE, "subjects": ("digits-6-connected-n4-linear",), "titles": (PLAIN, RESIDUAL)}),
        "quick": TwinSettings(subjects=("mnist-60-connected-linear",), go_on=1, **QUICK),
        "full": TwinSettings(
            **{**LARGE, "subjects": ("mnist-164-linear",), "titles": (PLAIN, RESIDUAL), "epochs": 10, "go_on": 1}
        ),
        "paper": TwinSettings(subjects=("mnist-164-linear",), go_on=1, **LONG),
    },
    cost={
        "smoke": "seconds",
        "quick": "4 minutes on one core",
        "full": "10 minutes of one GPU, of which every 10 minutes can be a command: --resume goes on",
        "paper": "a day of one GPU",
    },
    run=run,
    claims=(C7,),
)
