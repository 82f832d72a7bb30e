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
over seeds of calibration (`learning_rates.py` says how it is found); the losses of other seeds are judged. Deep linear
networks of these are trained at all rates, for the best rate of each. Where all rates end alike there is no best one,
and the paper leaves it out too.

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
from skipscope.papers.b.alike import apart, between_seeds, farthest
from skipscope.papers.b.learning_rates import (
    CHOSEN_ON_OTHER_SEEDS,
    NONE_ON_EDGE,
    ON_EDGE,
    extreme_per_seed,
    own_rates,
    trained_at_best_rate,
)
from skipscope.papers.b.networks import Samples
from skipscope.papers.b.studies.initial import B20, CURVE_FLOOR, CURVES_APART, LOSS_FLOOR, LOSSES_APART
from skipscope.papers.b.subjects import ARCHITECTURES, MNIST, WhitenedData, subject_on, whitened_data
from skipscope.papers.kit import Bench, Claim, Criterion, Evidence, Measured, Part, Quantity, Study
from skipscope.runs.sweep import Task

DEEP_FROM = 16  # layers from which on networks are called deep
XAVIER_DEPTH = 32  # at which plain networks from Xavier's weights are judged
RELU_DEPTH = 64  # at which networks with ReLUs are compared
EQUAL_RELUS = ("xavier", "orthogonal", "2-shortcut")  # architectures with as many ReLUs at every depth
ALSO_WITH_RELUS = ("2-shortcut", "3-shortcut")  # at the depths `other_depths`, reported beside what is judged
ALL_WITH_RELUS = f"{MNIST}, 60000 samples, 1000 steps"  # the subject of figure 8


class Case(NamedTuple):
    """Networks that are trained alike."""

    kind: str  # linear, relu
    architecture: str
    depth: int


ByDepth = Mapping[int, xarray.Dataset]


def _larger(ratio: Quantity, factor: int) -> Criterion:
    return ratio.above(1.0) if factor == 1 else ratio.at_least(float(factor))


# -- claims

LARGEST_EXCESS = Quantity("largest log10 excess loss over depths, 2-shortcut")
DEEP_EXCESS_GAP = Quantity(f"largest log10 excess loss from depth {DEEP_FROM} on, 2-shortcut - orthogonal")
XAVIER_EXCESS = Quantity(f"log10 excess loss at depth {XAVIER_DEPTH}, Xavier")
B10 = Claim(
    "B10",
    "Deep linear networks with 2-shortcuts still reach the optimum; plain ones with Xavier weights do not.",
    "log10 excess loss at the best learning rate of a grid, by depth (figure 7, left)",
    parts=(
        Part("2-shortcut networks reach the optimum", (LARGEST_EXCESS.at_most(-3.0),), (NONE_ON_EDGE,)),
        Part("deep ones come closer than orthogonal ones", (DEEP_EXCESS_GAP.at_most(-0.3),), (NONE_ON_EDGE,)),
        Part("Xavier's do not reach it", (XAVIER_EXCESS.above(-1.5),), (NONE_ON_EDGE,)),
    ),
    subjects={MNIST: 10},
    note=f"At depth 4 the 1-shortcut network was the best. {CHOSEN_ON_OTHER_SEEDS}",
)

RIVALS = {  # with the depths at which their best rates are compared; all rates of deeper Xavier networks end alike
    "xavier": (16, 24, 32, 48),
    "orthogonal": (16, 24, 32, 48, 96),
    "1-shortcut": (16, 24, 32, 48, 96),
    "3-shortcut": (24, 48, 96),
}
RATE_RATIO = {
    (name, depth): Quantity(f"best learning rate at depth {depth}, 2-shortcut / {name}", "ratio")
    for name, depths in RIVALS.items()
    for depth in depths
}
RATES_ON_EDGE = Quantity("networks whose own best learning rate is on the edge of the grid")
RATES_PER_DECADE = Quantity("learning rates per decade")
B11 = Claim(
    "B11",
    "2-shortcut networks take larger learning rates.",
    "best learning rate of every network, by depth (figure 7, right)",
    parts=tuple(
        Part(
            f"than {name} networks{words}",
            tuple(_larger(RATE_RATIO[name, depth], factor) for depth in depths),
            (NONE_ON_EDGE, RATES_PER_DECADE.at_least(4.0)),
        )
        for name, depths in RIVALS.items()
        for factor, words in ((1, ""), (3, ", three times as large"))
    ),
    subjects={MNIST: 20},
    note=(
        "The paper names no factor. A network's best rate is that of its own lowest loss, on the grid that was found "
        "on other seeds."
    ),
)

