"""B.learning: figures 7 and 8 of paper B, how far gradient descent gets at its best learning rate.

    skipscope study run B.learning --preset quick --out DIR
    skipscope study run B.learning --preset full --device cuda --out DIR

The paper finds that linear networks with 2-shortcuts, begun near zero, stay close to the optimum however deep they are
and take higher learning rates, while plain networks get worse; with ReLUs in the middle those fail altogether at depth
64, and networks with 2-shortcuts get better with depth.

We expect that, and that linear 3-shortcut networks leave zero within 1000 steps too. Their losses are then nearly those
of 2-shortcut ones, since the optimum is far above zero, though they are farther from it; and the deepest of them take
learning rates that are nearly as high.

Full-batch gradient descent on whitened data with one-hot targets, at the learning rate of the lowest mean final loss
over seeds (`learning_rates.py` says how it is found). Where all rates end alike there is no best one, and the paper
leaves it out too.

Plain networks have a ReLU after each odd layer, so that all networks of one depth have as many ReLUs. float64, but
networks with ReLUs on a GPU are in float32. At the preset quick, figure 8 is shown but not judged: 300 steps on 1000
samples are not the paper's experiment.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy
import xarray

from skipscope.constraints import Constrained, Expectation, at_least, each, multiple_of
from skipscope.papers.b import PAPER
from skipscope.papers.b.learning_rates import (
    CHOSEN_BY_JUDGED_SEEDS,
    NONE_ON_EDGE,
    ON_EDGE,
    extreme_per_seed,
    trained_at_best_rate,
)
from skipscope.papers.b.networks import Samples
from skipscope.papers.b.studies.initial import B20, DEPTHS_AFTER_TRAINING, LOSSES_APART
from skipscope.papers.b.subjects import ARCHITECTURES, WhitenedData, whitened_data
from skipscope.papers.kit import SEEDS, Bench, Claim, Evidence, Quantity, Study
from skipscope.runs.sweep import Task

DEEP_FROM = 16  # layers from which on networks are called deep
XAVIER_DEPTH = 32  # at which plain networks from Xavier's weights are judged
RELU_DEPTH = 64  # at which networks with ReLUs are compared
EQUAL_RELUS = ("xavier", "orthogonal", "2-shortcut")  # architectures with as many ReLUs at every depth
ALSO_WITH_RELUS = ("2-shortcut", "3-shortcut")  # at the depths `other_depths`, reported beside what is judged
OTHERS = tuple(name for name in ARCHITECTURES if name != "2-shortcut")


class Case(NamedTuple):
    """Networks that are trained alike."""

    kind: str  # linear, relu
    architecture: str
    depth: int


ByDepth = Mapping[int, xarray.Dataset]


# -- claims

LARGEST_EXCESS = Quantity("largest log10 excess loss over depths, 2-shortcut")
DEEP_EXCESS_GAP = Quantity(f"largest log10 excess loss from depth {DEEP_FROM} on, 2-shortcut - orthogonal")
XAVIER_EXCESS = Quantity(f"log10 excess loss at depth {XAVIER_DEPTH}, Xavier")
B10 = Claim(
    "B10",
    "Deep linear networks with 2-shortcuts still reach the optimum; plain ones with Xavier weights do not.",
    "log10 excess loss at the best learning rate of a grid, by depth (figure 7, left)",
    criteria=(LARGEST_EXCESS.at_most(-3.0), DEEP_EXCESS_GAP.at_most(-0.3), XAVIER_EXCESS.above(-1.5)),
    controls=(NONE_ON_EDGE,),
    seeds=3,
    note=f"At depth 4 the 1-shortcut network was the best. {CHOSEN_BY_JUDGED_SEEDS}",
)

SMALLEST_RATE_RATIO = Quantity(f"smallest ratio of best learning rates from depth {DEEP_FROM} on, 2-shortcut / others")
PAIRS_LEFT_OUT = Quantity("pairs left out, since all learning rates of one end alike")
PAIRS_COMPARED = Quantity("pairs compared")
RATE_RATIOS = {name: Quantity(f"ratios by depth, 2-shortcut / {name}") for name in OTHERS}
RATIO_DEPTHS = {name: Quantity(f"depths, 2-shortcut / {name}") for name in OTHERS}
B11 = Claim(
    "B11",
    "2-shortcut networks take larger learning rates.",
    "best learning rate by depth (figure 7, right)",
    criteria=(SMALLEST_RATE_RATIO.at_least(3.0),),
    controls=(NONE_ON_EDGE,),
    seeds=3,
    note=(
        "One number: a network's best rate is that of the lowest mean loss over seeds, and the ratio is the "
        "smallest over depths and architectures. Where all learning rates of a network end alike it has no best "
        "one: such pairs are left out and counted."
    ),
)

LARGEST_STEP_RATIO = Quantity("largest ratio of best loss to that of the next smaller depth, 2-shortcut")
RELU_LOSS_RATIO = {
    name: Quantity(f"best loss at depth {RELU_DEPTH}, {title} / 2-shortcut")
    for name, title in {"xavier": "Xavier", "orthogonal": "orthogonal"}.items()
}
MEAN_RELU_LOSS = Quantity("mean best loss by depth, 2-shortcut")
B12 = Claim(
    "B12",
    "With ReLUs in the middle, 2-shortcut networks improve with depth and plain ones fail.",
    "best final loss by depth up to 64 (figure 8)",
    criteria=(LARGEST_STEP_RATIO.below(1.0), *(ratio.at_least(3.0) for ratio in RELU_LOSS_RATIO.values())),
    controls=(NONE_ON_EDGE,),
    seeds=3,
    presets=("full", "paper"),  # those with all samples
    note=f"300 steps on 1000 samples, as at the preset quick, are not figure 8's experiment. {CHOSEN_BY_JUDGED_SEEDS}",
)

LOSS_RATIO = Quantity("smallest ratio of final losses over depths, 3-shortcut / 2-shortcut")
EXCESS_RATIO = Quantity("smallest ratio of excess losses over depths")
RELU_RATIO = Quantity("smallest ratio of final losses over depths, ReLUs in the middle")
B13 = Claim(
    "B13",
    "3-shortcut networks are harder to train than 2-shortcut ones.",
    "ratio of final losses of linear networks, learning rate tuned for each shortcut depth",
    criteria=(LOSS_RATIO.at_least(3.0),),
    controls=(NONE_ON_EDGE,),
    seeds=3,
    note=(
        "The best linear map of MNIST leaves a loss of 0.337, far above zero, so that final losses of networks "
        "that all come near it can never differ threefold; the ratio of excess losses, which can, is given "
        "too. So are networks with ReLUs in the middle: unequal numbers of ReLUs do not compare. "
        f"{CHOSEN_BY_JUDGED_SEEDS}"
    ),
)

MEAN_LOSSES_APART = Quantity("mean |log10 excess loss, 1-shortcut - orthogonal| by depth")
DEPTHS_OF_LOSSES = Quantity("depths of the losses")


@dataclass(frozen=True)
class LearningSettings(Constrained):
    OLD_NAMES: ClassVar[Mapping[str, str]] = {"besides": "other_depths"}

    data: str = "mnist"
    # Depths of linear networks; not all are a multiple of 3.
    depths: Annotated[tuple[int, ...], each(at_least(1), multiple_of(2))] = (4, 6, 12, 16, 24, 32, 48, 96)
    networks: Annotated[int, at_least(1)] = 10  # seeds
    steps: Annotated[int, at_least(1)] = 1000
    per_decade: Annotated[int, at_least(1)] = 4  # learning rates
    relu_depths: Annotated[tuple[int, ...], each(at_least(1), multiple_of(2))] = (4, 8, 16, 32, 64)
    # Depths where 3-shortcut networks with ReLUs are compared with 2-shortcut ones.
    other_depths: Annotated[tuple[int, ...], each(at_least(1), multiple_of(6))] = (12, 24)
    relu_networks: Annotated[int, at_least(1)] = 3
    relu_steps: Annotated[int, at_least(1)] = 300
    relu_per_decade: Annotated[int, at_least(1)] = 2
    # The first so many, for networks with ReLUs; linear ones have all.
    relu_samples: Annotated[int | None, at_least(1)] = 1000

    def expectations(self) -> Iterator[Expectation]:
        depths = (*self.depths, *self.relu_depths, *self.other_depths)
        yield bool(depths), "depths, relu_depths, other_depths: expected a depth in one of them, got none"


def run(bench: Bench, settings: LearningSettings) -> Evidence:
    white = whitened_data(bench, settings.data)
    some = white.first(settings.relu_samples)
    cases = list(dict.fromkeys(_cases(settings)))
    tasks = [_task(bench, settings, white, some, case) for case in cases]
    swept = bench.sweep(tasks, "learning rates of n-shortcut networks")
    return evidence(dict(zip(cases, swept, strict=True)))


def _cases(settings: LearningSettings) -> Iterator[Case]:
    for name, architecture in ARCHITECTURES.items():
        yield from (Case("linear", name, depth) for depth in settings.depths if depth % max(architecture.n, 1) == 0)
    for name in EQUAL_RELUS:
        yield from (Case("relu", name, depth) for depth in settings.relu_depths)
    for name in ALSO_WITH_RELUS:
        yield from (Case("relu", name, depth) for depth in settings.other_depths)


def _task(bench: Bench, settings: LearningSettings, white: WhitenedData, some: Samples, case: Case) -> Task:
    """some: the samples for networks with ReLUs."""
    linear = case.kind == "linear"
    judged = linear or (case.architecture in EQUAL_RELUS and case.depth in settings.relu_depths)
    architecture, name = ARCHITECTURES[case.architecture], "-".join(map(str, case))
    return Task(
        name,
        partial(
            trained_at_best_rate,
            bench,
            architecture.spec(case.depth, case.kind),
            white.moments if linear else some,
            architecture.init,
            networks=settings.networks if linear else settings.relu_networks,
            steps=settings.steps if linear else settings.relu_steps,
            per_decade=settings.per_decade if linear else settings.relu_per_decade,
            name=name,
            attrs={
                "measure": "shortcut_learning",
                "kind": case.kind,
                "architecture": case.architecture,
                "also_reported": int(not judged),
                "data": white.name,
                "samples": len(white.samples.x if linear else some.x),
            },
        ),
    )


# -- what it decides


def evidence(found: Mapping[Case, xarray.Dataset]) -> Evidence:
    linear = {name: _of(found, "linear", name) for name in ARCHITECTURES}
    relu = {name: _of(found, "relu", name, judged=True) for name in EQUAL_RELUS}
    two, plain, xavier = linear["2-shortcut"], linear["orthogonal"], linear["xavier"]
    everywhere = [part for parts in linear.values() for part in parts.values()]
    return {
        B10: {
            SEEDS: _seeds(two),
            LARGEST_EXCESS: extreme_per_seed([excess(part) for part in two.values()], numpy.max),
            DEEP_EXCESS_GAP: extreme_per_seed([excess(a) - excess(b) for a, b in _deep(two, plain)], numpy.max),
            XAVIER_EXCESS: excess(xavier[XAVIER_DEPTH]).tolist() if XAVIER_DEPTH in xavier else [],
            ON_EDGE: _on_edges(everywhere),
        },
        B11: {SEEDS: _seeds(two), **_rates(linear), ON_EDGE: _on_edges(everywhere)},
        B12: {SEEDS: _seeds(relu["2-shortcut"]), **_with_relus(relu)},
        B13: {SEEDS: _seeds(two), **_three(found)},
        B20: {SEEDS: _seeds(plain), **_alike(linear["1-shortcut"], plain)},
    }


def excess(part: xarray.Dataset) -> numpy.ndarray:
    """log10 of the final loss minus the lowest one, by seed, at the learning rate that is best for all."""
    return part["log_excess"].values


def _on_edges(parts: Iterable[xarray.Dataset]) -> int:
    """Of the networks that a claim compares."""
    return sum(int(part.attrs["on_edge"]) for part in parts)


def _rates(linear: Mapping[str, ByDepth]) -> dict[Quantity, Any]:
    """Ratios of the best rates of deep networks, which are one per depth; not a number where either has none."""
    pairs = {name: list(_deep(linear["2-shortcut"], linear[name])) for name in OTHERS}
    ratios = {name: [_ratio(a, b) for a, b in each] for name, each in pairs.items()}
    every = [ratio for each in ratios.values() for ratio in each]
    known = [ratio for ratio in every if not math.isnan(ratio)]
    return {
        SMALLEST_RATE_RATIO: min(known, default=None),
        PAIRS_LEFT_OUT: len(every) - len(known),
        PAIRS_COMPARED: len(known),
        **{RATE_RATIOS[name]: each for name, each in ratios.items()},
        **{RATIO_DEPTHS[name]: [int(a.attrs["depth"]) for a, _ in each] for name, each in pairs.items()},
    }


def _ratio(first: xarray.Dataset, second: xarray.Dataset) -> float:
    if first.attrs["flat"] or second.attrs["flat"]:
        return math.nan
    return float(first.attrs["best_rate"] / second.attrs["best_rate"])


def _with_relus(relu: Mapping[str, ByDepth]) -> dict[Quantity, Any]:
    two = relu["2-shortcut"]
    losses = [two[depth]["final"].values for depth in sorted(two)]
    steps = [deeper / shallower for shallower, deeper in pairwise(losses)]
    return {
        LARGEST_STEP_RATIO: extreme_per_seed(steps, numpy.max),
        **{
            ratio: (relu[name][RELU_DEPTH]["final"].values / two[RELU_DEPTH]["final"].values).tolist()
            if RELU_DEPTH in two
            else []
            for name, ratio in RELU_LOSS_RATIO.items()
        },
        MEAN_RELU_LOSS: [float(row.mean()) for row in losses],
        ON_EDGE: _on_edges(part for parts in relu.values() for part in parts.values()),
    }


def _three(found: Mapping[Case, xarray.Dataset]) -> dict[Quantity, Any]:
    """Linear networks decide; the optimum is far above zero, so that distances from it are also reported."""
    pairs = {
        kind: list(_pairs(_of(found, kind, "3-shortcut"), _of(found, kind, "2-shortcut")))
        for kind in ("linear", "relu")
    }
    losses = {kind: [a["final"].values / b["final"].values for a, b in each] for kind, each in pairs.items()}
    distances = [10 ** (excess(a) - excess(b)) for a, b in pairs["linear"]]
    return {
        LOSS_RATIO: extreme_per_seed(losses["linear"], numpy.min),
        EXCESS_RATIO: extreme_per_seed(distances, numpy.min),
        RELU_RATIO: extreme_per_seed(losses["relu"], numpy.min),
        ON_EDGE: _on_edges(part for pair in pairs["linear"] for part in pair),
    }


def _alike(one: ByDepth, plain: ByDepth) -> dict[Quantity, Any]:
    """Losses of 1-shortcut networks and of plain ones from orthogonal weights."""
    pairs = list(_pairs(one, plain))
    apart = [abs(excess(a) - excess(b)) for a, b in pairs]
    return {
        LOSSES_APART: extreme_per_seed(apart, numpy.max),
        MEAN_LOSSES_APART: [float(row.mean()) for row in apart],
        DEPTHS_OF_LOSSES: [int(a.attrs["depth"]) for a, _ in pairs],
        DEPTHS_AFTER_TRAINING: len(pairs),
        ON_EDGE: _on_edges(part for pair in pairs for part in pair),
    }


def _of(
    found: Mapping[Case, xarray.Dataset], kind: str, architecture: str, judged: bool = False
) -> dict[int, xarray.Dataset]:
    """By depth. judged: without the networks that are only reported."""
    return {
        depth: part
        for (its_kind, name, depth), part in sorted(found.items())
        if (its_kind, name) == (kind, architecture) and not (judged and part.attrs["also_reported"])
    }


def _pairs(first: ByDepth, second: ByDepth) -> Iterator[tuple[xarray.Dataset, xarray.Dataset]]:
    """Networks of the same depth."""
    return ((first[depth], second[depth]) for depth in first if depth in second)


def _deep(first: ByDepth, second: ByDepth) -> Iterator[tuple[xarray.Dataset, xarray.Dataset]]:
    return ((a, b) for a, b in _pairs(first, second) if a.attrs["depth"] >= DEEP_FROM)


def _seeds(parts: ByDepth) -> int:
    return min((part.sizes["seed"] for part in parts.values()), default=0)


FULL = LearningSettings(per_decade=6, other_depths=(12, 24, 48), relu_networks=5, relu_steps=1000, relu_samples=None)
STUDY = Study(
    PAPER,
    "learning",
    paper_found="2-shortcut networks reach the optimum at every depth and take higher rates; deep plain networks fail.",
    we_expect="The same; but linear 3-shortcut networks leave zero as well, and their losses are hardly higher.",
    presets={
        "smoke": LearningSettings(
            "digits",
            (6, 12),
            2,
            steps=20,
            per_decade=2,
            relu_depths=(4, 8),
            other_depths=(6,),
            relu_networks=2,
            relu_steps=10,
            relu_samples=50,
        ),
        "quick": LearningSettings(),
        "full": FULL,
        "paper": FULL,
    },
    cost={
        "smoke": "seconds",
        "quick": "7 minutes on 2 cores",
        "full": "6 minutes on one H200",
        "paper": "as full: whitened MNIST is what the paper has; it does not say how many learning rates",
    },
    run=run,
    claims=(B10, B11, B12, B13),
)
