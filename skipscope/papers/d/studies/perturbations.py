"""D.perturbations: figure 3 of paper D, how random and adversarial perturbations travel.

    skipscope study run D.perturbations --preset quick --out DIR

The paper finds that perturbations grow through stages 1 and 2, adversarial ones faster; that in stage 3 random ones
shrink and adversarial ones jump near the end; and that the linearisation predicts the growth.

The claims on these are here, with what each network is reduced to; D.population decides them. Adversarial: FGSM with
the smallest step that flips a correctly classified image. Random: uniform noise of the same norm. Size: RMS of the
change of a state. Growth through a stage: to the exit of its last unit, from its entry or from the exit of its first
unit, which down-samples in stages 2 and 3. Values of a network are medians over its images.
"""

from __future__ import annotations

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
from skipscope.papers.d.measured_networks import (
    MeasuredNetwork,
    NetworkSettings,
    evidence_by_subject,
    measured_networks,
)
from skipscope.papers.d.subjects import RESNET110_DECIDES, Found
from skipscope.papers.kit import Bench, Claim, Evidence, Part, Quantity, Study

CANDIDATES = 3  # images tried for every one that is wanted: some are misclassified
LAST_UNITS = 3  # over which the jump at the end is measured
STARTS = ("entry", "exit of the first unit")  # from which growth through a stage is measured
PLACES = [(stage, start) for stage in (1, 2, 3) for start in STARTS]

RANDOM_GROWTH = {
    (stage, start): Quantity(f"growth of random perturbations in stage {stage} from the {start}", "ratio")
    for stage, start in PLACES
}
GROWTH_RATIO = {
    (stage, start): Quantity(f"growth in stage {stage} from the {start}, adversarial / random", "ratio")
    for stage, start in PLACES
}
D10 = Claim(
    "D10",
    "Perturbations grow through stages 1 and 2, adversarial ones faster than random ones.",
    "median over images of the growth of a perturbation's RMS through a stage",
    parts=tuple(
        Part(f"{what} in stage {stage} from the {start}", (quantities[stage, start].above(1.0),))
        for what, quantities in (("growth", RANDOM_GROWTH), ("adversarial ones faster", GROWTH_RATIO))
        for stage, start in PLACES
        if stage < 3
    ),
    subjects=RESNET110_DECIDES,
    note="The down-sampling unit at the start of stage 2 shrinks perturbations: growth depends on where it is begun.",
)

D11 = Claim(
    "D11",
    "Stage 3 shrinks random perturbations.",
    "RMS of the perturbation at the end of stage 3 over that at its start, median over images",
    parts=tuple(Part(f"from the {start}", (RANDOM_GROWTH[3, start].below(1.0),)) for start in STARTS),
    subjects=RESNET110_DECIDES,
    note=(
        "Depends on the recipe: from the entry of stage 3 random perturbations grow in ResNet-110 of the first recipe "
        "and shrink in those of the second."
    ),
)

LAST_GROWTH = Quantity("growth of adversarial perturbations over the last 3 units", "ratio")
LAST_GROWTH_RATIO = Quantity("growth over the last 3 units, adversarial / random", "ratio")
LAST_OVER_MEDIAN = Quantity("growth of adversarial perturbations in stage 3, last unit / median unit", "ratio")
D12 = Claim(
    "D12",
    "Adversarial perturbations jump at the end of stage 3.",
    "growth over the last three units; growth in the last unit over that in the median regular unit of stage 3",
    parts=(
        Part("over the last three units", (LAST_GROWTH.at_least(2.0), LAST_GROWTH_RATIO.at_least(1.5))),
        Part("last unit against the median one", (LAST_OVER_MEDIAN.above(1.0),)),
    ),
    subjects=RESNET110_DECIDES,
    note=(
        "Depends on the recipe and the depth: over the last three units ResNet-56 meets both thresholds, ResNet-110 of "
        "the second recipe neither, and five of the first do not decide it."
    ),
)

PREDICTED = Quantity("median of predicted / actual growth", "ratio")
CORRELATION = Quantity("correlation of predicted and actual growth", "correlation")
D13 = Claim(
    "D13",
    "The linearisation predicts how perturbations grow.",
    "predicted over actual growth, unit by unit",
    criteria=(PREDICTED.within(0.9, 1.1), CORRELATION.at_least(0.9)),
    subjects=RESNET110_DECIDES,
)


@dataclass(frozen=True)
class PerturbationSettings(NetworkSettings):
    perturbed: Annotated[int, at_least(1)] = 10  # images


def run(bench: Bench, settings: PerturbationSettings) -> Evidence:
    measured = partial(_measured, count=settings.perturbed, seed=bench.seed)
    parts = bench.sweep(network.task(measured) for network in measured_networks(bench, settings))
    return evidence_by_subject(parts, of_perturbations)


def of_perturbations(data: xarray.Dataset) -> Found:
    """data: sizes and growth of perturbations in the networks of one subject."""
    growth = {(kind, *place): stage_growth(data, kind, *place) for kind in data["kind"].values for place in PLACES}
    ratio = {place: growth["adversarial", *place] / growth["random", *place] for place in PLACES}
    both: dict[Quantity, Any] = {}
    for stage, start in PLACES:
        both[RANDOM_GROWTH[stage, start]] = growth["random", stage, start]
        both[GROWTH_RATIO[stage, start]] = ratio[stage, start]
    last = {kind: last_growth(data, kind) for kind in ("adversarial", "random")}
    third = ((data["stage"] == 3) & (data["skip"] == "identity")).values
    units = data["actual"].sel(kind="adversarial").isel(unit=third)
    quotients = (data["predicted"] / data["actual"]).median(("kind", "unit", "sample"))
    return {
        D10: {quantity: both[quantity] for rule in D10.rules for quantity in rule.quantities},
        D11: {
            quantities[3, start]: both[quantities[3, start]]
            for quantities in (RANDOM_GROWTH, GROWTH_RATIO)
            for start in STARTS
        },
        D12: {
            LAST_GROWTH: last["adversarial"],
            LAST_GROWTH_RATIO: last["adversarial"] / last["random"],
            LAST_OVER_MEDIAN: (units.isel(unit=-1) / units.median("unit")).median("sample"),
        },
        D13: {PREDICTED: quotients, CORRELATION: _correlations(data)},
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


def stage_growth(data: xarray.Dataset, kind: str, stage: int, start: str) -> xarray.DataArray:
    """RMS at the end of a stage over that at its start."""
    places = numpy.flatnonzero(data["stage"].values == stage)
    return _growth(data, kind, int(places[0]) + STARTS.index(start), int(places[-1]) + 1)


def last_growth(data: xarray.Dataset, kind: str) -> xarray.DataArray:
    return _growth(data, kind, data.sizes["state"] - 1 - LAST_UNITS, data.sizes["state"] - 1)


def _growth(data: xarray.Dataset, kind: str, first: int, last: int) -> xarray.DataArray:
    """Between two states, the median over images; state k is the entry of unit k."""
    rms = data["rms"].sel(kind=kind)
    return (rms.isel(state=last) / rms.isel(state=first)).median("sample")


def _correlations(data: xarray.Dataset) -> list[float]:
    pairs = zip(data["predicted"].values, data["actual"].values, strict=True)  # of each network
    return [float(numpy.corrcoef(first.ravel(), second.ravel())[0, 1]) for first, second in pairs]


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
        "quick": "a minute on 2 cores, and the training of five networks on digits",
        "full": "a minute on one GPU",
        "paper": "a minute on one GPU, and the training of a ResNet-110 where no weights are given",
    },
    run=run,
)
