"""C.deeper: figures 10 and 11 of paper C, networks of 200 layers.

    skipscope study run C.deeper --preset quick --out DIR
    skipscope study run C.deeper --preset full --device cuda --out DIR

The paper finds, on MNIST, what it finds with 110 layers: a PlainNet that does not train, whose weights are worse
conditioned than those of residual networks, and whose hidden states are singular up to layer 80.

We expect the same as with fewer layers. Two networks of each kind; they decide no claim, and stand beside those that
decide C1 and C3 to C6.
"""

from __future__ import annotations

import xarray

from skipscope.papers.c import PAPER
from skipscope.papers.c.layer_conditions import layer_conditions
from skipscope.papers.c.studies import accuracy, hidden, weights
from skipscope.papers.c.subjects import LARGE, LONG, PLAIN, QUICK, RESIDUAL, SMOKE, TwinSettings, subjects
from skipscope.papers.c.twins import twins
from skipscope.papers.kit import Bench, Evidence, Study


def run(bench: Bench, settings: TwinSettings) -> Evidence:
    chosen = subjects(bench, settings, PLAIN, RESIDUAL)
    trained = {name: twins(bench, of) for name, of in chosen.items()}
    return evidence(trained, {name: layer_conditions(bench, of) for name, of in chosen.items()})


def evidence(trained: dict[str, xarray.Dataset], conditions: dict[str, xarray.Dataset]) -> Evidence:
    """Of subjects that decide no claim."""
    return {**accuracy.evidence(trained), **weights.evidence(conditions), **hidden.evidence(conditions)}


STUDY = Study(
    PAPER,
    "deeper",
    paper_found="As with 110 layers; PlainNet's hidden states are singular up to layer 80.",
    we_expect="As with fewer layers.",
    presets={
        "smoke": TwinSettings(**{**SMOKE, "subjects": ("digits-8-connected-n4",), "titles": (PLAIN, RESIDUAL)}),
        "quick": TwinSettings(subjects=("mnist-120-connected",), networks=1, rates=(0.1, 0.01), warmups=(0,), **QUICK),
        "full": TwinSettings(
            **{**LARGE, "subjects": ("mnist-200",), "titles": (PLAIN, RESIDUAL), "networks": 2, "epochs": 10}
        ),
        "paper": TwinSettings(**{**LONG, "subjects": ("mnist-200",), "networks": 2}),
    },
    cost={
        "smoke": "seconds",
        "quick": "3 minutes on one core",
        "full": "20 minutes of one GPU, of which every 10 minutes can be a command: --resume goes on",
        "paper": "a day of one GPU",
    },
    run=run,
)
