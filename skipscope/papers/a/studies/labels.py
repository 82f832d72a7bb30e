"""A.labels: do only networks that generalise align?

    skipscope study run A.labels --preset full --out DIR

The paper finds alignment in networks that generalise. A share of the training labels is replaced by random ones (0,
0.1, 0.25, 0.5 and all of them), which lowers the test accuracy of networks that fit all of their training labels.
Weight decay is the same for all: the largest with which networks of other seeds fit at every share.

We expect less alignment, the lower the test accuracy is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy
import xarray

from skipscope.constraints import at_least, each, from_to, including, not_empty
from skipscope.papers.a import PAPER
from skipscope.papers.a.doses import doses, of_one_series
from skipscope.papers.a.emergence import emergence, train_all
from skipscope.papers.a.quantities import (
    ALL_PAIRS,
    LEAST_ACCURACY,
    LSS,
    at_look,
    not_fitted,
    seeds_of,
    trend,
    values,
)
from skipscope.papers.a.subjects import ENDS, SMOKE, Looks, TrainingSettings, judged_as, subject
from skipscope.papers.kit import Bench, Claim, Evidence, Measured, Part, Quantity, Study, Subject
from skipscope.training.loop import accuracy

NOISES = (0.0, 0.1, 0.25, 0.5, 1.0)
NETWORKS = 5
DOSE = ", label noise"
EXPECTED = "The paper finds alignment in networks that generalise: it should go with the test accuracy."

TREND = Quantity("Spearman of test accuracy and m_K / chance", "correlation")
TEST_ACCURACY = Quantity("mean test accuracy by label noise")
COUPLING = Quantity("mean m_K all pairs / chance by label noise")
WEIGHT_DECAY = Quantity("weight decay")
COUPLING_OF_LABELS = Quantity("1 - m_K / chance, random / true labels")
LSS_OF_LABELS = Quantity("LSS - 1, random / true labels", "ratio")
PAIRS_WITH_TRUE_LABELS = ALL_PAIRS.of("true labels")
ACCURACY_OF_LABELS = {kind: Quantity(f"train accuracy with {kind} labels", "share") for kind in ("true", "random")}
A13 = Claim(
    "A13",
    "Only networks that generalise align.",
    "test accuracy and m_K / chance of networks with label noise 0 to 1; true against random labels",
    parts=(
        Part("dose", (TREND.at_most(-0.5),), subject=f"type1-mnist{DOSE}"),
        Part(
            "random against true labels",
            (COUPLING_OF_LABELS.at_most(0.5), LSS_OF_LABELS.at_least(2.0)),
            (PAIRS_WITH_TRUE_LABELS.at_most(0.77),),  # else there is nothing to lose
            subject="type1-mnist",
        ),
    ),
    subjects={f"type1-mnist{DOSE}": NETWORKS * len(NOISES), "type1-mnist": NETWORKS},
    note="All networks fit at least 0.99 of their training labels, with one weight decay.",
)


@dataclass(frozen=True)
class LabelsSettings(TrainingSettings):
    subject: str = "type1-mnist"
    noises: Annotated[tuple[float, ...], including(0.0, 1.0), each(from_to(0, 1))] = NOISES
    networks: Annotated[int, at_least(1)] = NETWORKS  # of each share
    looks: Looks = ENDS
    decays: Annotated[tuple[float, ...], not_empty, each(at_least(0))] = (5e-3, 3e-3, 2e-3, 1e-3)
    calibration_networks: Annotated[int, at_least(1)] = 3  # by which the decay is chosen, of each share


def run(bench: Bench, settings: LabelsSettings) -> Evidence:
    chosen = replace(settings, weight_decay=_chosen_decay(bench, settings), decay_budget=None)
    subjects = _subjects(bench, chosen)
    train_all(bench, subjects.values())
    found = {noise: emergence(bench, one) for noise, one in subjects.items()}
    doses(bench, of_one_series(found), "share of random labels", title="Label noise", expected=EXPECTED)
    return evidence(found, judged_as(settings.subject, subjects[0.0]))


def _subjects(bench: Bench, settings: LabelsSettings, **differs: Any) -> dict[float, Subject]:
    return {
        noise: subject(
            bench,
            settings,
            settings.subject,
            label_noise=noise,
            title=f"{100 * noise:g} % random labels, decay {settings.weight_decay:g}",
            **differs,
        )
        for noise in sorted(settings.noises)
    }


def _chosen_decay(bench: Bench, settings: LabelsSettings) -> float:
    """The first of the decays with which the networks for calibration fit at every share; the last if none does."""
    seeds = bench.calibration_seeds(settings.calibration_networks)
    for decay in settings.decays:
        tried = _subjects(bench, replace(settings, weight_decay=decay, decay_budget=None), seeds=seeds)
        train_all(bench, tried.values())
        lowest = min(
            accuracy(one.trained(bench, seed).model, one.data.train) for one in tried.values() for seed in seeds
        )
        bench.note(f"weight decay {decay:g}: networks for calibration fit at least {lowest:.4g} of the labels")
        if lowest >= LEAST_ACCURACY:
            return decay
    return settings.decays[-1]


def evidence(found: Mapping[float, xarray.Dataset], name: str) -> Evidence:
    """found: statistics (seed, epoch) by the share of random labels. name: of the subject."""
    tests = {noise: at_look(dataset, "test_accuracy") for noise, dataset in found.items()}
    coupled = {noise: values(dataset)[ALL_PAIRS] for noise, dataset in found.items()}
    of_network = [noise for noise, of_noise in tests.items() for _ in of_noise]
    falling, too_few = trend(TREND, _joined(tests), _joined(coupled), of_network)
    dose: dict[Quantity, Any] = {
        **falling,
        TEST_ACCURACY: [float(numpy.mean(of_noise)) for of_noise in tests.values()],
        COUPLING: [float(numpy.mean(of_noise)) for of_noise in coupled.values()],
        WEIGHT_DECAY: float(found[0.0].attrs["weight_decay"]),
    }
    true, random = found[0.0], found[1.0]
    aligned = [1 - numpy.array(values(dataset)[ALL_PAIRS]) for dataset in (true, random)]
    bent = [numpy.array(values(dataset)[LSS]) - 1 for dataset in (true, random)]
    compared: dict[Quantity, Any] = {
        COUPLING_OF_LABELS: (aligned[1] / aligned[0]).tolist(),
        LSS_OF_LABELS: (bent[1] / bent[0]).tolist(),
        PAIRS_WITH_TRUE_LABELS: values(true)[ALL_PAIRS],
        ACCURACY_OF_LABELS["true"]: at_look(true, "train_accuracy"),
        ACCURACY_OF_LABELS["random"]: at_look(random, "train_accuracy"),
    }
    return {
        A13: [
            Measured(
                dose, f"{name}{DOSE}", seeds_of(*found.values()), unmet=too_few or not_fitted(list(found.values()))
            ),
            Measured(compared, name, seeds_of(random), unmet=not_fitted([true, random])),
        ]
    }


def _joined(by_noise: Mapping[float, list[float]]) -> list[float]:
    return [value for of_noise in by_noise.values() for value in of_noise]


STUDY = Study(
    PAPER,
    "labels",
    paper_found="Alignment in networks that generalise.",
    we_expect="Less of it, the lower the test accuracy; none with random labels.",
    presets={
        "smoke": LabelsSettings(
            **SMOKE | {"looks": ENDS},
            subject="type1-digits",
            noises=(0.0, 1.0),
            decays=(5e-3, 1e-3),
            calibration_networks=1,
        ),
        "full": LabelsSettings(),
        "paper": LabelsSettings(samples=None, networks=8),
    },
    cost={
        "smoke": "seconds",
        "full": "20 minutes on 2 cores: 25 networks, and 15 or more by which weight decay is chosen",
        "paper": "hours of one GPU: all images",
    },
    run=run,
    claims=(A13,),
)
