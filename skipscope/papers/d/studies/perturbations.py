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
from typing import TYPE_CHECKING, Any

import numpy

from skipscope.data.perturbations import Perturbed, perturbed
from skipscope.errors import InputError
from skipscope.measure import stability
from skipscope.papers.d import PAPER
from skipscope.papers.d.claims import decided_by
from skipscope.papers.d.measured import described, judged, ratios
from skipscope.papers.d.subjects import Subject, Subjects, subjects
from skipscope.papers.kit.bench import Bench
from skipscope.papers.kit.study import Evidence, Study

if TYPE_CHECKING:
    import xarray

CANDIDATES = 3  # images tried for every one that is wanted: some are misclassified
LAST = 3  # units of the jump at the end


@dataclass(frozen=True)
class PerturbationSettings(Subjects):
    perturbed: int = 10  # images

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.perturbed < 1:
            raise InputError(f"expected at least one perturbed image, got {self.perturbed}")


def run(bench: Bench, settings: PerturbationSettings) -> Evidence:
    parts = []
    for subject in subjects(bench, settings):
        parts.append(
            bench.part(
                subject.key,
                lambda subject=subject: _measured(bench, subject, settings.perturbed),  # type: ignore[misc]
            )
        )
    return evidence(parts)


def evidence(found: Sequence[xarray.Dataset]) -> dict[str, dict[str, Any]]:
    parts = judged(found)
    networks = {"seeds": len(parts)}
    growth = {
        (kind, stage): [_stage_growth(part, kind, stage) for part in parts]
        for kind in ("adversarial", "random")
        for stage in (1, 2, 3)
    }
    last = {kind: [_last_growth(part, kind) for part in parts] for kind in ("adversarial", "random")}
    d10: dict[str, Any] = dict(networks)
    for stage in (1, 2):
        d10[f"median growth of random perturbations, stage {stage}"] = growth["random", stage]
        d10[f"median growth, adversarial / random, stage {stage}"] = ratios(
            growth["adversarial", stage], growth["random", stage]
        )
    return {
        "D10": d10,
        "D11": {
            **networks,
            "RMS of random perturbations, end / start of stage 3": growth["random", 3],
            "RMS of adversarial perturbations, end / start of stage 3": growth["adversarial", 3],
        },
        "D12": {
            **networks,
            "growth of adversarial perturbations over the last 3 units": last["adversarial"],
            "growth over the last 3 units, adversarial / random": ratios(last["adversarial"], last["random"]),
        },
        "D13": {
            **networks,
            "median of predicted / actual growth": [float((p["predicted"] / p["actual"]).median()) for p in parts],
            "correlation of predicted and actual growth": [_correlation(part) for part in parts],
        },
    }


def perturbed_images(subject: Subject, count: int, seed: int) -> Perturbed:
    images, labels = subject.labelled(min(CANDIDATES * count, len(subject.data.test)))
    try:
        return perturbed(subject.model, images, labels, count, seed)
    except InputError as error:
        raise InputError(f"{subject.title}: {error}") from error


def _measured(bench: Bench, subject: Subject, count: int) -> xarray.Dataset:
    found = perturbed_images(subject, count, bench.seed)
    return described(stability(subject.trunk, found.images, found.kinds), subject).assign_attrs(found.record)


def _stage_growth(part: xarray.Dataset, kind: str, stage: int) -> float:
    """RMS at the end of a stage over that at its start, the median over the images."""
    places = numpy.flatnonzero(part["stage"].values == stage)
    return _growth(part, kind, int(places[0]), int(places[-1]) + 1)


def _last_growth(part: xarray.Dataset, kind: str) -> float:
    return _growth(part, kind, part.sizes["state"] - 1 - LAST, part.sizes["state"] - 1)


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
    claims=decided_by("D.perturbations"),
)
