"""A.skips: does residual alignment need skips?

    skipscope study run A.skips --preset full --out DIR

The paper finds no alignment in networks without skips. That a network of 16 blocks without skips does not align says
nothing where it does not fit its training images either. Six blocks with clipped gradients do fit them at the rate and
the weight decay with which those with skips align, so that networks with and without skips are trained alike here. In
between, the identity is multiplied by a factor: 0 is a network without skips, 1 one with them.

We expect common singular vectors with skips alone, and less of them with a smaller factor. The rank is low without
skips too. Rate, clipping, weight decay and epochs were chosen in trials of two networks, which are not judged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy
import xarray

from skipscope.constraints import at_least, each, from_to, not_empty
from skipscope.papers.a import PAPER
from skipscope.papers.a.doses import doses, of_one_series
from skipscope.papers.a.emergence import emergence, train_all
from skipscope.papers.a.quantities import (
    ALL_PAIRS,
    ENERGY,
    LSS,
    R_SQUARED,
    SLOPE,
    TRAIN_ACCURACY,
    not_fitted,
    seeds_of,
    trend,
    values,
)
from skipscope.papers.a.subjects import ENDS, SMOKE, Looks, TrainingSettings, judged_as, subject
from skipscope.papers.kit import Bench, Claim, Evidence, Measured, Part, Quantity, Study

KINDS = ("with", "without")
FACTORS = (0.0, 0.25, 0.5, 0.75, 1.0)
DOSE_NETWORKS = 5
PAIRS = "type1-mnist, 6 blocks"
DOSE = ", skip factors"
EXPECTED = "The paper finds no alignment without skips: at 0 the quantities should be those of random Jacobians."


def of_kinds(quantity: Quantity) -> dict[str, Quantity]:
    return {kind: Quantity(f"{quantity}, {kind} skips", quantity.scale) for kind in KINDS}


COUPLING, RANK, LINE, SLOPES, ACCURACY = map(of_kinds, (ALL_PAIRS, ENERGY, R_SQUARED, SLOPE, TRAIN_ACCURACY))
LSS_LEFT = {kind: Quantity(f"{LSS} over its own at initialisation, {kind} skips", "ratio") for kind in KINDS}
TREND = Quantity("Spearman of skip factor and m_K / chance", "correlation")
COUPLING_BY_FACTOR = Quantity("mean m_K all pairs / chance by skip factor")
A8 = Claim(
    "A8",
    "Without skips there is no alignment, at the same training accuracy.",
    "A3, A5 and A7 with and without skips, at the same rate, weight decay, number of steps and train accuracy (0.99)",
    parts=(
        Part("RA2, common vectors", (COUPLING["with"].at_most(0.62), COUPLING["without"].at_least(0.9))),
        Part("RA3, rank", (RANK["with"].at_least(0.99), RANK["without"].below(0.99))),
        Part("RA4, one over depth", (LINE["with"].at_least(0.9), LINE["without"].below(0.9))),
        Part("dose", (TREND.at_most(-0.7),), subject=PAIRS + DOSE),
    ),
    subjects={PAIRS: 8, PAIRS + DOSE: DOSE_NETWORKS * len(FACTORS)},
    note=(
        "Networks of six blocks: of 16 blocks, those without skips do not fit at a decay that aligns the others. "
        "LSS compares only with its own initialisation."
    ),
)


@dataclass(frozen=True)
class SkipsSettings(TrainingSettings):
    subject: str = "type1-mnist"
    blocks: Annotated[int, at_least(1)] = 6
    epochs: int = 90
    weight_decay: float = 0.0133
    clip: float | None = 1.0
    looks: Looks = ENDS
    factors: Annotated[tuple[float, ...], not_empty, each(from_to(0, 1))] = FACTORS
    dose_networks: Annotated[int, at_least(1)] = DOSE_NETWORKS  # of each factor


def run(bench: Bench, settings: SkipsSettings) -> Evidence:
    factors = sorted({0.0, 1.0, *settings.factors})
    subjects = {}
    for factor in factors:
        count = settings.networks if factor in (0, 1) else settings.dose_networks
        subjects[factor] = subject(
            bench,
            settings,
            settings.subject,
            options=_option(factor),
            seeds=bench.seeds(count),
            title=f"skips times {factor:g}" if 0 < factor < 1 else f"{'with' if factor else 'without'} skips",
        )
    train_all(bench, subjects.values())
    found = {factor: emergence(bench, one) for factor, one in subjects.items()}
    doses(bench, of_one_series(found), "skip factor", title="Skips of a part of their strength", expected=EXPECTED)
    name = f"{judged_as(settings.subject, subjects[1.0])}, {settings.blocks} blocks"
    return evidence(found, name, settings.dose_networks)


def _option(factor: float) -> str:
    """Of the network's name."""
    return {0.0: "-noskips", 1.0: ""}.get(factor, f"-skip{round(100 * factor)}")


def evidence(found: Mapping[float, xarray.Dataset], name: str, dose_networks: int) -> Evidence:
    """found: statistics (seed, epoch) by the factor of the skips. name: of the subject."""
    of_kind = {"with": found[1.0], "without": found[0.0]}
    both: dict[Quantity, Any] = {}
    for kind, dataset in of_kind.items():
        end, start = values(dataset), values(dataset, epoch=0)
        for quantities, quantity in (
            (COUPLING, ALL_PAIRS),
            (RANK, ENERGY),
            (LINE, R_SQUARED),
            (SLOPES, SLOPE),
            (ACCURACY, TRAIN_ACCURACY),
        ):
            both[quantities[kind]] = end[quantity]
        both[LSS_LEFT[kind]] = (numpy.array(end[LSS]) / start[LSS]).tolist()
    dose = {factor: dataset.isel(seed=slice(dose_networks)) for factor, dataset in found.items()}
    coupled = {factor: values(dataset)[ALL_PAIRS] for factor, dataset in dose.items()}
    of_network = [factor for factor, of_factor in coupled.items() for _ in of_factor]
    all_coupled = [one for of_factor in coupled.values() for one in of_factor]
    falling, too_few = trend(TREND, of_network, all_coupled, of_network)
    means = {COUPLING_BY_FACTOR: [float(numpy.mean(of_factor)) for of_factor in coupled.values()]}
    return {
        A8: [
            Measured(both, name, seeds_of(found[1.0]), unmet=not_fitted(list(of_kind.values()))),
            Measured(
                {**falling, **means},
                name + DOSE,
                seeds_of(*dose.values()),
                unmet=too_few or not_fitted(list(dose.values())),
            ),
        ]
    }


STUDY = Study(
    PAPER,
    "skips",
    paper_found="No alignment without skips.",
    we_expect="Common singular vectors with skips alone; a low rank with and without them.",
    presets={
        "smoke": SkipsSettings(
            **SMOKE | {"looks": ENDS}, subject="type1-digits", factors=(0.0, 0.5, 1.0), dose_networks=1
        ),
        "full": SkipsSettings(),
        "paper": SkipsSettings(networks=20, dose_networks=20),
    },
    cost={
        "smoke": "seconds",
        "full": "8 minutes on 2 cores: 31 networks",
        "paper": "half an hour on 2 cores: 100 networks",
    },
    run=run,
    claims=(A8,),
)
