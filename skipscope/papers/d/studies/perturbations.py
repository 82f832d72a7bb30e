"""D.perturbations: figure 3 of paper D, how random and adversarial perturbations travel.

    skipscope study run D.perturbations --preset quick --out DIR

The paper finds that perturbations grow through stages 1 and 2, adversarial ones faster; that in stage 3 random ones
shrink and adversarial ones jump near the end; and that the linearisation predicts the growth.

Adversarial: FGSM with the smallest step that flips a correctly classified image. Random: uniform noise of the same
norm. Size: RMS of the change of a state. Growth through a stage: from the entry of its first unit to the exit of its
last. Values of a network are medians over its images; the members are the networks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import numpy
import xarray

from skipscope.constraints import at_least
from skipscope.data.perturbations import Perturbed, perturbed
from skipscope.errors import InputError
from skipscope.measure import stability
from skipscope.papers.d import PAPER
from skipscope.papers.d.measured_networks import MeasuredNetwork, NetworkSettings, judged, measured_networks, ratios
from skipscope.papers.kit import SEEDS, Bench, Claim, Evidence, Quantity, Study

CANDIDATES = 3  # images tried for every one that is wanted: some are misclassified
LAST_UNITS = 3  # over which the jump at the end is measured

RANDOM_GROWTH = {stage: Quantity(f"median growth of random perturbations, stage {stage}") for stage in (1, 2)}
GROWTH_RATIO = {stage: Quantity(f"median growth, adversarial / random, stage {stage}") for stage in (1, 2)}
D10 = Claim(
    "D10",
    "Perturbations grow through stages 1 and 2, adversarial ones faster than random ones.",
    "median over images of the growth of a perturbation's RMS through a stage",
    criteria=(
        *(RANDOM_GROWTH[stage].above(1.0) for stage in (1, 2)),
        *(GROWTH_RATIO[stage].above(1.0) for stage in (1, 2)),
    ),
    seeds=3,
)

RANDOM_IN_STAGE_3 = Quantity("RMS of random perturbations, end / start of stage 3")
ADVERSARIAL_IN_STAGE_3 = Quantity("RMS of adversarial perturbations, end / start of stage 3")
D11 = Claim(
    "D11",
    "Stage 3 shrinks random perturbations.",
    "RMS of the perturbation at the end of stage 3 over that at its start",
    criteria=(RANDOM_IN_STAGE_3.below(1.0),),
    seeds=3,
    presets=("full", "paper"),
    note="They grew 1.75 times in a small network and 1.3 times in a trained ResNet-56.",
)

LAST_GROWTH = Quantity("growth of adversarial perturbations over the last 3 units")
LAST_GROWTH_RATIO = Quantity("growth over the last 3 units, adversarial / random")
D12 = Claim(
    "D12",
    "Adversarial perturbations jump at the end of stage 3.",
    "growth over the last three units",
    criteria=(LAST_GROWTH.at_least(2.0), LAST_GROWTH_RATIO.at_least(1.5)),
    seeds=3,
    presets=("full", "paper"),
)

PREDICTED = Quantity("median of predicted / actual growth")
CORRELATION = Quantity("correlation of predicted and actual growth")
D13 = Claim(
    "D13",
    "The linearisation predicts how perturbations grow.",
    "predicted over actual growth, unit by unit",
    criteria=(PREDICTED.within(0.9, 1.1), CORRELATION.at_least(0.9)),
    seeds=3,
)


@dataclass(frozen=True)
class PerturbationSettings(NetworkSettings):
    perturbed: Annotated[int, at_least(1)] = 10  # images


def run(bench: Bench, settings: PerturbationSettings) -> Evidence:
    measured = partial(_measured, count=settings.perturbed, seed=bench.seed)
    return evidence(bench.sweep(network.task(measured) for network in measured_networks(bench, settings)))


def evidence(found: Sequence[xarray.Dataset]) -> Evidence:
    parts = judged(found)
    networks = {SEEDS: len(parts)}
    growth = {
        (kind, stage): [_stage_growth(part, kind, stage) for part in parts]
        for kind in ("adversarial", "random")
        for stage in (1, 2, 3)
    }
    last = {kind: [_last_growth(part, kind) for part in parts] for kind in ("adversarial", "random")}
    by_stage: dict[Quantity, Any] = {}
    for stage in (1, 2):
        by_stage[RANDOM_GROWTH[stage]] = growth["random", stage]
        by_stage[GROWTH_RATIO[stage]] = ratios(growth["adversarial", stage], growth["random", stage])
    return {
        D10: {**networks, **by_stage},
        D11: {
            **networks,
            RANDOM_IN_STAGE_3: growth["random", 3],
            ADVERSARIAL_IN_STAGE_3: growth["adversarial", 3],
        },
        D12: {
            **networks,
            LAST_GROWTH: last["adversarial"],
            LAST_GROWTH_RATIO: ratios(last["adversarial"], last["random"]),
        },
        D13: {
            **networks,
            PREDICTED: [float((part["predicted"] / part["actual"]).median()) for part in parts],
            CORRELATION: [_correlation(part) for part in parts],
        },
    }


def perturbed_images(network: MeasuredNetwork, count: int, seed: int) -> Perturbed:
    images, labels = network.labelled(min(CANDIDATES * count, len(network.data.test)))
    try:
        return perturbed(network.model, images, labels, count, seed)
    except InputError as error:
        raise InputError(f"{network.title}: {error}") from error


def _measured(network: MeasuredNetwork, count: int, seed: int) -> xarray.Dataset:
    found = perturbed_images(network, count, seed)
    return stability(network.trunk, found.images, perturbation=found.kinds).assign_attrs(found.record)


def _stage_growth(part: xarray.Dataset, kind: str, stage: int) -> float:
    """RMS at the end of a stage over that at its start, the median over the images."""
    places = numpy.flatnonzero(part["stage"].values == stage)
    return _growth(part, kind, int(places[0]), int(places[-1]) + 1)


def _last_growth(part: xarray.Dataset, kind: str) -> float:
    return _growth(part, kind, part.sizes["state"] - 1 - LAST_UNITS, part.sizes["state"] - 1)


def _growth(part: xarray.Dataset, kind: str, first: int, last: int) -> float:
    """Between two states; state k is the entry of unit k."""
    rms = part["rms"].sel(kind=kind)
    return float((rms.isel(state=last) / rms.isel(state=first)).median())


def _correlation(part: xarray.Dataset) -> float:
    return float(numpy.corrcoef(part["predicted"].values.ravel(), part["actual"].values.ravel())[0, 1])


STUDY = Study(
    PAPER,
    "perturbations",
    paper_found="Growth in stages 1 and 2, adversarial faster; in stage 3 random ones shrink, adversarial ones jump.",
    we_expect="Adversarial ones grow faster and jump at the end; whether random ones shrink in stage 3 is open.",
    presets={
        "smoke": PerturbationSettings("resnet14-digits-n8", epochs=2, networks=1, images=2, perturbed=2),
        "quick": PerturbationSettings(),
        "full": PerturbationSettings(train110=True),
        "paper": PerturbationSettings(train110=True),
    },
    cost={
        "smoke": "seconds",
        "quick": "a minute on 2 cores, and the training of three networks on digits",
        "full": "a minute on one GPU",
        "paper": "a minute on one GPU, and the training of a ResNet-110 where no weights are given",
    },
    run=run,
    claims=(D10, D11, D12, D13),
)
