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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy

from skipscope.data import Dataset
from skipscope.errors import InputError
from skipscope.models.resnet_specification import blocks_per_stage
from skipscope.papers.b import PAPER
from skipscope.papers.b.claims import decided_by
from skipscope.papers.b.networks import Samples, ShortcutSpec
from skipscope.papers.b.studies.learning import learnt, over
from skipscope.papers.b.studies.norms import residual_training
from skipscope.papers.b.subjects import COMPONENTS, task
from skipscope.papers.kit.bench import Bench
from skipscope.papers.kit.study import Evidence, Study
from skipscope.training import Settings

if TYPE_CHECKING:
    import xarray

MEASURE = "shortcut_depths"
SHORTCUTS = (1, 2, 3, 4)
START = 0.1  # times Xavier's weights: from the paper's 0.01 shortcuts of depth 4 do not move
EXTREME = 400  # layers
DROPS = (0.494, 0.744)  # of the learning rate: fb.resnet.torch has them after 81 and 122 of 164 epochs

Found = Mapping[int, Mapping[int, "xarray.Dataset"]]  # shortcut depth, depth


@dataclass(frozen=True)
class ShortcutSettings:
    residual: tuple[int, ...] = ()  # depths of ResNets on CIFAR-10; they need a GPU
    residual_data: str = "cifar10"
    residual_epochs: int = 20
    networks: int = 1  # of each kind
    connected: tuple[int, ...] = (12, 24, 48)  # depths of the fully connected networks
    data: str = "mnist"  # of these
    connected_networks: int = 3
    samples: int = 500
    steps: int = 200

    def __post_init__(self) -> None:
        if any(depth < 1 or depth % 12 for depth in self.connected):
            raise InputError(f"connected: expected multiples of 12, got {self.connected}")
        for key in ("networks", "connected_networks", "samples", "steps"):
            if getattr(self, key) < 1:
                raise InputError(f"{key}: expected at least 1, got {getattr(self, key)}")
        if self.residual_epochs < 5:
            raise InputError(f"residual_epochs: expected 5 epochs or more, got {self.residual_epochs}")
        for depth in self.residual:
            for n in SHORTCUTS:
                blocks_per_stage(depth, shortcut_depth=n)  # says which depths there are


def run(bench: Bench, settings: ShortcutSettings) -> Evidence:
    return evidence(_residual(bench, settings), _connected(bench, settings))


# -- what it decides


def evidence(residual: Found, connected: Found) -> dict[str, dict[str, Any]]:
    """Steps are from each depth to the next; those past depth 400 begin there."""
    found: dict[str, Any] = {
        "seeds": min((part.sizes["seed"] for each in residual.values() for part in each.values()), default=0),
        "largest step of the error over depth, shortcut 2": over(_steps(residual.get(2, {})), numpy.max),
    }
    for n in (1, 3, 4):
        steps = _steps({depth: part for depth, part in residual.get(n, {}).items() if depth >= EXTREME})
        found[f"smallest step of the error past depth {EXTREME}, shortcut {n}"] = over(steps, numpy.min)
    for n, parts in residual.items():
        found[f"mean error by depth, shortcut {n}"] = _means(parts, "error")
    for n, parts in connected.items():
        found[f"mean final loss by depth, shortcut {n}, fully connected stand-in"] = _means(parts, "final")
    return {"B19": found}


def _steps(parts: Mapping[int, xarray.Dataset]) -> list[numpy.ndarray]:
    rows = [parts[depth]["error"].values for depth in sorted(parts)]
    return [after - before for before, after in pairwise(rows)]


def _means(parts: Mapping[int, xarray.Dataset], name: str) -> list[float]:
    return [float(parts[depth][name].mean()) for depth in sorted(parts)]


# -- what is measured


def _residual(bench: Bench, settings: ShortcutSettings) -> dict[int, dict[int, xarray.Dataset]]:
    if not settings.residual:
        return {}
    data = bench.data(settings.residual_data)
    images, training = data.to(bench.device), residual_training(settings.residual_epochs, DROPS)
    return {
        n: {
            depth: bench.part(
                f"residual-{n}-{depth}",
                partial(_tested, bench, images, training, bench.seeds(settings.networks), n, depth),
            )
            for depth in settings.residual
        }
        for n in SHORTCUTS
    }


def _tested(
    bench: Bench, data: Dataset, training: Settings, seeds: Sequence[int], n: int, depth: int
) -> xarray.Dataset:
    """Test errors (seed)."""
    import xarray

    networks = [bench.trained(f"preresnet{depth}-cifar-s{n}", data, training, seed=seed) for seed in seeds]
    return xarray.Dataset(
        {"error": ("seed", [numpy.nan if one.diverged else 1 - one.test_accuracy for one in networks])},
        {"seed": list(seeds)},
        {
            "measure": MEASURE,
            "kind": "residual",
            "n": n,
            "depth": depth,
            "data": data.name,
            "epochs": training.epochs,
            "precision": training.precision,
        },
    )


def _connected(bench: Bench, settings: ShortcutSettings) -> dict[int, dict[int, xarray.Dataset]]:
    if not settings.connected:
        return {}
    subject = task(bench, settings.data)
    data = Samples(subject.samples.x[: settings.samples], subject.samples.y[: settings.samples])
    found: dict[int, dict[int, xarray.Dataset]] = {n: {} for n in SHORTCUTS}
    for n in SHORTCUTS:
        for depth in settings.connected:
            bench.steps(f"fully connected networks, shortcuts of depth {n}")(len(found[n]), len(settings.connected))
            found[n][depth] = bench.part(
                f"connected-{n}-{depth}",
                partial(
                    learnt,
                    bench,
                    ShortcutSpec(depth, COMPONENTS, n, pre="relu", mid="relu"),
                    data,
                    "zero",
                    networks=settings.connected_networks,
                    steps=settings.steps,
                    per_decade=2,
                    factor=START,
                    attrs={"measure": MEASURE, "kind": "connected", "data": subject.name, "samples": len(data.x)},
                ),
            )
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
    claims=decided_by("B.shortcuts"),
)
