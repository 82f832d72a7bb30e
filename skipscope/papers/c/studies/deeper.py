"""C.deeper: figures 10 and 11 of paper C, networks of 200 layers.

    skipscope study run C.deeper --preset quick --out DIR
    skipscope study run C.deeper --preset full --device cuda --out DIR

The paper finds, on MNIST, a PlainNet at chance with larger condition numbers of weights and infinite ones of hidden
states up to layer 80, and residual networks above 99 %.

We expect the same as with fewer layers. It decides no claim of its own: its numbers are reported beside those of
C.accuracy, C.weights and C.hidden, where these are in the same run. At the preset quick the networks are fully
connected and have 120 layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import xarray

from skipscope.papers.c import PAPER
from skipscope.papers.c.layer_conditions import layer_conditions
from skipscope.papers.c.studies import accuracy, hidden, weights
from skipscope.papers.c.subjects import (
    LARGE,
    LONG,
    NETWORKS,
    PLAIN,
    RESIDUAL,
    SMOKE,
    TwinSettings,
    subjects,
    without_path,
)
from skipscope.papers.c.twins import twins
from skipscope.papers.kit import SEEDS, Bench, Claim, Evidence, Quantity, Study


def run(bench: Bench, settings: TwinSettings) -> Evidence:
    chosen = subjects(bench, settings, PLAIN, RESIDUAL)
    trained = {text: twins(bench, of) for text, of in chosen.items()}
    return evidence(trained, {text: layer_conditions(bench, of) for text, of in chosen.items()})


def evidence(trained: dict[str, xarray.Dataset], conditions: dict[str, xarray.Dataset]) -> Evidence:
    found: dict[Claim, dict[Quantity, Any]] = {}
    for text in trained:
        own, measured = {text: trained[text]}, {text: conditions[text]}
        for of_claims in (accuracy.evidence(own), weights.evidence(measured), hidden.evidence(measured)):
            for claim, values in of_claims.items():
                found[claim] = found.get(claim, {}) | _reported(values, without_path(text))
    return found


def _reported(values: Mapping[Quantity, Any], text: str) -> dict[Quantity, Any]:
    """As quantities of this subject, which decide nothing."""
    return {quantity.of(text): value for quantity, value in values.items() if quantity not in (SEEDS, NETWORKS)}


STUDY = Study(
    PAPER,
    "deeper",
    paper_found="As with 110 layers; PlainNet's hidden states are singular up to layer 80.",
    we_expect="As with fewer layers.",
    presets={
        "smoke": TwinSettings(**{**SMOKE, "subjects": ("digits-8-connected-n4",), "titles": (PLAIN, RESIDUAL)}),
        "quick": TwinSettings(subjects=("mnist-120-connected",), titles=(PLAIN, RESIDUAL), networks=1),
        "full": TwinSettings(subjects=("mnist-200",), titles=(PLAIN, RESIDUAL), networks=1, **LARGE),
        "paper": TwinSettings(subjects=("mnist-200",), networks=1, **LONG),
    },
    cost={
        "smoke": "seconds",
        "quick": "2 minutes on one core",
        "full": "20 minutes of one GPU, of which every 10 minutes can be a command: --resume goes on",
        "paper": "a day of one GPU",
    },
    run=run,
)
