"""D.verify: are the Jacobians the derivatives? The Jacobian test and the adjoint test of paper D's section on them.

    skipscope study run D.verify --preset quick --out DIR

The paper checks r0(e) = |R(x + e d) - R(x)| and r1(e) = |R(x + e d) - R(x) - e J d| over e = 1 ... 1e-8: slopes 1 and
2. Between ReLUs a unit is linear, and r1 drops to rounding as soon as no kink is crossed; slope 2 is seen on a smooth
unit, which is part of the study. A Jacobian that is off by 0.1 % is the control: the tests must reject it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from skipscope.measure import verification
from skipscope.papers.d import PAPER
from skipscope.papers.d.claims import decided_by
from skipscope.papers.d.measured import described
from skipscope.papers.d.subjects import Subjects, subjects
from skipscope.papers.kit.bench import Bench
from skipscope.papers.kit.study import Evidence, Study
from skipscope.trace import trace

if TYPE_CHECKING:
    import xarray


class Smooth(nn.Module):
    """A unit without kinks."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, h: Tensor) -> Tensor:
        return nn.functional.softplus(h + self.second(nn.functional.softplus(self.first(h))))


def run(bench: Bench, settings: Subjects) -> Evidence:
    parts = [bench.part("smooth", lambda: _smooth(bench))]
    for subject in subjects(bench, settings):
        parts.append(
            bench.part(
                subject.key,
                lambda subject=subject: described(  # type: ignore[misc]
                    verification(subject.trunk, subject.images, units=subject.names), subject
                ),
            )
        )
    return {"D1": evidence(parts)}


def evidence(parts: Sequence[xarray.Dataset]) -> dict[str, Any]:
    """Over all Jacobians of all datasets."""
    seen = Counter(str(kind) for part in parts for kind in part["seen"].values.ravel())
    slopes = [part["slope_zeroth"] for part in parts]
    return {
        "Jacobians": sum(seen.values()),
        "slope of r0, smallest": min(float(slope.min(skipna=False)) for slope in slopes),
        "slope of r0, largest": max(float(slope.max(skipna=False)) for slope in slopes),
        "Jacobians with r1 neither of slope 1.9 nor at rounding": seen["wrong"]
        + seen["not a derivative"]
        + seen["not tested"],
        "largest adjoint error": max(float(part["adjoint_error"].max(skipna=False)) for part in parts),
        "seen": ", ".join(f"{count} {kind}" for kind, count in seen.items()),
        "wrong Jacobian rejected": all(not part.attrs["control_passed"] for part in parts),
    }


def _smooth(bench: Bench) -> xarray.Dataset:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(bench.seed)
        unit, images = Smooth().to(bench.device), torch.randn(2, 8, 8, 8)
    images = images.to(bench.device)
    return verification(trace(unit, images), images).assign_attrs(network="a smooth unit (softplus)")


STUDY = Study(
    PAPER,
    "verify",
    paper_found="The implementation passes the Jacobian test: r0 falls linearly and r1 quadratically.",
    we_expect="Every unit passes; r1 falls quadratically on smooth units and to rounding on piecewise linear ones.",
    presets={
        "smoke": Subjects("resnet8-digits-n8", epochs=1, networks=1, images=2),
        "quick": Subjects(units=("stage3.4", "stage3.8"), large_images=(2,)),
        "full": Subjects(large_images=(5, 2), train110=True),
        "paper": Subjects(train110=True),
    },
    cost={
        "smoke": "seconds",
        "quick": "a minute on 2 cores, and the training of three networks on digits (shared with the other studies)",
        "full": "a minute on one GPU, and that training",
        "paper": "a few minutes on one GPU, and the training of a ResNet-110 where no weights are given",
    },
    run=run,
    claims=decided_by("D.verify"),
)