LARGEST_STEP_RATIO = Quantity("largest ratio of loss to that of the next smaller depth, 2-shortcut", "ratio")
RELU_LOSS_RATIO = {
    name: Quantity(f"loss at depth {RELU_DEPTH}, {title} / 2-shortcut", "ratio")
    for name, title in {"xavier": "Xavier", "orthogonal": "orthogonal"}.items()
}
MEAN_RELU_LOSS = Quantity("mean loss by depth, 2-shortcut")
B12 = Claim(
    "B12",
    "With ReLUs in the middle, 2-shortcut networks improve with depth and plain ones fail.",
    "final loss by depth up to 64 at the best learning rate (figure 8)",
    parts=(
        Part("2-shortcut networks improve with depth", (LARGEST_STEP_RATIO.below(1.0),), (NONE_ON_EDGE,)),
        Part("Xavier's fail at depth 64", (RELU_LOSS_RATIO["xavier"].at_least(3.0),), (NONE_ON_EDGE,)),
        Part("orthogonal ones fail at depth 64", (RELU_LOSS_RATIO["orthogonal"].at_least(3.0),), (NONE_ON_EDGE,)),
    ),
    subjects={ALL_WITH_RELUS: 10},
    note=f"300 steps on 1000 samples, as at the preset quick, are not figure 8's experiment. {CHOSEN_ON_OTHER_SEEDS}",
)

EXCESS_RATIO = Quantity("excess loss, 3-shortcut / 2-shortcut, geometric mean over depths", "ratio")
SMALLEST_EXCESS_RATIO = Quantity("smallest ratio of excess losses over depths", "ratio")
B13 = Claim(
    "B13",
    "3-shortcut networks are harder to train than 2-shortcut ones.",
    "ratio of excess losses of linear networks, learning rate tuned for each shortcut depth (figure 7)",
    criteria=(EXCESS_RATIO.at_least(3.0),),
    controls=(NONE_ON_EDGE,),
    subjects={MNIST: 10, ALL_WITH_RELUS: 10},
    note=(
        "The best linear map of MNIST leaves a loss of 0.337, far above zero, so that the losses themselves could "
        "never differ threefold. Networks with ReLUs in the middle stand beside, by their losses: unequal numbers of "
        f"ReLUs do not compare. {CHOSEN_ON_OTHER_SEEDS}"
    ),
)

DEPTHS_OF_LOSSES = Quantity("depths of the losses")


@dataclass(frozen=True)
class LearningSettings(Constrained):
    OLD_NAMES: ClassVar[Mapping[str, str]] = {"besides": "other_depths"}

    data: str = "mnist"
    # Depths of linear networks; not all are a multiple of 3.
    depths: Annotated[tuple[int, ...], each(at_least(1), multiple_of(2))] = (4, 6, 12, 16, 24, 32, 48, 96)
    networks: Annotated[int, at_least(1)] = 10  # of each kind, whose losses are judged
    rate_networks: Annotated[int, at_least(1)] = (
        20  # of linear ones, whose best rates are judged; the first are the same
    )
    calibration: Annotated[int, at_least(1)] = 10  # of each kind, by which learning rates are chosen
    steps: Annotated[int, at_least(1)] = 1000
    per_decade: Annotated[int, at_least(1)] = 4  # learning rates
    relu_depths: Annotated[tuple[int, ...], each(at_least(1), multiple_of(2))] = (4, 8, 16, 32, 64)
    # Depths where 3-shortcut networks with ReLUs are compared with 2-shortcut ones.
    other_depths: Annotated[tuple[int, ...], each(at_least(1), multiple_of(6))] = (12, 24)
    relu_networks: Annotated[int, at_least(1)] = 3  # judged, and as many by which their rates are chosen
    relu_steps: Annotated[int, at_least(1)] = 300
    relu_per_decade: Annotated[int, at_least(1)] = 2
    # The first so many, for networks with ReLUs; linear ones have all.
    relu_samples: Annotated[int | None, at_least(1)] = 1000

    def expectations(self) -> Iterator[Expectation]:
        depths = (*self.depths, *self.relu_depths, *self.other_depths)
        yield bool(depths), "depths, relu_depths, other_depths: expected a depth in one of them, got none"
        yield (
            self.rate_networks >= self.networks,
            f"rate_networks: expected at least as many as networks, {self.networks}, got {self.rate_networks}",
        )


