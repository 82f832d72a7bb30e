"""A.classes: does the number of large singular values follow the number of classes?

    skipscope study run A.classes --preset full --out DIR

The paper finds no more large singular values of a branch's Jacobian than classes, on subsets of CIFAR-10 and on
CIFAR-100. We train five networks for each of 2, 3, 5, 7 and 10 classes of MNIST, and expect their number to rise with
the classes and to stay below them.

Fewer classes have as many samples in all: with as many of each class, which we tried first, two classes had a fifth of
the steps and hence of the decay budget, and no rank to speak of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy
import xarray

from skipscope.constraints import at_least, each, not_empty
from skipscope.papers.a import PAPER
from skipscope.papers.a.doses import doses, of_one_series
from skipscope.papers.a.emergence import emergence, train_all
from skipscope.papers.a.quantities import at_look, seeds_of, trend
from skipscope.papers.a.subjects import ENDS, SMOKE, Looks, TrainingSettings, decay_budget_of, judged_as, subject
from skipscope.papers.kit import Bench, Claim, Evidence, Measured, Quantity, Study

COUNTS = (2, 3, 5, 7, 10)
EXPECTED = "The paper finds no more large singular values than classes."
RANK_TREND = Quantity("Spearman of large singular values and C", "correlation")
RANK_OVER_CLASSES = {count: Quantity(f"large singular values / C, C = {count}", "ratio") for count in COUNTS}
CLASSES = Quantity("C")
RANK_BY_CLASSES = Quantity("mean of large singular values by C")
A9 = Claim(
    "A9",
    "The number of large singular values follows the number of classes.",
    "number of s_k above 0.05 s_1 for C = 2, 3, 5, 7, 10",
    criteria=(RANK_TREND.at_least(0.9), *(ratio.at_most(1.0) for ratio in RANK_OVER_CLASSES.values())),
    subjects={"type1-mnist": 5 * len(COUNTS)},
    note="Five networks for each number of classes; a number is the mean over blocks and images.",
)


@dataclass(frozen=True)
class ClassesSettings(TrainingSettings):
    subject: str = "type1-mnist"
    classes: Annotated[tuple[int, ...], not_empty, each(at_least(2))] = COUNTS
    networks: Annotated[int, at_least(1)] = 5  # for each number of classes
    looks: Looks = ENDS


def run(bench: Bench, settings: ClassesSettings) -> Evidence:
    whole = subject(bench, settings, settings.subject)
    # Also where a few classes have fewer samples than asked for.
    alike = replace(settings, decay_budget=decay_budget_of(whole.training, len(whole.data.train)))
    subjects = {
        count: subject(bench, alike, settings.subject, classes=count, title=f"{count} classes")
        for count in sorted(settings.classes)
    }
    train_all(bench, subjects.values())
    found = {count: emergence(bench, one) for count, one in subjects.items()}
    doses(bench, of_one_series(found), "number of classes", title="Networks of few and many classes", expected=EXPECTED)
    return evidence(found, judged_as(settings.subject, whole))


def evidence(found: Mapping[int, xarray.Dataset], name: str) -> Evidence:
    """found: statistics (seed, epoch) by the number of classes. name: of the subject."""
    large = {count: at_look(dataset, "large") for count, dataset in found.items()}
    of_network = [count for count, values in large.items() for _ in values]
    numbers = [value for values in large.values() for value in values]
    rising, too_few = trend(RANK_TREND, of_network, numbers, of_network)
    ratios: dict[Quantity, Any] = {
        RANK_OVER_CLASSES[count]: [value / count for value in values]
        for count, values in large.items()
        if count in RANK_OVER_CLASSES
    }
    more = {CLASSES: list(large), RANK_BY_CLASSES: [float(numpy.mean(values)) for values in large.values()]}
    return {A9: [Measured({**rising, **ratios, **more}, name, seeds_of(*found.values()), unmet=too_few)]}


STUDY = Study(
    PAPER,
    "classes",
    paper_found="No more large singular values than classes.",
    we_expect="The same; they rise with the number of classes.",
    presets={
        "smoke": ClassesSettings(**SMOKE | {"looks": ENDS}, subject="type1-digits", classes=(2, 10)),
        "full": ClassesSettings(),
        "paper": ClassesSettings(samples=None),
    },
    cost={
        "smoke": "seconds",
        "full": "25 minutes on 2 cores: 25 networks",
        "paper": "hours of one GPU: all images",
    },
    run=run,
    claims=(A9,),
)
