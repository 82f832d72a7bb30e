"""D.projections: figure 4 of paper D, perturbations in the basis of right singular vectors, near the end of stage 3.

    skipscope study run D.projections --preset quick --out DIR

The paper finds that at the last unit an adversarial perturbation lies in the leading right singular vectors, and a
random one does not. Every second unit of stage 3 is measured, counted from the last (units 12, 14, 16 and 18 of
ResNet-110). Statistic: the share of |d|^2 in the leading vector and in the ten leading ones, the median over the
images. The claim on it is here, with what each network is reduced to; D.population decides it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import xarray

from skipscope.constraints import at_least
from skipscope.measure import stability
from skipscope.papers.d import PAPER
from skipscope.papers.d.measured_networks import MeasuredNetwork, evidence_by_subject, measured_networks
from skipscope.papers.d.studies.perturbations import PerturbationSettings, perturbed_images
from skipscope.papers.d.subjects import RESNET110_DECIDES, Found
from skipscope.papers.kit import Bench, Claim, Evidence, Part, Quantity, Study

MEASURED_UNITS = 4
LEADING = 10  # right singular vectors
TOPS = {1: "top vector", LEADING: "top 10"}

SHARE_AT_LAST = {
    top: Quantity(f"share in the {name} at the last unit, adversarial", "share") for top, name in TOPS.items()
}
LAST_OVER_EARLIER = {
    top: Quantity(f"share in the {name} of adversarial perturbations, last / earlier units", "ratio")
    for top, name in TOPS.items()
}
ADVERSARIAL_OVER_RANDOM = {
    top: Quantity(f"share in the {name} at the last unit, adversarial / random", "ratio") for top, name in TOPS.items()
}
D14 = Claim(
    "D14",
    "At the last unit an adversarial perturbation turns into the leading right singular vectors.",
    "share of the perturbation's square in the leading right singular vector, and in the ten leading ones",
    parts=tuple(
        Part(name, (LAST_OVER_EARLIER[top].at_least(3.0), ADVERSARIAL_OVER_RANDOM[top].at_least(3.0)))
        for top, name in TOPS.items()
    ),
    subjects=RESNET110_DECIDES,
)


@dataclass(frozen=True)
class ProjectionSettings(PerturbationSettings):
    pictured: Annotated[int, at_least(1)] = 1  # images on all singular vectors, not only on the leading ones


def run(bench: Bench, settings: ProjectionSettings) -> Evidence:
    leading = partial(_measured, count=settings.perturbed, seed=bench.seed, top=LEADING)
    on_all = partial(_measured, count=settings.pictured, seed=bench.seed, top=None)
    parts = []
    for network in measured_networks(bench, settings):
        on_leading, _ = bench.sweep([network.task(leading), network.task(on_all, f"{network.key}-all")])
        parts.append(on_leading)
    return evidence_by_subject(parts, lambda data: of_projections(data["projection"].rename(project="unit")))


def of_projections(projections: xarray.DataArray) -> Found:
    """On the leading vectors (`index`) of four units, in the networks of one subject."""
    found: dict[Quantity, Any] = {}
    for top in TOPS:
        shares = (projections.isel(index=slice(top)) ** 2).sum("index").median("sample")
        adversarial = shares.sel(kind="adversarial")
        last, earlier = adversarial.isel(unit=-1), adversarial.isel(unit=slice(-1)).mean("unit")
        found[SHARE_AT_LAST[top]] = last
        found[LAST_OVER_EARLIER[top]] = last / earlier
        found[ADVERSARIAL_OVER_RANDOM[top]] = last / shares.sel(kind="random").isel(unit=-1)
    return {D14: found}


def _measured(network: MeasuredNetwork, count: int, seed: int, top: int | None) -> xarray.Dataset:
    found = perturbed_images(network, count, seed)
    regular = [unit.name for unit in network.trunk.stages[-1].units if unit.kind == "identity"]
    chosen = regular[::-2][:MEASURED_UNITS][::-1]
    dataset = stability(network.trunk, found.images, perturbation=found.kinds, units=regular, project=chosen, k=top)
    return dataset.assign_attrs(found.record)


STUDY = Study(
    PAPER,
    "projections",
    paper_found="The adversarial perturbation aligns with the leading right singular vectors at the last unit.",
    we_expect="The share in the ten leading vectors rises towards the last unit, more than for random ones.",
    presets={
        "smoke": ProjectionSettings("resnet20-digits-n4", epochs=2, networks=1, images=2, perturbed=2, pictured=1),
        "quick": ProjectionSettings(perturbed=10, pictured=2),
        "full": ProjectionSettings(train110=True),
        "paper": ProjectionSettings(pictured=10, train110=True),
    },
    cost={
        "smoke": "seconds",
        "quick": "a minute on 2 cores, and the training of five networks on digits; minutes more for a ResNet-56",
        "full": "3 minutes on one GPU",
        "paper": "half an hour on one GPU, and the training of a ResNet-110 where no weights are given",
    },
    run=run,
)