def run(bench: Bench, settings: LearningSettings) -> Evidence:
    white = whitened_data(bench, settings.data)
    some = white.first(settings.relu_samples)
    cases = list(dict.fromkeys(_cases(settings)))
    tasks = [_task(bench, settings, white, some, case) for case in cases]
    swept = bench.sweep(tasks, "learning rates of n-shortcut networks")
    return evidence(dict(zip(cases, swept, strict=True)), settings.networks)


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
            calibration=settings.calibration if linear else settings.relu_networks,
            networks=settings.rate_networks if linear else settings.relu_networks,
            every_rate=linear and case.depth >= DEEP_FROM,
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


def evidence(found: Mapping[Case, xarray.Dataset], networks: int) -> Evidence:
    """networks: whose losses are judged, the first so many; best rates are those of all."""
    linear = {name: _of(found, "linear", name) for name in ARCHITECTURES}
    relu = {name: _of(found, "relu", name, judged=True) for name in EQUAL_RELUS}
    two, plain, xavier = (_first(linear[name], networks) for name in ("2-shortcut", "orthogonal", "xavier"))
    everywhere = [part for parts in linear.values() for part in parts.values()]
    reached = {
        LARGEST_EXCESS: extreme_per_seed([excess(part) for part in two.values()], numpy.max),
        DEEP_EXCESS_GAP: extreme_per_seed([excess(a) - excess(b) for a, b in _deep(two, plain)], numpy.max),
        XAVIER_EXCESS: excess(xavier[XAVIER_DEPTH]).tolist() if XAVIER_DEPTH in xavier else [],
        ON_EDGE: _on_edges(everywhere),
    }
    return {
        B10: _measured(two, reached),
        B11: _measured(linear["2-shortcut"], {**_rates(linear), ON_EDGE: _on_edges(everywhere)}),
        B12: _measured(relu["2-shortcut"], _with_relus(relu)),
        B13: [each for kind in ("linear", "relu") for each in _three(found, kind, networks)],
        B20: _measured(plain, alike(linear["1-shortcut"], linear["orthogonal"], networks)),
    }


def _measured(parts: ByDepth, values: Mapping[Quantity, Any]) -> list[Measured]:
    """About the networks that some datasets have in common; nothing where there are none."""
    if not parts:
        return []
    fewest = min(parts.values(), key=lambda part: part.sizes["seed"])
    return [Measured(values, subject_of(fewest), fewest["seed"].values.tolist())]


def subject_of(part: xarray.Dataset) -> str:
    """Linear networks see all samples, whatever their number."""
    about = subject_on(str(part.attrs["data"]))
    if part.attrs["kind"] == "linear":
        return about
    return f"{about}, {part.attrs['samples']} samples, {part.attrs['steps']} steps"


def excess(part: xarray.Dataset) -> numpy.ndarray:
    """log10 of the final loss minus the lowest one, by seed, at the learning rate that is best on other seeds."""
    return part["log_excess"].values


def _on_edges(parts: Iterable[xarray.Dataset]) -> int:
    """Of the networks that a claim compares."""
    return sum(int(part.attrs["on_edge"]) for part in parts)


def _rates(linear: Mapping[str, ByDepth]) -> dict[Quantity, Any]:
    """Ratios of the best rates of deep networks, one per network and depth."""
    two = linear["2-shortcut"]
    pairs = {
        (name, depth): (two[depth], linear[name][depth])
        for name, depth in RATE_RATIO
        if depth in two and depth in linear[name]
    }
    compared = {id(part): part for pair in pairs.values() for part in pair}.values()
    return {
        **{RATE_RATIO[key]: _rate_ratios(ours, theirs) for key, (ours, theirs) in pairs.items()},
        RATES_PER_DECADE: min((_per_decade(part) for part in compared), default=math.nan),
        RATES_ON_EDGE: sum(int(numpy.isin(own_rates(part), part["rate"].values[[0, -1]]).sum()) for part in compared),
    }


