"""What claims on trained networks of paper A speak of: quantities, and where the datasets of `emergence.py` hold them.

A quantity has one value per network: the mean over images and, where there are several, over blocks and pairs of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy
import xarray

from skipscope.papers.kit import Quantity
from skipscope.papers.kit.estimates import BOOTSTRAP_FROM, NETWORKS_OF_CONFIGURATION, RankCorrelation

WIDE_RANK = 30  # K of the second part of A3, as in the paper's figures
LEAST_ACCURACY = 0.99  # on the training images, where a claim takes networks that fit them

LSS = Quantity("LSS", "ratio")
STEP_COV = Quantity("step CoV", "ratio")
ADJACENT = Quantity("m_K adjacent / chance", "ratio")
ALL_PAIRS = Quantity("m_K all pairs / chance", "ratio")
WIDE_ADJACENT = Quantity(f"m_{WIDE_RANK} adjacent / chance", "ratio")
WIDE_ALL_PAIRS = Quantity(f"m_{WIDE_RANK} all pairs / chance", "ratio")
SWAPPED = Quantity("m_K(VJU)", "ratio")
SWAPPED_OVER_CHANCE = Quantity("m_K(VJU) / chance", "ratio")
SWAPPED_LAST_HALF = Quantity("m_K(VJU), last half of the blocks", "ratio")
LEFT_ON_RIGHT = Quantity("u_1 . v_1", "correlation")
LEFT_ON_RIGHT_LAST_HALF = Quantity("u_1 . v_1, last half of the blocks", "correlation")
ENERGY = Quantity("energy in the first C", "share")
GAP = Quantity("s_(C+1) / s_1", "ratio")
R_SQUARED = Quantity("R2 of 1 / s_1 over depth", "share")
SLOPE = Quantity("slope of 1 / s_1 over depth")
TRAIN_ACCURACY = Quantity("train accuracy", "share")
VARIABLES = {
    LSS: "line_shape",
    STEP_COV: "step_variation",
    ADJACENT: "over_chance_adjacent",
    ALL_PAIRS: "over_chance_all",
    SWAPPED: "swapped",
    SWAPPED_OVER_CHANCE: "swapped_over_chance",
    SWAPPED_LAST_HALF: "swapped_last_half",
    LEFT_ON_RIGHT: "u1v1",
    LEFT_ON_RIGHT_LAST_HALF: "u1v1_last_half",
    ENERGY: "energy",
    GAP: "gap",
    R_SQUARED: "r_squared",
    SLOPE: "slope",
    TRAIN_ACCURACY: "train_accuracy",
}
WIDE_VARIABLES = {WIDE_ADJACENT: "wide_over_chance_adjacent", WIDE_ALL_PAIRS: "wide_over_chance_all"}


def at_start(quantity: Quantity) -> Quantity:
    """The same of untrained networks."""
    return Quantity(f"{quantity} at initialisation", quantity.scale)


def values(dataset: xarray.Dataset, epoch: int = -1) -> dict[Quantity, list[float]]:
    """One value per network."""
    known = VARIABLES | WIDE_VARIABLES
    return {quantity: at_look(dataset, name, epoch) for quantity, name in known.items() if name in dataset}


def at_look(dataset: xarray.Dataset, name: str, epoch: int = -1) -> list[float]:
    """A variable at one of the epochs, the last by default: one value per network."""
    return dataset[name].isel(epoch=epoch).values.tolist()


def seeds_of(*datasets: xarray.Dataset) -> tuple[int, ...]:
    """Of all networks, one dataset after another."""
    return tuple(int(seed) for dataset in datasets for seed in dataset["seed"].values)


def not_fitted(datasets: Sequence[xarray.Dataset]) -> str:
    """What is wrong with networks that have to fit their training images; empty where all do."""
    accuracies = numpy.concatenate([at_look(dataset, "train_accuracy") for dataset in datasets])
    if numpy.isnan(accuracies).any():
        return f"{int(numpy.isnan(accuracies).sum())} of {accuracies.size} networks diverged"
    if accuracies.min() < LEAST_ACCURACY:
        count = int((accuracies < LEAST_ACCURACY).sum())
        return (
            f"{count} of {accuracies.size} networks have a train accuracy below {LEAST_ACCURACY:g}, the lowest "
            f"{accuracies.min():.3g}: train them longer"
        )
    return ""


def trend(
    quantity: Quantity, first: Sequence[float], second: Sequence[float], configurations: Sequence[Any]
) -> tuple[dict[Quantity, RankCorrelation], str]:
    """A rank correlation over networks; where they are too few for its interval, nothing, and what it takes."""
    counts = Counter(configurations)
    if len(counts) < BOOTSTRAP_FROM and min(counts.values()) < NETWORKS_OF_CONFIGURATION:
        return {}, (
            f"a rank correlation takes {NETWORKS_OF_CONFIGURATION} networks of each configuration, or {BOOTSTRAP_FROM} "
            f"configurations; there are {len(counts)} with {min(counts.values())} networks at least"
        )
    return {quantity: RankCorrelation(first, second, configurations)}, ""
