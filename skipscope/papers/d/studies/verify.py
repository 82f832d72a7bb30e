"""D.verify: are the Jacobians the derivatives? The Jacobian test and the adjoint test of paper D's section on them.

    skipscope study run D.verify --preset quick --out DIR

The paper checks r0(e) = |R(x + e d) - R(x)| and r1(e) = |R(x + e d) - R(x) - e J d| over e = 1 ... 1e-8: slopes 1 and
2. Between ReLUs a unit is linear, and r1 drops to rounding as soon as no kink is crossed; slope 2 is seen on a smooth
unit, which is part of the study. A Jacobian that is off by 0.1 % is the control: the tests must reject it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import chain

import torch
import xarray
from torch import Tensor, nn

from skipscope.measure import verification
from skipscope.papers.d import PAPER
from skipscope.papers.d.measured_networks import MeasuredNetwork, NetworkSettings, measured_networks
from skipscope.papers.kit import Bench, Claim, Evidence, Quantity, Study
from skipscope.runs.sweep import Task
from skipscope.trace import trace

JACOBIANS = Quantity("Jacobians")
SMALLEST_SLOPE = Quantity("slope of r0, smallest")
LARGEST_SLOPE = Quantity("slope of r0, largest")
REJECTED = Quantity("Jacobians with r1 neither of slope 1.9 nor at rounding")
ADJOINT_ERROR = Quantity("largest adjoint error")
SEEN = Quantity("seen")
CONTROL_REJECTED = Quantity("wrong Jacobian rejected")
D1 = Claim(
    "D1",
    "The Jacobian is the derivative of the unit, and its transpose is its transpose.",
    "Jacobian test (r0 and r1 against the step) and adjoint test of every unit",
    criteria=(
        SMALLEST_SLOPE.at_least(0.9),
        LARGEST_SLOPE.at_most(1.1),
        REJECTED.exactly(0.0),
        ADJOINT_ERROR.at_most(1e-10),
    ),
    controls=(JACOBIANS.at_least(1.0), CONTROL_REJECTED.exactly(1.0)),
    note="Between ReLUs a unit is linear, and r1 drops to rounding as soon as no kink is crossed.",
)


class Smooth(nn.Module):
    """A unit without kinks."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, h: Tensor) -> Tensor:
        return nn.functional.softplus(h + self.second(nn.functional.softplus(self.first(h))))


def run(bench: Bench, settings: NetworkSettings) -> Evidence:
    networks = (network.task(_measured) for network in measured_networks(bench, settings))
    return evidence(bench.sweep(chain([Task("smooth", partial(_smooth, bench))], networks)))


def _measured(network: MeasuredNetwork) -> xarray.Dataset:
    return verification(network.trunk, network.images, units=network.names)


def evidence(parts: Sequence[xarray.Dataset]) -> Evidence:
    """Over all Jacobians of all datasets."""
    seen = Counter(str(kind) for part in parts for kind in part["seen"].values.ravel())
    slopes = [part["slope_zeroth"] for part in parts]
    return {
        D1: {
            JACOBIANS: sum(seen.values()),
            SMALLEST_SLOPE: min(float(slope.min(skipna=False)) for slope in slopes),
            LARGEST_SLOPE: max(float(slope.max(skipna=False)) for slope in slopes),
            REJECTED: seen["wrong"] + seen["not a derivative"] + seen["not tested"],
            ADJOINT_ERROR: max(float(part["adjoint_error"].max(skipna=False)) for part in parts),
            SEEN: ", ".join(f"{count} {kind}" for kind, count in seen.items()),
            CONTROL_REJECTED: all(not part.attrs["control_passed"] for part in parts),
        }
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
        "smoke": NetworkSettings("resnet8-digits-n8", epochs=1, networks=1, images=2),
        "quick": NetworkSettings(units=("stage3.4", "stage3.8"), large_images=(2,)),
        "full": NetworkSettings(large_images=(5, 2), train110=True),
        "paper": NetworkSettings(train110=True),
    },
    cost={
        "smoke": "seconds",
        "quick": "a minute on 2 cores, and the training of three networks on digits (shared with the other studies)",
        "full": "a minute on one GPU, and that training",
        "paper": "a few minutes on one GPU, and the training of a ResNet-110 where no weights are given",
    },
    run=run,
    claims=(D1,),
)
