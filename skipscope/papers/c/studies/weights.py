"""C.weights: figures 7 and 8 of paper C, the condition numbers of all weights of trained networks.

    skipscope study run C.weights --preset quick --out DIR
    skipscope study run C.weights --preset full --device cuda --set subjects=cifar10-110 --out DIR

The paper finds that the condition numbers of PlainNet's weights grow with depth, and that those of ResNet and ResNeXt
are small everywhere.

We expect somewhat larger condition numbers in PlainNet, and no growth with depth: in small networks they fall.

The networks are those of C.accuracy, PlainNet and ResNet at equal rates, and are trained once in a run. The control of
C4 is that ResNet's largest condition number is at most a tenth of PlainNet's. The paper does not
say how the singular values of the four modes of a convolution's higher-order SVD become one number: ours is the largest
condition number over the modes. Weights on shortcuts are left out, so that PlainNet and ResNet have the same layers.
"""

from __future__ import annotations

from functools import partial

import numpy
import xarray
from scipy.stats import spearmanr

from skipscope.papers.c import PAPER
from skipscope.papers.c.layer_conditions import conditions_of_subjects, logarithms, medians
from skipscope.papers.c.subjects import (
    COST_AFTER_ACCURACY,
    COST_OF_DEEP,
    DEEP,
    PLAIN,
    RESIDUAL,
    TWIN_PRESETS,
    TwinSettings,
    gathered,
    unfitted,
)
from skipscope.papers.kit import Bench, Claim, Evidence, Quantity, Study

WORSE = Quantity("median log10 cond of weights, PlainNet - ResNet")
OF_TITLE = {title: Quantity(f"median log10 cond of weights, {title}") for title in (PLAIN, RESIDUAL)}
GROWTH = Quantity("Spearman of layer and cond of weights, PlainNet", "correlation")
RESIDUAL_GROWTH = Quantity("Spearman of layer and cond of weights, ResNet", "correlation")
LARGEST = Quantity("log10 of the largest cond of weights, PlainNet / ResNet")

C3 = Claim(
    "C3",
    "The weights of PlainNet are worse conditioned.",
    "median log10 cond over layers, same shapes and same reduction",
    criteria=(WORSE.at_least(0.5),),
    subjects=DEEP,
    cost=COST_OF_DEEP,
)
C4 = Claim(
    "C4",
    "The condition number of PlainNet's weights grows with depth.",
    "rank correlation of layer and cond of its weight",
    criteria=(GROWTH.at_least(0.5),),
    controls=(LARGEST.at_least(1.0),),
    subjects=DEEP,
    cost=COST_OF_DEEP,
)


def run(bench: Bench, settings: TwinSettings) -> Evidence:
    return evidence(conditions_of_subjects(bench, settings))


def evidence(found: dict[str, xarray.Dataset]) -> Evidence:
    medians_of = {OF_TITLE[title]: partial(medians, what="weight", title=title) for title in OF_TITLE}
    return {
        C3: gathered(found, {WORSE: difference, **medians_of}, unfitted),
        C4: gathered(
            found,
            {
                GROWTH: lambda data: growth(data, PLAIN),
                LARGEST: largest,
                RESIDUAL_GROWTH: lambda data: growth(data, RESIDUAL),
            },
            unfitted,
        ),
    }


def difference(dataset: xarray.Dataset) -> numpy.ndarray:
    return medians(dataset, "weight", PLAIN) - medians(dataset, "weight", RESIDUAL)


def growth(dataset: xarray.Dataset, title: str) -> numpy.ndarray:
    """Rank correlation of layer and condition number, one value per seed."""
    rows = logarithms(dataset, "weight").sel(network=title).transpose("seed", "layer").values
    return numpy.array([spearmanr(range(len(row)), row)[0] for row in rows])


def largest(dataset: xarray.Dataset) -> numpy.ndarray:
    """log10 of the largest condition number over layers, PlainNet's over ResNet's."""
    found = logarithms(dataset, "weight").max("layer", skipna=False)
    return (found.sel(network=PLAIN) - found.sel(network=RESIDUAL)).values


STUDY = Study(
    PAPER,
    "weights",
    paper_found="PlainNet's weights are badly conditioned, the more the deeper; those of residual networks are not.",
    we_expect="Somewhat larger condition numbers in PlainNet, which fall with depth.",
    presets=TWIN_PRESETS,
    cost=COST_AFTER_ACCURACY,
    run=run,
    claims=(C3, C4),
)
