"""D.projections: figure 4 of paper D, perturbations in the basis of right singular vectors, near the end of stage 3.

    skipscope study run D.projections --preset quick --out DIR

The paper finds that at the last unit an adversarial perturbation lies in the leading right singular vectors, and a
random one does not. Every second unit of stage 3 is looked at, counted from the last (units 12, 14, 16 and 18 of
ResNet-110). Statistic: the share of |d|^2 in the ten leading vectors, the median over the images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from skipscope.errors import InputError
from skipscope.measure import stability
from skipscope.papers.d import PAPER
from skipscope.papers.d.claims import decided_by
from skipscope.papers.d.measured import described, judged, ratios
from skipscope.papers.d.studies.perturbations import PerturbationSettings, perturbed_images
from skipscope.papers.d.subjects import Subject, subjects
from skipscope.papers.kit.bench import Bench
from skipscope.papers.kit.study import Evidence, Study

if TYPE_CHECKING:
    import xarray

LOOKED_AT = 4  # units


@dataclass(frozen=True)
class ProjectionSettings(PerturbationSettings):
    pictured: int = 1  # images on all singular vectors, not only on the leading ones

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pictured < 1:
            raise InputError(f"expected at least one pictured image, got {self.pictured}")


def run(bench: Bench, settings: ProjectionSettings) -> Evidence:
    parts = []
    for subject in subjects(bench, settings):
        leading = bench.part(
            subject.key,
            lambda subject=subject: _measured(bench, subject, settings.perturbed, top=10),  # type: ignore[misc]
        )
        bench.part(
            f"{subject.key}-all",
            lambda subject=subject: _measured(bench, subject, settings.pictured, top=None),  # type: ignore[misc]
        )
        parts.append(leading)
    return evidence(parts)


def evidence(found: Sequence[xarray.Dataset]) -> dict[str, dict[str, Any]]:
    parts = judged(found)
    shares = [part["share_top10"].median("sample") for part in parts]
    last = [float(share.sel(kind="adversarial").isel(project=-1)) for share in shares]
    earlier = [float(share.sel(kind="adversarial").isel(project=slice(None, -1)).mean()) for share in shares]
    random = [float(share.sel(kind="random").isel(project=-1)) for share in shares]
    return {
        "D14": {
            "seeds": len(parts),
            "share in the top 10 at the last unit, adversarial": last,
            "share in the top 10 of adversarial perturbations, last / earlier units": ratios(last, earlier),
            "share in the top 10 at the last unit, adversarial / random": ratios(last, random),
        }
    }


def _measured(bench: Bench, subject: Subject, count: int, top: int | None) -> xarray.Dataset:
    found = perturbed_images(subject, count, bench.seed)
    stage = [unit.name for unit in subject.trunk.stages[-1].units if unit.kind == "identity"]
    chosen = stage[::-2][:LOOKED_AT][::-1]
    dataset = stability(subject.trunk, found.images, found.kinds, units=stage, project=chosen, top=top)
    return described(dataset, subject).assign_attrs(found.record)


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
    claims=decided_by("D.projections"),
)
