"""The networks that paper A's studies train, and what is measured of each of them on its way.

A case is one kind of network trained in one way, from several seeds. At every look, an epoch of a share of the
training, its networks are measured at training samples: the line that states follow (`trajectories`), the Jacobians of
the blocks and how they couple (`alignment`), accuracies. What a case is trained on and how is part of the name of its
datasets, so that the studies of one run share what they have in common.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy
import torch
from torch import Tensor, nn

from skipscope.data import Dataset, Split
from skipscope.errors import InputError
from skipscope.measure import alignment, trajectories
from skipscope.measure.alignment_summary import depth_fit, summary
from skipscope.measure.trajectories import METRICS
from skipscope.models import names
from skipscope.papers.a.networks import AlignmentNet
from skipscope.papers.a.networks.names import NAMES as TYPES
from skipscope.papers.kit.bench import Bench
from skipscope.runs.cache import key_of
from skipscope.trace import Trunk, trace
from skipscope.training import Settings
from skipscope.training.evaluation import accuracy
from skipscope.training.networks import Network, Trained

if TYPE_CHECKING:
    import xarray

MEASURE = "emergence"
LOOKS = (0.0, 0.02, 0.06, 0.15, 0.4, 0.7, 1.0)  # shares of the training after which a network is measured
PREACTIVATION = "-preactivation"  # at the end of a subject
PER_CLASS = 10  # training samples whose paths are drawn
SHOWN = 15  # singular values against depth, as in the paper's figures
THE_PAPERS = 9  # blocks that the paper's fits leave out
TOLERANCE = 1e-6  # of the triplets of large Jacobians, relative to s_1; smaller ones are decomposed as a whole


@dataclass(frozen=True)
class Training:
    """What the cases of a study have in common, unless they differ in it."""

    width: int = 64  # of the states of fully connected networks
    channels: int = 16  # of convolutional ones
    blocks: int = 16
    samples: int | None = 3000  # of training; all where there are fewer
    networks: int = 3  # seeds
    epochs: int = 250
    batch: int = 128
    rate: float = 0.1
    weight_decay: float = 5e-3
    clip: float | None = None  # the largest norm of a gradient
    decay_budget: float | None = None  # takes the place of weight_decay: see `decay`
    images: int = 10  # training samples at which Jacobians are taken
    looks: tuple[float, ...] = LOOKS

    def __post_init__(self) -> None:
        counts = {name: getattr(self, name) for name in ("width", "channels", "blocks", "networks", "images")}
        for name, value in {**counts, "samples": self.samples}.items():
            if value is not None and value < 1:
                raise InputError(f"{name}: expected at least 1, got {value}")
        if not {0.0, 1.0} <= {*self.looks} or any(not 0 <= look <= 1 for look in self.looks):
            raise InputError(f"looks: expected shares of the training, 0 and 1 among them, got {self.looks}")
        if self.decay_budget is not None and not self.decay_budget >= 0:
            raise InputError(f"decay_budget: expected a number of at least 0, got {self.decay_budget}")
        assert self.settings(self.batch)  # which says what is wrong with the numbers of the training

    def settings(self, samples: int) -> Settings:
        """Of a training with so many samples."""
        plain = Settings(self.epochs, self.batch, rate=self.rate, weight_decay=self.weight_decay, clip=self.clip)
        if self.decay_budget is None:
            return plain
        wanted = self.decay_budget / decay(replace(plain, weight_decay=1.0), samples)
        return replace(plain, weight_decay=float(f"{wanted:.12g}"))  # not to differ by rounding from one that was given


def decay(settings: Settings, samples: int) -> float:
    """Learning rate x weight decay / (1 - momentum), summed over all steps; the mean of a cosine is half its rate.

    By this budget, and not by weight decay alone, alignment was strong or weak: about 15 gave it, 3 hardly.
    """
    steps = settings.epochs * max(1, samples // settings.batch)
    return steps * settings.rate / 2 * settings.weight_decay / (1 - settings.momentum)


SMOKE: dict[str, Any] = {  # for tests: two epochs, in which nothing aligns
    "width": 50,
    "channels": 4,
    "blocks": 3,
    "samples": 100,
    "networks": 1,
    "epochs": 2,
    "batch": 20,
    "images": 2,
    "looks": (0.0, 0.5, 1.0),
}


@dataclass(frozen=True)
class Case:
    title: str
    model: str
    data: Dataset
    training: Training
    seeds: tuple[int, ...]

    @property
    def epochs(self) -> tuple[int, ...]:
        """Of the looks."""
        return tuple(sorted({round(look * self.training.epochs) for look in self.training.looks}))

    @property
    def settings(self) -> Settings:
        return self.training.settings(len(self.data.train))

    def network(self, seed: int, device: str) -> Network:
        return Network(self.model, self.data, self.settings, seed, device, self.epochs)

    def key(self, device: str, *seeds: int) -> str:
        """Of its datasets, or of some seeds': what it is, and a part of the hash of all that determines them."""
        chosen = [self.network(seed, device).key for seed in seeds or self.seeds]
        return f"{self.model}-{key_of({'networks': chosen, 'images': self.training.images})[:8]}"


