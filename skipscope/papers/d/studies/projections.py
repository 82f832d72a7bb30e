"""D.projections: figure 4 of paper D, perturbations in the basis of right singular vectors, near the end of stage 3.

    skipscope study run D.projections --preset quick --out DIR

The paper finds that at the last unit an adversarial perturbation lies in the leading right singular vectors, and a
random one does not. Every second unit of stage 3 is measured, counted from the last (units 12, 14, 16 and 18 of
ResNet-110). Statistic: the share of |d|^2 in the ten leading vectors, the median over the images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import xarray

from skipscope.constraints import at_least
from skipscope.measure import stability
from skipscope.papers.d import PAPER
from skipscope.papers.d.measured_networks import MeasuredNetwork, judged, measured_networks, ratios
from skipscope.papers.d.studies.perturbations import PerturbationSettings, perturbed_images
from skipscope.papers.kit import SEEDS, Bench, Claim, Evidence, Quantity, Study

MEASURED_UNITS = 4
LEADING = 10  # right singular vectors

SHARE_AT_LAST = Quantity("share in the top 10 at the last unit, adversarial")
LAST_OVER_EARLIER = Quantity("share in the top 10 of adversarial perturbations, last / earlier units")
ADVERSARIAL_OVER_RANDOM = Quantity("share in the top 10 at the last unit, adversarial / random")
D14 = Claim(
    "D14",
    "At the last unit an adversarial perturbation turns into the leading right singular vectors.",
    "share of the perturbation's square in the top 10 right singular vectors",
    criteria=(LAST_OVER_EARLIER.at_least(3.0), ADVERSARIAL_OVER_RANDOM.at_least(3.0)),
    seeds=3,
)


@dataclass(frozen=True)
class ProjectionSettings(PerturbationSettings):
    pictured: Annotated[int, at_least(1)] = 1  # images on all singular vectors, not only on the leading ones


def run(bench: Bench, settings: ProjectionSettings) -> Evidence:
    leading = partial(_measured, count=settings.perturbed, seed=bench.seed, top=LEADING)
    on_all = partial(_measured, count=settings.pictured, seed=bench.seed, top=None)
    parts = []
    for network in measured_networks(bench, settings):
        judged_part, _ = bench.sweep([network.task(leading), network.task(on_all, f"{network.key}-all")])
        parts.append(judged_part)
    return evidence(parts)


def evidence(found: Sequence[xarray.Dataset]) -> Evidence:
    parts = judged(found)
    shares = [part["share_top10"].median("sample") for part in parts]
    last = [float(share.sel(kind="adversarial").isel(project=-1)) for share in shares]
    earlier = [float(share.sel(kind="adversarial").isel(project=slice(None, -1)).mean()) for share in shares]
    random = [float(share.sel(kind="random").isel(project=-1)) for share in shares]
    return {
        D14: {
            SEEDS: len(parts),
            SHARE_AT_LAST: last,
            LAST_OVER_EARLIER: ratios(last, earlier),
            ADVERSARIAL_OVER_RANDOM: ratios(last, random),
        }
    }


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
        "quick": "a minute on 2 cores, and the training of three networks on digits; minutes more for a ResNet-56",
        "full": "3 minutes on one GPU",
        "paper": "half an hour on one GPU, and the training of a ResNet-110 where no weights are given",
    },
    run=run,
    claims=(D14,),
)
