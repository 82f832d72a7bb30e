"""B.shortcuts: figure 9 of paper B, how shortcuts of depths 1 to 4 gain from depth.

    skipscope study run B.shortcuts --preset full --device cuda --set residual_data=cifar10:PATH --out DIR

The paper finds that of pre-activation ResNets on CIFAR-10 with equal numbers of weights, deeper than 400 layers, only
those with shortcuts of depth 2 gain from more depth.

No small network stands in for that. The preset quick trains fully connected networks with as many ReLUs as layers, one
before each, as in a pre-activation ResNet, from 0.1 times Xavier's weights and without batch normalisation; they show
which shortcuts are hard to train, and decide nothing. The preset full trains ResNets up to depth 110 on a short
schedule, one of each kind: whether they differ there, not what becomes of them past depth 400. That takes the preset
paper, for days.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Annotated, Any

import numpy
import xarray

from skipscope.constraints import Constrained, Expectation, at_least, each, multiple_of
from skipscope.data import Dataset
from skipscope.models.specification import blocks_per_stage
from skipscope.papers.b import PAPER
from skipscope.papers.b.learning_rates import extreme_per_seed, trained_at_best_rate
from skipscope.papers.b.networks import ShortcutSpec
from skipscope.papers.b.subjects import COMPONENTS, residual_training, whitened_data
from skipscope.papers.kit import SEEDS, Bench, Claim, Evidence, Quantity, Study
from skipscope.runs.sweep import Task
from skipscope.training import Settings

MEASURE_NAME = "shortcut_depths"
SHORTCUT_DEPTHS = (1, 2, 3, 4)
START_FACTOR = 0.1  # times Xavier's weights: from the paper's 0.01 shortcuts of depth 4 do not move
EXTREME_DEPTH = 400  # layers
DROPS = (0.494, 0.744)  # of the learning rate: fb.resnet.torch has them after 81 and 122 of 164 epochs

Found = Mapping[int, Mapping[int, xarray.Dataset]]  # shortcut depth, depth


# -- claims

LARGEST_STEP = Quantity("largest step of the error over depth, shortcut 2")
STEP_PAST_EXTREME = {
    n: Quantity(f"smallest step of the error past depth {EXTREME_DEPTH}, shortcut {n}")
    for n in SHORTCUT_DEPTHS
    if n != 2
}
MEAN_ERROR = {n: Quantity(f"mean error by depth, shortcut {n}") for n in SHORTCUT_DEPTHS}
MEAN_CONNECTED_LOSS = {
    n: Quantity(f"mean final loss by depth, shortcut {n}, fully connected stand-in") for n in SHORTCUT_DEPTHS
}
B19 = Claim(
    "B19",
    "Of all shortcut depths only 2 gains from depths beyond 400.",
    "CIFAR-10 test error against depth for shortcut depths 1 to 4 (figure 9)",
    criteria=(LARGEST_STEP.below(0.0), *(step.above(0.0) for step in STEP_PAST_EXTREME.values())),
    seeds=3,
    presets=("paper",),  # the only one beyond depth 400
    note="Days of one GPU. No small network stands in for depth 400.",
)


@dataclass(frozen=True)
class ShortcutSettings(Constrained):
    residual: tuple[int, ...] = ()  # depths of ResNets on CIFAR-10; they need a GPU
    residual_data: str = "cifar10"
    residual_epochs: Annotated[int, at_least(5)] = 20  # fewer leave no room for two drops of the learning rate
    networks: Annotated[int, at_least(1)] = 1  # of each kind
    # Depths of the fully connected networks.
    connected: Annotated[tuple[int, ...], each(at_least(1), multiple_of(12))] = (12, 24, 48)
    data: str = "mnist"  # of these
    connected_networks: Annotated[int, at_least(1)] = 3
    samples: Annotated[int, at_least(1)] = 500
    steps: Annotated[int, at_least(1)] = 200

    def expectations(self) -> Iterator[Expectation]:
        for depth in self.residual:
            for n in SHORTCUT_DEPTHS:
                blocks_per_stage(depth, shortcut_depth=n)  # says which depths there are
        yield from super().expectations()


def run(bench: Bench, settings: ShortcutSettings) -> Evidence:
    return evidence(_residual(bench, settings), _connected(bench, settings))


# -- what it decides


def evidence(residual: Found, connected: Found) -> Evidence:
    """Steps are from each depth to the next; those past EXTREME_DEPTH begin there."""
    found: dict[Quantity, Any] = {
        SEEDS: min((part.sizes["seed"] for each in residual.values() for part in each.values()), default=0),
        LARGEST_STEP: extreme_per_seed(_steps(residual.get(2, {})), numpy.max),
    }
    for n, smallest_step in STEP_PAST_EXTREME.items():
        steps = _steps({depth: part for depth, part in residual.get(n, {}).items() if depth >= EXTREME_DEPTH})
        found[smallest_step] = extreme_per_seed(steps, numpy.min)
    found |= {MEAN_ERROR[n]: _means(parts, "error") for n, parts in residual.items()}
    found |= {MEAN_CONNECTED_LOSS[n]: _means(parts, "final") for n, parts in connected.items()}
    return {B19: found}


def _steps(parts: Mapping[int, xarray.Dataset]) -> list[numpy.ndarray]:
    rows = [parts[depth]["error"].values for depth in sorted(parts)]
    return [after - before for before, after in pairwise(rows)]


def _means(parts: Mapping[int, xarray.Dataset], name: str) -> list[float]:
    return [float(parts[depth][name].mean()) for depth in sorted(parts)]


# -- what is measured


def _residual(bench: Bench, settings: ShortcutSettings) -> Found:
    if not settings.residual:
        return {}
    data = bench.data(settings.residual_data)
    images, training = data.to(bench.device), residual_training(settings.residual_epochs, DROPS)
    tested = partial(_tested, bench, images, training, bench.seeds(settings.networks))
    return _of_all_depths(bench, "residual", settings.residual, tested)


def _tested(
    bench: Bench, data: Dataset, training: Settings, seeds: Sequence[int], n: int, depth: int
) -> xarray.Dataset:
    """Test errors (seed)."""
    networks = [bench.trained(f"preresnet{depth}-cifar-s{n}", data, training, seed=seed) for seed in seeds]
    return xarray.Dataset(
        {"error": ("seed", [numpy.nan if one.diverged else 1 - one.test_accuracy for one in networks])},
        {"seed": list(seeds)},
        {
            "measure": MEASURE_NAME,
            "kind": "residual",
            "n": n,
            "depth": depth,
            "data": data.name,
            "epochs": training.epochs,
            "precision": training.precision,
        },
    )


def _connected(bench: Bench, settings: ShortcutSettings) -> Found:
    if not settings.connected:
        return {}
    white = whitened_data(bench, settings.data)
    data = white.first(settings.samples)

    def trained(n: int, depth: int) -> xarray.Dataset:
        return trained_at_best_rate(
            bench,
            ShortcutSpec(depth, COMPONENTS, n, pre="relu", mid="relu"),
            data,
            "zero",
            calibration=settings.connected_networks,
            networks=settings.connected_networks,
            steps=settings.steps,
            per_decade=2,
            factor=START_FACTOR,
            attrs={"measure": MEASURE_NAME, "kind": "connected", "data": white.name, "samples": len(data.x)},
        )

    return _of_all_depths(bench, "connected", settings.connected, trained, "fully connected networks")


def _of_all_depths(
    bench: Bench, kind: str, depths: Sequence[int], compute: Callable[[int, int], xarray.Dataset], what: str = ""
) -> Found:
    """compute: the dataset of a shortcut depth and a depth. what: is trained, for the progress."""
    found = {}
    for n in SHORTCUT_DEPTHS:
        tasks = [Task(f"{kind}-{n}-{depth}", partial(compute, n, depth)) for depth in depths]
        swept = bench.sweep(tasks, what and f"{what}, shortcuts of depth {n}")
        found[n] = dict(zip(depths, swept, strict=True))
    return found


STUDY = Study(
    PAPER,
    "shortcuts",
    paper_found="Past depth 400 only shortcuts of depth 2 gain from more depth.",
    we_expect="Open past depth 110: it takes days of one GPU. Fully connected, deep shortcuts are hard to train.",
    presets={
        "smoke": ShortcutSettings(connected=(12, 24), data="digits", connected_networks=1, samples=50, steps=5),
        "quick": ShortcutSettings(),
        "full": ShortcutSettings(residual=(38, 110), connected=()),
        "paper": ShortcutSettings(residual=(38, 110, 218, 434, 866), residual_epochs=164, networks=10, connected=()),
    },
    cost={
        "smoke": "seconds",
        "quick": "a minute on 2 cores; a fully connected stand-in that decides nothing",
        "full": "13 minutes on one H200 for eight ResNets; a stopped run goes on with --resume",
        "paper": "6 days on one GPU: 200 ResNets of up to 866 layers, 164 epochs each",
    },
    run=run,
    claims=(B19,),
)