def case(
    bench: Bench,
    training: Training,
    subject: str,
    *,
    options: str = "",
    classes: int | None = None,
    random_labels: bool = False,
    seeds: int | None = None,
    least: int = 0,
    title: str = "",
) -> Case:
    """subject: type and data, type1-mnist, and -preactivation for blocks of that form. options: of the network's name.

    classes: the first so many, with as many samples in all, so that the training has as many steps. least: times the
    classes, that a fully connected network is wide.
    """
    kind, _, source = subject.removesuffix(PREACTIVATION).partition("-")
    if subject.endswith(PREACTIVATION):
        options = PREACTIVATION + options
    if kind not in TYPES or not source:
        raise InputError(f"'{subject}': expected one of {', '.join(TYPES)} and a data set, such as type1-mnist")
    data = bench.data(source)
    if classes is not None and not 2 <= classes <= data.classes:
        raise InputError(f"classes: expected 2 to {data.classes}, which {data.name} has, got {classes}")
    if classes is not None and classes < data.classes:
        data = data.subset(classes=list(range(classes)))
    if training.samples is not None and training.samples < len(data.train):
        data = data.subset(samples=training.samples)
    if random_labels:
        data = data.with_random_labels(bench.seed)
    width = max(training.width, least * data.classes) if kind == "type1" else training.channels
    model = names.fitting(f"{kind}-mnist-w{width}-b{training.blocks}", tuple(data.shape), data.classes)
    if not model:
        raise InputError(f"{subject}: no network of {kind} takes images of {tuple(data.shape)}")
    chosen = bench.seeds(training.networks if seeds is None else seeds)
    form = " with pre-activation" if PREACTIVATION in options else ""
    return Case(title or f"{kind}{form} on {data.name}", model + options, data, training, tuple(chosen))


# -- what is measured


def emergence(bench: Bench, of: Case) -> xarray.Dataset:
    """Statistics (seed, epoch) of a case's networks; NaN after the divergence of one."""
    import xarray

    pieces = [bench.shared(of.key(bench.device, seed), partial(_followed, bench, of, seed)) for seed in of.seeds]

    def joined() -> xarray.Dataset:
        whole = xarray.concat(pieces, "seed", combine_attrs="drop")
        about = {key: value for key, value in pieces[0].attrs.items() if key != "part"}
        return whole.assign_attrs(about, measure=MEASURE, title=of.title, network=of.model, data=of.data.name)

    return bench.shared(f"emergence-{of.key(bench.device)}", joined)


def portraits(bench: Bench, of: Case) -> None:
    """Of the first seed, in the end: the grids at one sample, and the paths of several of each class."""
    seed = next((seed for seed in of.seeds if not trained(bench, of, seed).diverged), None)
    if seed is None:
        bench.note(f"{of.title}: all networks diverged, so that there are no grids and no paths to show")
        return
    key = of.key(bench.device, seed)
    about = {"network": f"{of.model}, seed {seed}", "data": of.data.name}

    @cache
    def trunk() -> Trunk:
        return _traced(bench, of, seed)[1]

    def grids() -> xarray.Dataset:
        images, _ = _samples(of, 1, bench.device)
        return alignment(trunk(), images, k=of.data.classes, chance=0, tol=TOLERANCE).assign_attrs(about)

    def paths() -> xarray.Dataset:
        images, labels = _samples(of, PER_CLASS * min(of.data.classes, 10), bench.device)
        return trajectories(trunk(), images, labels=labels, seed=bench.seed).assign_attrs(about)

    bench.shared(f"alignment-{key}", grids)
    bench.shared(f"trajectories-{key}", paths)


def trained(bench: Bench, of: Case, seed: int) -> Trained:
    return bench.trained(of.model, of.data, of.settings, seed=seed, snapshots=of.epochs)


def _traced(bench: Bench, of: Case, seed: int) -> tuple[Trained, Trunk]:
    found = trained(bench, of, seed)
    return found, traced(found.model, _samples(of, 2, bench.device)[0])


def traced(model: AlignmentNet | Any, images: Tensor) -> Trunk:
    """Its residual units; the blocks of a network without skips, but for one that changes the shape of the state."""
    if model.skips:
        return trace(model, images)
    return trace(model, images, units=[name for k, name in enumerate(model.blocks) if k != model.spec.halved_at])


