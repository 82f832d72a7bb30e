"""C.orthogonal: does a very deep PlainNet train if singular values are nearly equal?

    skipscope study run C.orthogonal --preset quick --out DIR

The paper posits that a PlainNet would train with weights whose leading eigenvalues are hardly larger than the others
(section 6.5), and reports no experiment.

We expect that it depends on the map of a whole layer, not on its weights: ReLUs behind orthogonal weights lose half of
the directions, and such a network does not train; where the map is orthogonal at first, by looks-linear weights or by
tanh, it does. Fully connected PlainNets of 60 layers without norms, which would change the map, on 3000 images of
MNIST, along a cosine. Each kind has the rate and warm-up that are the best for it on a calibration seed. Also reported:
networks with norms, and weights that are constrained to orthogonal matrices throughout training, the strictest
regularisation towards equal singular values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar

import xarray

from skipscope.constraints import Constrained, Expectation, at_least, not_empty
from skipscope.papers.c import PAPER
from skipscope.papers.c.measurements import equal_values
from skipscope.papers.c.measurements.equal_values import JUDGED
from skipscope.papers.c.subjects import SMALL, TwinSettings
from skipscope.papers.kit import Bench, Claim, Evidence, Measured, Part, Quantity, Study
from skipscope.runs.sweep import Task

TRAINED = Quantity("train accuracy, PlainNet", "share")
HE, ORTHOGONAL, LOOKS_LINEAR, TANH = (f"{SMALL}{options}" for options in JUDGED)

C16 = Claim(
    "C16",
    "A PlainNet whose weights have nearly equal singular values trains.",
    "train accuracy without norms, from He's and from orthogonal weights, and where the layer's map is orthogonal",
    parts=(
        Part("He weights fail", (TRAINED.at_most(0.6),), subject=HE),
        Part("orthogonal weights with ReLU train", (TRAINED.at_least(0.9),), subject=ORTHOGONAL),
        Part("orthogonal map of a layer with ReLU trains", (TRAINED.at_least(0.9),), subject=LOOKS_LINEAR),
        Part("orthogonal weights with tanh train", (TRAINED.at_least(0.9),), subject=TANH),
    ),
    subjects={HE: 8, ORTHOGONAL: 8, LOOKS_LINEAR: 8, TANH: 8},
    cost="skipscope study run C.orthogonal --preset quick (6 minutes on one core, with MNIST)",
    note="Networks with norms, and weights that are kept orthogonal, are also reported.",
)


@dataclass(frozen=True)
class OrthogonalSettings(Constrained):
    OLD_NAMES: ClassVar[Mapping[str, str]] = {"besides": "other_networks"}

    data: str = "mnist"
    samples: int | None = 3000
    test_samples: int | None = 2000
    depth: int = 60
    epochs: int = 30
    schedule: str = "cosine"
    rates: Annotated[tuple[float, ...], not_empty] = (0.1, 0.01, 0.001, 0.0001)
    warmups: Annotated[tuple[int, ...], not_empty] = (0, 2)
    calibration_epochs: Annotated[int, at_least(1)] = 10
    networks: Annotated[int, at_least(1)] = 8  # seeds of those that are judged
    other_networks: Annotated[int, at_least(1)] = 1  # seeds of the others

    def expectations(self) -> Iterator[Expectation]:
        # The settings of the training check themselves when they are made.
        yield bool(self.plan.subjects), "expected networks to train, got none"

    @property
    def plan(self) -> TwinSettings:
        own = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return equal_values.plan(own.pop("data"), own.pop("depth"), **own)


def run(bench: Bench, settings: OrthogonalSettings) -> Evidence:
    parts = {
        "training": partial(equal_values.training, bench, settings.plan),
        "kept": partial(equal_values.kept, bench, settings.plan),
    }
    training, kept = bench.sweep([Task(name, compute) for name, compute in parts.items()])
    return evidence(training, kept)


def evidence(training: xarray.Dataset, kept: xarray.Dataset) -> Evidence:
    """By kind of network; diverged ones count with the accuracy that they have."""
    names = dict(zip(training["network"].values, training["subject"].values, strict=True))
    found = []
    for data in (training, kept):
        for network in data["network"].values:
            best = data["train_accuracy"].sel(network=network).max("rate").dropna("seed")
            seeds = tuple(int(seed) for seed in best["seed"].values)
            found.append(Measured({TRAINED: best.values.tolist()}, str(names.get(network, network)), seeds))
    return {C16: found}


STUDY = Study(
    PAPER,
    "orthogonal",
    paper_found="No experiment: weights with nearly equal singular values should make a PlainNet train.",
    we_expect="Orthogonal weights with ReLU do not; layers whose whole map is orthogonal do.",
    presets={
        "smoke": OrthogonalSettings(
            data="digits", samples=150, depth=4, epochs=1, rates=(0.01,), warmups=(0,), networks=3
        ),
        "quick": OrthogonalSettings(),
        "full": OrthogonalSettings(samples=None, test_samples=None, epochs=10, calibration_epochs=3),
        "paper": OrthogonalSettings(samples=None, test_samples=None, depth=110, epochs=30, calibration_epochs=3),
    },
    cost={
        "smoke": "seconds",
        "quick": "6 minutes on one core",
        "full": "with all images: minutes on one GPU",
        "paper": "as full, with the paper's 110 layers: more than 10 minutes on one GPU",
    },
    run=run,
    claims=(C16,),
)