def _rate_ratios(ours: xarray.Dataset, theirs: xarray.Dataset) -> list[float]:
    """Not a number where all learning rates of either end alike, so that it has no best one."""
    if ours.attrs["flat"] or theirs.attrs["flat"]:
        return [math.nan] * ours.sizes["seed"]
    return (own_rates(ours) / own_rates(theirs)).tolist()


def _per_decade(part: xarray.Dataset) -> float:
    """Learning rates of the grid, which is even in their logarithms."""
    rates = numpy.log10(part["rate"].values)
    return round(float((len(rates) - 1) / (rates[-1] - rates[0])), 2) if len(rates) > 1 else 0.0


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


def _three(found: Mapping[Case, xarray.Dataset], kind: str, networks: int) -> list[Measured]:
    """Of linear networks what is above the optimum; of others, whose optimum nobody knows, the loss itself."""
    two, three = (_first(_of(found, kind, f"{n}-shortcut"), networks) for n in (2, 3))
    pairs = list(_pairs(three, two))
    logs = [excess(a) - excess(b) for a, b in pairs]
    values = {
        EXCESS_RATIO: (10 ** numpy.mean(logs, axis=0)).tolist() if logs else [],
        SMALLEST_EXCESS_RATIO: (10 ** numpy.min(logs, axis=0)).tolist() if logs else [],
        ON_EDGE: _on_edges(part for pair in pairs for part in pair),
    }
    return _measured(dict(enumerate(part for pair in pairs for part in pair)), values)


def alike(one: ByDepth, plain: ByDepth, networks: int) -> dict[Quantity, Any]:
    """Losses of 1-shortcut networks and of plain ones from orthogonal weights, after training and during it."""
    pairs = {int(a.attrs["depth"]): (a, b) for a, b in _pairs(one, plain)}
    ends = {depth: [excess(part)[:networks] for part in pair] for depth, pair in pairs.items()}
    ways = {}
    for depth, pair in pairs.items():
        ours, theirs = (part["curve"].values[:networks] for part in pair)
        place = farthest(ours, theirs)
        ways[depth] = [ours[:, place], theirs[:, place]]
    found: dict[Quantity, Any] = {}
    for cells, quantities in ((ends, LOSSES_APART), (ways, CURVES_APART)):
        every = [cell for pair in cells.values() for cell in pair]
        for depth, (ours, theirs) in cells.items():
            others = [cell for cell in every if cell is not ours and cell is not theirs]
            if depth in quantities:
                found[quantities[depth]] = apart(ours, theirs, others)
    for depth, (_, orthogonal) in pairs.items():
        if depth in LOSS_FLOOR:
            found[LOSS_FLOOR[depth]] = between_seeds(excess(orthogonal)[:, None])
            found[CURVE_FLOOR[depth]] = between_seeds(orthogonal["curve"].values)
    compared = (part for pair in pairs.values() for part in pair)
    return {**found, DEPTHS_OF_LOSSES: list(pairs), ON_EDGE: _on_edges(compared)}


def _first(parts: ByDepth, networks: int) -> dict[int, xarray.Dataset]:
    return {depth: part.isel(seed=slice(networks)) for depth, part in parts.items()}


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


FULL = LearningSettings(per_decade=6, other_depths=(12, 24, 48), relu_networks=10, relu_steps=1000, relu_samples=None)
STUDY = Study(
    PAPER,
    "learning",
    paper_found="2-shortcut networks reach the optimum at every depth and take higher rates; deep plain networks fail.",
    we_expect="The same; but linear 3-shortcut networks leave zero as well, and their losses are hardly higher.",
    presets={
        "smoke": LearningSettings(
            "digits",
            (6, 12, 24),
            2,
            2,
            calibration=2,
            steps=20,
            per_decade=2,
            relu_depths=(4, 8),
            other_depths=(6,),
            relu_networks=2,
            relu_steps=10,
            relu_samples=50,
        ),
        "quick": LearningSettings(relu_depths=(4, 8, 16, 32), other_depths=(12,)),
        "full": FULL,
        "paper": FULL,
    },
    cost={
        "smoke": "seconds",
        "quick": "about 12 minutes on 2 cores",
        "full": "about 15 minutes on one H200",
        "paper": "as full: whitened MNIST is what the paper has; it does not say how many learning rates",
    },
    run=run,
    claims=(B10, B11, B12, B13),
)