def _samples(of: Case, count: int, device: str) -> tuple[Tensor, Tensor]:
    """Training images and their labels, as equally from all classes as the number permits."""
    split: Split = of.data.train
    drawn = of.data.subset(samples=max(count, of.data.classes)).train if count < len(split) else split
    drawn = drawn.select(torch.linspace(0, len(drawn) - 1, min(count, len(drawn)), device="cpu").round().long())
    return drawn.images().to(device), drawn.labels.to(device)


def _followed(bench: Bench, of: Case, seed: int) -> xarray.Dataset:
    import xarray

    found, trunk = _traced(bench, of, seed)
    images, _ = _samples(of, of.training.images, bench.device)
    progress = bench.steps(f"alignment of {of.title}, seed {seed}")
    model, rows = found.model, []
    for done, epoch in enumerate(of.epochs):
        progress(done, len(of.epochs))
        if epoch in found.snapshots:  # a diverged one has no more
            model.load_state_dict(dict(found.snapshots[epoch]))  # the trunk runs with the live weights
            rows.append(_statistics(trunk, images, of.data.classes) | _accuracies(model, of.data))
    names_of = list(rows[0])
    missing = {name: numpy.full_like(rows[0][name], math.nan, dtype=float) for name in names_of}
    rows += [missing] * (len(of.epochs) - len(rows))
    dimensions = ("seed", "epoch", "unit", "rank")
    return xarray.Dataset(
        {
            name: (dimensions[: 2 + numpy.ndim(rows[0][name])], numpy.array([row[name] for row in rows])[None])
            for name in names_of
        },
        {"seed": [seed], "epoch": list(of.epochs), "unit": [unit.name for unit in trunk.units]},
        {
            "part": "piece",
            "classes": of.data.classes,
            "images": len(images),
            "rate": of.settings.rate,
            "weight_decay": of.settings.weight_decay,
            "epochs": of.settings.epochs,
            "decay_budget": decay(of.settings, len(of.data.train)),
            "width": int(numpy.prod(trunk.units[-1].entry_shape)),
        },
    )


def _accuracies(model: nn.Module, data: Dataset) -> dict[str, float]:
    return {"train_accuracy": accuracy(model, data.train), "test_accuracy": accuracy(model, data.test)}


def _statistics(trunk: Trunk, images: Tensor, classes: int) -> dict[str, Any]:
    """Of one network: means over the samples; of several stages the mean of theirs. values: (unit, rank)."""
    point = trunk.at(images)
    paths = trajectories(trunk, point, projections=False)
    jacobians = alignment(trunk, point, k=classes, grids=False, tol=TOLERANCE)
    said, line, papers = summary(jacobians), depth_fit(jacobians), depth_fit(jacobians, THE_PAPERS)
    values = jacobians["value"].mean("sample").transpose("unit", "rank").values[:, : max(SHOWN, classes + 1)]
    return {
        **{name: float(paths[name].mean()) for name in METRICS},
        **{f"coupling_{kind}": float(said["ujv"].sel(pairs=kind)) for kind in ("all", "adjacent", "last_half")},
        **{f"over_chance_{kind}": float(said["ujv_over_chance"].sel(pairs=kind)) for kind in ("all", "adjacent")},
        "swapped": float(said["vju"].sel(pairs="all")),
        "swapped_over_chance": float(said["vju_over_chance"].sel(pairs="all")),
        **{name: float(said[name]) for name in ("u1v1", "energy", "gap", "large")},
        "r_squared": line.r_squared,
        "slope": line.slope,
        "log_log_slope": line.log_log_slope,
        "r_squared_papers": papers.r_squared,
        "value": values,
    }


# -- what it says

QUANTITIES = {  # as the claims name them: as the datasets do
    "LSS": "line_shape",
    "step CoV": "step_variation",
    "m_K adjacent / chance": "over_chance_adjacent",
    "m_K all pairs / chance": "over_chance_all",
    "m_K(VJU)": "swapped",
    "u_1 . v_1": "u1v1",
    "energy in the first C": "energy",
    "s_(C+1) / s_1": "gap",
    "R2 of 1 / s_1 over depth": "r_squared",
    "slope of 1 / s_1 over depth": "slope",
}


def values(dataset: xarray.Dataset, epoch: int = -1) -> dict[str, list[float]]:
    """By the claims' names, one value a seed."""
    return {quantity: dataset[name].isel(epoch=epoch).values.tolist() for quantity, name in QUANTITIES.items()}


def several(datasets: Sequence[xarray.Dataset], epoch: int = -1) -> dict[str, list[float]]:
    """The same of several cases, one value a network."""
    each = [values(dataset, epoch) for dataset in datasets]
    return {quantity: [value for one in each for value in one[quantity]] for quantity in QUANTITIES}
