"""A.counterfactuals: what becomes of residual alignment without weight decay, and with stochastic depth.

    skipscope study run A.counterfactuals --preset quick --out DIR
    skipscope study run A.counterfactuals --preset full --device cuda --set changes=drop --out DIR

The paper finds that stochastic depth modulates alignment. We add weight decay, without which trajectories do not become
straight. The direction in which stochastic depth works is not known to us: the differences are given with intervals.

Every change is one of `changes`, and is compared with the networks that differ in nothing else. Changes that take more
networks have studies of their own: A.skips, A.classes, A.sizes and A.labels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy
import xarray

from skipscope.constraints import some_of
from skipscope.papers.a import PAPER
from skipscope.papers.a.emergence import emergence
from skipscope.papers.a.quantities import ALL_PAIRS, LSS, at_look, seeds_of, values
from skipscope.papers.a.subjects import ENDS, SMOKE, TrainingSettings, judged_as, subject
from skipscope.papers.kit import Bench, Claim, Evidence, Measured, Quantity, Study
from skipscope.runs.decisions import interval_of

CHANGES = ("decay", "drop")
DROPPED = (20, 50)  # per cent of the steps in which a sample goes around a branch

DROP_CHANGE = {
    (quantity, percent): Quantity(f"change of {quantity}, {percent} % dropped")
    for percent in DROPPED
    for quantity in (LSS, ALL_PAIRS)
}
DROP_INTERVAL = {
    (quantity, percent): Quantity(f"95 % interval of its mean, {quantity}, {percent} %")
    for quantity, percent in DROP_CHANGE
}
DROP_ACCURACY = {percent: Quantity(f"train accuracy, {percent} % dropped", "share") for percent in DROPPED}
A11 = Claim(
    "A11",
    "Stochastic depth modulates alignment.",
    "change of LSS and of m_K with the probability of dropping a block (0, 0.2, 0.5), with intervals",
    subjects={"type1-mnist": 8},
    note="the direction is in nothing that could be read, so the sign is given with its interval",
)

LSS_WITHOUT_DECAY = Quantity("LSS without weight decay", "ratio")
LSS_WITH_DECAY = Quantity("LSS with weight decay", "ratio")
ACCURACY_WITHOUT_DECAY = Quantity("train accuracy without weight decay", "share")
PAIRS_WITHOUT_DECAY = Quantity(f"{ALL_PAIRS} without weight decay", "ratio")
A16 = Claim(
    "A16",
    "Weight decay is necessary for straight trajectories.",
    "LSS of networks that differ in weight decay alone (0 and 5e-3)",
    criteria=(LSS_WITHOUT_DECAY.at_least(3.0),),
    controls=(LSS_WITH_DECAY.at_most(1.15),),
    subjects={"type1-mnist": 8},
    ours=True,
    note="Seen on MNIST with fully connected networks only; eight with and eight without decay.",
)


@dataclass(frozen=True)
class CounterfactualSettings(TrainingSettings):
    subject: str = "type1-mnist"
    changes: Annotated[tuple[str, ...], some_of(*CHANGES)] = ("decay",)


Cases = Callable[..., xarray.Dataset]  # what was measured of a case, by how it differs


def run(bench: Bench, settings: CounterfactualSettings) -> Evidence:
    def measured(training: TrainingSettings = settings, **differs: Any) -> xarray.Dataset:
        return emergence(bench, subject(bench, training, settings.subject, **differs))

    name = judged_as(settings.subject, subject(bench, settings, settings.subject))
    return {
        claim: [Measured(found, name, seeds)]
        for change in settings.changes
        for claim, (found, seeds) in EVIDENCE_OF[change](measured, settings).items()
    }


Found = dict[Claim, tuple[dict[Quantity, Any], tuple[int, ...]]]  # with the seeds of the networks


def _decay(measured: Cases, settings: CounterfactualSettings) -> Found:
    no_decay = replace(settings, weight_decay=0.0, decay_budget=None, looks=ENDS)
    without, with_decay = measured(no_decay, title="without weight decay"), measured()
    found: dict[Quantity, Any] = {
        LSS_WITHOUT_DECAY: values(without)[LSS],
        LSS_WITH_DECAY: values(with_decay)[LSS],
        ACCURACY_WITHOUT_DECAY: at_look(without, "train_accuracy"),
        PAIRS_WITHOUT_DECAY: values(without)[ALL_PAIRS],
    }
    return {A16: (found, seeds_of(without))}


def _drop(measured: Cases, settings: CounterfactualSettings) -> Found:
    base = measured()
    found: dict[Quantity, Any] = {}
    for percent in DROPPED:
        dropped = measured(
            replace(settings, looks=ENDS), options=f"-drop{percent}", title=f"stochastic depth, {percent} %"
        )
        for quantity in (LSS, ALL_PAIRS):
            change = numpy.array(values(dropped)[quantity]) - values(base)[quantity]
            found[DROP_CHANGE[quantity, percent]] = change.tolist()
            if len(change) > 1:
                found[DROP_INTERVAL[quantity, percent]] = list(interval_of(change))
        found[DROP_ACCURACY[percent]] = at_look(dropped, "train_accuracy")
    return {A11: (found, seeds_of(base))}


EVIDENCE_OF: Mapping[str, Callable[[Cases, CounterfactualSettings], Found]] = {"decay": _decay, "drop": _drop}

STUDY = Study(
    PAPER,
    "counterfactuals",
    paper_found="Stochastic depth modulates alignment.",
    we_expect="No straight lines without weight decay; open for stochastic depth.",
    presets={
        "smoke": CounterfactualSettings(**SMOKE, subject="type1-digits"),
        "quick": CounterfactualSettings(),
        "full": CounterfactualSettings(changes=CHANGES),
        "paper": CounterfactualSettings(changes=CHANGES, samples=None),
    },
    cost={
        "smoke": "seconds",
        "quick": "9 minutes on 2 cores after A.alignment: 8 networks without decay",
        "full": "40 minutes on 2 cores: 32 networks",
        "paper": "hours of one GPU: all changes on all images",
    },
    run=run,
    claims=(A11, A16),
)
