"""A.counterfactuals: what becomes of residual alignment when one thing is changed.

    skipscope study run A.counterfactuals --preset quick --out DIR
    skipscope study run A.counterfactuals --preset full --device cuda --set changes=skips --out DIR

The paper finds that alignment goes away without skips, that the number of large singular values follows the number of
classes, that it appears at all depths and widths and in networks that generalise, and that stochastic depth modulates
it. We add weight decay, without which trajectories do not become straight.

We expect the effects of classes, sizes and weight decay. Whether skips are necessary is open: a network without them
trains at small learning rates only, at which one with skips may not align either, so that both are trained alike, for
long and with clipped gradients, and the test says nothing where the one with skips does not align. The direction in
which stochastic depth works is not known to us: the differences are given with intervals.

Every change is one of `changes`, and is compared with the networks that differ in nothing else. Fewer classes have as
many samples in all: with as many of each class, which we tried first, two classes had a fifth of the steps and hence of
the decay budget, and no rank to speak of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy
import xarray
from scipy.stats import spearmanr

from skipscope.constraints import Expectation, at_least, each, not_empty, some_of
from skipscope.papers.a import PAPER
from skipscope.papers.a.emergence import ALL_PAIRS, LSS, at_look, emergence, values
from skipscope.papers.a.studies.alignment import A1, A3, A5, A7
from skipscope.papers.a.subjects import SMOKE, TrainingSettings, subject
from skipscope.papers.kit import SEEDS, Bench, Claim, Evidence, Quantity, Study
from skipscope.runs.decisions import interval_of

TWO_THIRDS = 2 / 3
CHANGES = ("decay", "classes", "sizes", "skips", "labels", "drop")
DROPPED = (20, 50)  # per cent of the steps in which a sample goes around a branch

FAILS_WITHOUT_SKIPS = {claim: Quantity(f"{claim.id} fails without skips") for claim in (A3, A5, A7)}
HOLDS_WITH_SKIPS = {claim: Quantity(f"{claim.id} holds with skips") for claim in (A3, A5, A7)}
ACCURACY_OF_SKIPS = {kind: Quantity(f"train accuracy {kind} skips") for kind in ("with", "without")}
PAIRS_OF_SKIPS = {kind: Quantity(f"{ALL_PAIRS} {kind} skips") for kind in ("with", "without")}
LSS_OF_SKIPS = {kind: Quantity(f"{LSS} {kind} skips, over its own at initialisation") for kind in ("with", "without")}
A8 = Claim(
    "A8",
    "Without skips there is no alignment, at the same training accuracy.",
    "A3, A5 and A7 with and without skips, at the same learning rate, weight decay and number of steps",
    criteria=tuple(quantity.at_least(TWO_THIRDS) for quantity in FAILS_WITHOUT_SKIPS.values()),
    controls=(
        *(quantity.at_least(TWO_THIRDS) for quantity in HOLDS_WITH_SKIPS.values()),
        *(quantity.at_least(0.99, every=True) for quantity in ACCURACY_OF_SKIPS.values()),
    ),
    seeds=3,
    presets=("full", "paper"),  # training without skips takes more epochs than quick gives any change
    note=(
        "Open. A network without skips needs a small learning rate, at which one with skips may not align either: "
        "then the test says nothing. LSS compares only with its own initialisation (12 to 14 without skips)."
    ),
)

RANK_TREND = Quantity("Spearman of large singular values and C")
LARGEST_RANK = Quantity("large singular values / C, largest")
CLASSES = Quantity("C")
RANK_BY_CLASSES = Quantity("mean of large singular values by C")
A9 = Claim(
    "A9",
    "The number of large singular values follows the number of classes.",
    "number of s_k above 0.05 s_1 for C = 2, 3, 5, 7, 10",
    criteria=(RANK_TREND.at_least(0.9), LARGEST_RANK.at_most(1.0)),
    seeds=1,
    note="One network for each number of classes at the preset quick, three at full.",
)

HOLDS_AT_SIZE = {claim: Quantity(f"{claim.id} holds at this depth and width") for claim in (A1, A3, A5, A7)}
SIZES = Quantity("sizes")
A10 = Claim(
    "A10",
    "Alignment appears across depths and widths.",
    "A1, A3, A5 and A7 at every depth and width",
    criteria=tuple(quantity.exactly(1.0, every=True) for quantity in HOLDS_AT_SIZE.values()),
    seeds=3,
    presets=("full", "paper"),
    note=(
        "A member is a depth and width, judged over its seeds. A width of 32 is 3.2 times the classes, less than "
        "the 5 that A3 and A5 ask for on their own."
    ),
)

DROP_CHANGE = {
    (quantity, percent): Quantity(f"change of {quantity}, {percent} % dropped")
    for percent in DROPPED
    for quantity in (LSS, ALL_PAIRS)
}
DROP_INTERVAL = {
    (quantity, percent): Quantity(f"95 % interval of its mean, {quantity}, {percent} %")
    for quantity, percent in DROP_CHANGE
}
DROP_ACCURACY = {percent: Quantity(f"train accuracy, {percent} % dropped") for percent in DROPPED}
A11 = Claim(
    "A11",
    "Stochastic depth modulates alignment.",
    "change of LSS and of m_K with the probability of dropping a block (0, 0.2, 0.5), with intervals",
    criteria=(),
    seeds=3,
    presets=("full", "paper"),
    note="the direction is in nothing that could be read, so the sign is given with its interval",
)

COUPLING_OF_LABELS = Quantity("1 - m_K / chance, random / true labels")
LSS_OF_LABELS = Quantity("LSS - 1, random / true labels")
PAIRS_WITH_TRUE_LABELS = ALL_PAIRS.of("true labels")
ACCURACY_OF_LABELS = {kind: Quantity(f"train accuracy with {kind} labels") for kind in ("true", "random")}
A13 = Claim(
    "A13",
    "Only networks that generalise align.",
    "1 - m_K / chance and LSS - 1, trained on random labels over trained on true labels",
    criteria=(COUPLING_OF_LABELS.at_most(0.5), LSS_OF_LABELS.at_least(2.0)),
    controls=(
        PAIRS_WITH_TRUE_LABELS.at_most(0.77),  # else there is nothing to lose
        *(quantity.at_least(0.99, every=True) for quantity in ACCURACY_OF_LABELS.values()),
    ),
    seeds=3,
    presets=("full", "paper"),
)

LSS_WITHOUT_DECAY = Quantity("LSS without weight decay")
LSS_WITH_DECAY = Quantity("LSS with weight decay")
ACCURACY_WITHOUT_DECAY = Quantity("train accuracy without weight decay")
PAIRS_WITHOUT_DECAY = Quantity(f"{ALL_PAIRS} without weight decay")
A16 = Claim(
    "A16",
    "Weight decay is necessary for straight trajectories.",
    "LSS of networks that differ in weight decay alone (0 and 5e-3)",
    criteria=(LSS_WITHOUT_DECAY.at_least(3.0),),
    controls=(LSS_WITH_DECAY.at_most(1.15),),
    seeds=3,
    ours=True,
    note="Seen on MNIST with fully connected networks only.",
)


@dataclass(frozen=True)
class CounterfactualSettings(TrainingSettings):
    subject: str = "type1-mnist"
    changes: Annotated[tuple[str, ...], some_of(*CHANGES)] = ("decay", "classes")
    classes: Annotated[tuple[int, ...], not_empty, each(at_least(1))] = (2, 3, 5, 7)  # in addition to all of them
    class_networks: Annotated[int, at_least(1)] = 1  # seeds of these
    widths: Annotated[tuple[int, ...], not_empty, each(at_least(1))] = (32, 64, 128)
    depths: Annotated[tuple[int, ...], not_empty, each(at_least(1))] = (8, 16)  # blocks
    long_rate: float = 0.02  # at which networks without skips train
    long_epochs: int = 1250
    long_clip: float = 1.0  # without it the loss of those without skips becomes infinite on all ten classes

    def expectations(self) -> Iterator[Expectation]:
        yield from super().expectations()
        yield (
            self.class_networks <= self.networks,
            f"class_networks: expected at most the {self.networks} networks with all classes, got "
            f"{self.class_networks}",
        )


Measured = Callable[..., xarray.Dataset]  # of a subject, by how it differs


def run(bench: Bench, settings: CounterfactualSettings) -> Evidence:
    def measured(training: TrainingSettings = settings, **differs: Any) -> xarray.Dataset:
        return emergence(bench, subject(bench, training, settings.subject, **differs))

    found: dict[Claim, Mapping[Quantity, Any]] = {}
    for change in settings.changes:
        found |= EVIDENCE_OF[change](measured, settings)
    return found


def _decay(measured: Measured, settings: CounterfactualSettings) -> Evidence:
    without = measured(replace(settings, weight_decay=0.0, decay_budget=None), title="without weight decay")
    with_decay = measured()
    return {
        A16: {
            SEEDS: min(without.sizes["seed"], with_decay.sizes["seed"]),
            LSS_WITHOUT_DECAY: values(without)[LSS],
            LSS_WITH_DECAY: values(with_decay)[LSS],
            ACCURACY_WITHOUT_DECAY: at_look(without, "train_accuracy"),
            PAIRS_WITHOUT_DECAY: values(without)[ALL_PAIRS],
        }
    }


def _classes(measured: Measured, settings: CounterfactualSettings) -> Evidence:
    seeds, every = settings.class_networks, measured()
    alike = replace(settings, decay_budget=every.attrs["decay_budget"])  # also where a few classes have fewer samples
    counted = {
        count: measured(alike, classes=count, seeds=seeds, title=f"{count} classes") for count in settings.classes
    }
    counted[int(every.attrs["classes"])] = every
    counts = sorted(counted)
    large = numpy.array([at_look(counted[count], "large")[:seeds] for count in counts])  # count, seed
    return {
        A9: {
            SEEDS: seeds,
            RANK_TREND: [float(spearmanr(counts, of_seed)[0]) for of_seed in large.T],
            LARGEST_RANK: (large / numpy.array(counts)[:, None]).max(0).tolist(),
            CLASSES: counts,
            RANK_BY_CLASSES: large.mean(1).tolist(),
        }
    }


def _sizes(measured: Measured, settings: CounterfactualSettings) -> Evidence:
    """A member is a size: a claim holds there if it holds for two thirds of the seeds."""
    sizes = [(width, depth) for width in settings.widths for depth in settings.depths]
    datasets = [
        measured(replace(settings, width=width, blocks=depth), title=f"{depth} blocks of width {width}")
        for width, depth in sizes
    ]
    held = {
        quantity: [float(numpy.mean(holds(claim, dataset)) >= TWO_THIRDS) for dataset in datasets]
        for claim, quantity in HOLDS_AT_SIZE.items()
    }
    return {A10: {SEEDS: settings.networks, **held, SIZES: ", ".join(f"{width} x {depth}" for width, depth in sizes)}}


def _skips(measured: Measured, settings: CounterfactualSettings) -> Evidence:
    long = replace(settings, rate=settings.long_rate, epochs=settings.long_epochs, clip=settings.long_clip)
    with_skips = measured(long, title=f"with skips, rate {long.rate:g}")
    without = measured(long, options="-noskips", title=f"without skips, rate {long.rate:g}")
    found: dict[Quantity, Any] = {SEEDS: settings.networks}
    for claim, fails in FAILS_WITHOUT_SKIPS.items():
        found[fails] = (1.0 - numpy.array(holds(claim, without))).tolist()
        found[HOLDS_WITH_SKIPS[claim]] = holds(claim, with_skips)
    for kind, dataset in (("with", with_skips), ("without", without)):
        found[ACCURACY_OF_SKIPS[kind]] = at_look(dataset, "train_accuracy")
        found[PAIRS_OF_SKIPS[kind]] = values(dataset)[ALL_PAIRS]
        found[LSS_OF_SKIPS[kind]] = (numpy.array(values(dataset)[LSS]) / values(dataset, epoch=0)[LSS]).tolist()
    return {A8: found}


def _labels(measured: Measured, settings: CounterfactualSettings) -> Evidence:
    true, random = measured(), measured(random_labels=True, title="random labels")
    coupled = [1 - numpy.array(values(dataset)[ALL_PAIRS]) for dataset in (true, random)]
    bent = [numpy.array(values(dataset)[LSS]) - 1 for dataset in (true, random)]
    return {
        A13: {
            SEEDS: settings.networks,
            COUPLING_OF_LABELS: (coupled[1] / coupled[0]).tolist(),
            LSS_OF_LABELS: (bent[1] / bent[0]).tolist(),
            PAIRS_WITH_TRUE_LABELS: values(true)[ALL_PAIRS],
            ACCURACY_OF_LABELS["true"]: at_look(true, "train_accuracy"),
            ACCURACY_OF_LABELS["random"]: at_look(random, "train_accuracy"),
        }
    }


def _drop(measured: Measured, settings: CounterfactualSettings) -> Evidence:
    base = measured()
    found: dict[Quantity, Any] = {SEEDS: settings.networks}
    for percent in DROPPED:
        dropped = measured(options=f"-drop{percent}", title=f"stochastic depth, {percent} %")
        for quantity in (LSS, ALL_PAIRS):
            change = numpy.array(values(dropped)[quantity]) - values(base)[quantity]
            found[DROP_CHANGE[quantity, percent]] = change.tolist()
            if len(change) > 1:
                found[DROP_INTERVAL[quantity, percent]] = list(interval_of(change))
        found[DROP_ACCURACY[percent]] = at_look(dropped, "train_accuracy")
    return {A11: found}


EVIDENCE_OF: Mapping[str, Callable[[Measured, CounterfactualSettings], Evidence]] = {
    "decay": _decay,
    "classes": _classes,
    "sizes": _sizes,
    "skips": _skips,
    "labels": _labels,
    "drop": _drop,
}


def holds(claim: Claim, dataset: xarray.Dataset) -> list[float]:
    """Whether all criteria of a claim hold in the end: 1 or 0 for each seed."""
    found = values(dataset)
    by_seed = [
        {quantity: of_seeds[seed] for quantity, of_seeds in found.items()} for seed in range(dataset.sizes["seed"])
    ]
    return [float(all(criterion.judge(one).passed for criterion in claim.criteria)) for one in by_seed]


STUDY = Study(
    PAPER,
    "counterfactuals",
    paper_found="No alignment without skips; rank follows the classes; alignment at all depths and widths.",
    we_expect="The same for classes, sizes and weight decay; open for skips at equal training.",
    presets={
        "smoke": CounterfactualSettings(
            **SMOKE, subject="type1-digits", classes=(2,), widths=(50,), depths=(2, 3), long_epochs=3
        ),
        "quick": CounterfactualSettings(),
        "full": CounterfactualSettings(changes=CHANGES, class_networks=3),
        "paper": CounterfactualSettings(changes=CHANGES, class_networks=3, samples=None),
    },
    cost={
        "smoke": "seconds",
        "quick": "8 minutes on 2 cores",
        "full": "under 10 minutes of one GPU per change; a stopped run goes on with --resume",
        "paper": "half a day of one GPU: all changes on all images",
    },
    run=run,
    claims=(A8, A9, A10, A11, A13, A16),
)
