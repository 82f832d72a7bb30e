"""B.shortcuts: figure 9 of paper B, how shortcuts of depths 1 to 4 gain from depth.

    skipscope study run B.shortcuts --preset full --device cuda --set residual_data=cifar10:PATH --out DIR

The paper finds that of pre-activation ResNets on CIFAR-10 with equal numbers of weights, deeper than 400 layers, only
those with shortcuts of depth 2 gain from more depth.

No small network stands in for that. The preset quick trains fully connected networks with as many ReLUs as layers, one
before each, as in a pre-activation ResNet, from 0.1 times Xavier's weights and without batch normalisation; they show
which shortcuts are hard to train, and decide nothing. The preset full trains ResNets of 110 and of 434 layers, two of
each kind, for a tenth of the paper's epochs; the preset paper all depths for all of them, which takes days. For B23 the
preset full also trains ResNets near 110 layers with shortcuts of depth 4, 5 and 6. Shortcuts of depth 5 do not divide
the 36 layers of a stage: their networks have 35, and 3 % fewer weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import numpy
import xarray

from skipscope.constraints import Constrained, Expectation, at_least, each, multiple_of
from skipscope.data import Dataset
from skipscope.models.specification import blocks_per_stage
from skipscope.papers.b import PAPER
from skipscope.papers.b.learning_rates import trained_at_best_rate
from skipscope.papers.b.networks import Samples, ShortcutSpec
from skipscope.papers.b.studies.theorem2 import B23, ERROR_GAP
from skipscope.papers.b.subjects import (
    CIFAR10,
    COMPONENTS,
    residual_subject,
    residual_training,
    subject_on,
    whitened_data,
)
from skipscope.papers.kit import Bench, Claim, Evidence, Measured, Part, Quantity, Study
from skipscope.papers.kit.estimates import Difference
from skipscope.runs.sweep import Task
from skipscope.training import Settings
from skipscope.training.networks import Network

MEASURE_NAME = "shortcut_depths"
SHORTCUT_DEPTHS = (1, 2, 3, 4)
START_FACTOR = 0.1  # times Xavier's weights: from the paper's 0.01 shortcuts of depth 4 do not move
LAYERS = (110, 434)  # of the ResNets that are compared
EPOCHS = 20
DECIDING = f"{CIFAR10}, {EPOCHS} epochs"
DEEP_EPOCHS = 40  # of those with shortcuts deeper than 4
DEEP_STAGE = 36  # layers of a stage, or the next smaller number that shortcuts divide
DROPS = (0.494, 0.744)  # of the learning rate: fb.resnet.torch has them after 81 and 122 of 164 epochs

Found = Mapping[int, Mapping[int, xarray.Dataset]]  # shortcut depth, depth


# -- claims

CHANGE = {
    n: Quantity(f"test error at {LAYERS[1]} layers - at {LAYERS[0]}, shortcut depth {n}") for n in SHORTCUT_DEPTHS
}
MEAN_ERROR = {n: Quantity(f"mean error by depth, shortcut {n}") for n in SHORTCUT_DEPTHS}
MEAN_CONNECTED_LOSS = {n: Quantity(f"mean final loss by depth, shortcut {n}") for n in SHORTCUT_DEPTHS}
B19 = Claim(
    "B19",
    "Of all shortcut depths only 2 gains from depths beyond 400.",
    f"CIFAR-10 test error at {LAYERS[1]} layers against {LAYERS[0]}, at {EPOCHS} of 200 epochs (figure 9)",
    parts=tuple(
        Part(
            f"{'falls' if n == 2 else 'rises'} for shortcut depth {n}, at {EPOCHS} of 200 epochs",
            (CHANGE[n].below(0.0) if n == 2 else CHANGE[n].above(0.0),),
            too_short=f"{EPOCHS} of 200 epochs",
        )
        for n in (2, 1, 3, 4)
    ),
    subjects={DECIDING: 2},
    note=(
        "After a tenth of the paper's epochs a part can be confirmed, not refuted. No small network stands in for "
        "these depths. The variance is that within all kinds of networks together."
    ),
)


@dataclass(frozen=True)
class ShortcutSettings(Constrained):
    residual: tuple[int, ...] = ()  # depths of ResNets on CIFAR-10; they need a GPU
    residual_data: str = "cifar10"
    residual_epochs: Annotated[int, at_least(5)] = (
        EPOCHS  # fewer than 5 leave no room for two drops of the learning rate
    )
    networks: Annotated[int, at_least(1)] = 2  # of each kind
    deep: tuple[int, ...] = ()  # shortcut depths of ResNets near 110 layers on CIFAR-10; they need a GPU
    deep_networks: Annotated[int, at_least(1)] = 3  # of each of these
    deep_epochs: Annotated[int, at_least(5)] = DEEP_EPOCHS
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
    return evidence(_residual(bench, settings), _connected(bench, settings), _deep(bench, settings))


# -- what it decides


def evidence(residual: Found, connected: Found, deep: Mapping[int, xarray.Dataset] | None = None) -> Evidence:
    """deep: ResNets of about as many layers, by shortcut depth, which are compared for B23."""
    figure9 = [*_errors(residual), *_stand_in(connected)]
    return {B19: figure9, B23: _deep_errors(deep)} if deep else {B19: figure9}


def _errors(residual: Found) -> list[Measured]:
    parts = [part for each in residual.values() for part in each.values()]
    if not parts:
        return []
    values: dict[Quantity, Any] = {MEAN_ERROR[n]: _means(each, "error") for n, each in residual.items()}
    compared = {n: each for n, each in residual.items() if {*LAYERS} <= {*each}}
    cells = {n: [each[depth]["error"].values for depth in LAYERS] for n, each in compared.items()}
    for n, (shallow, deep) in cells.items():
        values[CHANGE[n]] = difference(deep, shallow, [cell for other in cells if other != n for cell in cells[other]])
    return [_measured(parts, f"{residual_subject(parts[0].attrs['data'])}, {parts[0].attrs['epochs']} epochs", values)]


def _deep_errors(deep: Mapping[int, xarray.Dataset]) -> list[Measured]:
    parts = list(deep.values())
    errors = {n: part["error"].values for n, part in deep.items()}
    values = {
        gap: difference(errors[n], errors[4], [errors[other] for other in errors if other not in (n, 4)])
        for n, gap in ERROR_GAP.items()
        if n in errors and 4 in errors
    }
    epochs = int(parts[0].attrs["epochs"])
    unmet = f"{epochs} of the {DEEP_EPOCHS} epochs that it takes" if epochs < DEEP_EPOCHS else ""
    return [_measured(parts, residual_subject(parts[0].attrs["data"]), values, unmet)]


def _stand_in(connected: Found) -> list[Measured]:
    parts = [part for each in connected.values() for part in each.values()]
    if not parts:
        return []
    values = {MEAN_CONNECTED_LOSS[n]: _means(each, "final") for n, each in connected.items()}
    return [_measured(parts, f"fully connected, {subject_on(str(parts[0].attrs['data']))}", values)]


def difference(one: numpy.ndarray, other: numpy.ndarray, cells: Sequence[numpy.ndarray]) -> Difference:
    """With the variance of all cells; of those that diverged there is no number."""
    return Difference(one.tolist(), other.tolist(), [cell.tolist() for cell in cells])


def _measured(
    parts: Sequence[xarray.Dataset], subject: str, values: Mapping[Quantity, Any], unmet: str = ""
) -> Measured:
    fewest = min(parts, key=lambda part: part.sizes["seed"])
    return Measured(values, subject, fewest["seed"].values.tolist(), unmet=unmet)


def _means(parts: Mapping[int, xarray.Dataset], name: str) -> list[float]:
    return [float(parts[depth][name].mean()) for depth in sorted(parts)]


# -- what is measured


def _residual(bench: Bench, settings: ShortcutSettings) -> Found:
    if not settings.residual:
        return {}
    data, training = bench.data(settings.residual_data), residual_training(settings.residual_epochs, DROPS)
    seeds = bench.seeds(settings.networks)
    kinds = [(n, depth) for n in SHORTCUT_DEPTHS for depth in settings.residual]
    _train_together(bench, data, training, seeds, kinds, "residual")
    return _of_all_depths(bench, "residual", settings.residual, partial(_tested, bench, data, training, seeds))


def _deep(bench: Bench, settings: ShortcutSettings) -> dict[int, xarray.Dataset]:
    """Stages of as many layers as the shortcuts divide: 36, 35 and 36 for shortcut depths 4, 5 and 6."""
    if not settings.deep:
        return {}
    data, training = bench.data(settings.residual_data), residual_training(settings.deep_epochs, DROPS)
    seeds = bench.seeds(settings.deep_networks)
    tested = partial(_tested, bench, data, training, seeds)
    depths = {n: 3 * n * (DEEP_STAGE // n) + 2 for n in settings.deep}
    _train_together(bench, data, training, seeds, list(depths.items()), "deep")
    tasks = [Task(f"deep-{n}-{depth}", partial(tested, n, depth, kind="deep")) for n, depth in depths.items()]
    return dict(zip(depths, bench.sweep(tasks), strict=True))


def _network(bench: Bench, data: Dataset, training: Settings, n: int, depth: int, seed: int) -> Network:
    return Network(f"preresnet{depth}-cifar-s{n}", data, training, seed, bench.device)


def _train_together(
    bench: Bench,
    data: Dataset,
    training: Settings,
    seeds: Sequence[int],
    kinds: Sequence[tuple[int, int]],
    part: str,
) -> None:
    """Before any is tested; those that the run has tested already are not needed any more. kinds: (n, depth)."""
    needed = [kind for kind in kinds if not bench.has(f"{part}-{kind[0]}-{kind[1]}")]
    if needed:
        bench.trained_fleet([_network(bench, data, training, *kind, seed) for seed in seeds for kind in needed])


def _tested(
    bench: Bench, data: Dataset, training: Settings, seeds: Sequence[int], n: int, depth: int, kind: str = "residual"
) -> xarray.Dataset:
    """Test errors (seed)."""
    networks = bench.trained_fleet([_network(bench, data, training, n, depth, seed) for seed in seeds])
    return xarray.Dataset(
        {"error": ("seed", [numpy.nan if one.diverged else 1 - one.test_accuracy for one in networks])},
        {"seed": list(seeds)},
        {
            "measure": MEASURE_NAME,
            "kind": kind,
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

    compute = partial(_connected_at, bench, settings, white.name, data)
    return _of_all_depths(bench, "connected", settings.connected, compute, "fully connected networks")


def _connected_at(
    bench: Bench, settings: ShortcutSettings, name: str, data: Samples, n: int, depth: int
) -> xarray.Dataset:
    """name: of the data set."""
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
        attrs={"measure": MEASURE_NAME, "kind": "connected", "data": name, "samples": len(data.x)},
    )


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
    we_expect="Gains for shortcut depth 2 at 434 layers. Fully connected, deep shortcuts are hard to train.",
    presets={
        "smoke": ShortcutSettings(connected=(12, 24), data="digits", connected_networks=1, samples=50, steps=5),
        "quick": ShortcutSettings(),
        "full": ShortcutSettings(residual=LAYERS, deep=(4, 5, 6), connected=()),
        "paper": ShortcutSettings(
            residual=(38, 110, 218, 434, 866), residual_epochs=164, networks=10, deep=(4, 5, 6), connected=()
        ),
    },
    cost={
        "smoke": "seconds",
        "quick": "a minute on 2 cores; a fully connected stand-in that decides nothing",
        "full": "26 minutes on one H200 for ResNets of 110 and 434 layers, and 12 for shortcut depths 4 to 6; "
        "a stopped run goes on with --resume",
        "paper": "6 days on one GPU: 200 ResNets of up to 866 layers, 164 epochs each",
    },
    run=run,
    claims=(B19,),
)
