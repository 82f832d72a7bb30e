"""How alignment emerges: what is measured of the networks of a subject on their way through the training.

At every look, an epoch of a share of the training, the networks are measured at training samples: the line that states
follow (`trajectories`), the Jacobians of the blocks and how they couple (`alignment`), accuracies. What a subject is
trained on and how is part of the name of its datasets, so that the studies of one run share what they have in common.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy
import xarray
from torch import Tensor

from skipscope.measure import alignment, trajectories
from skipscope.measure.alignment_summary import alignment_summary, depth_fit
from skipscope.measure.trajectories import METRICS
from skipscope.papers.a.grids import in_papers_layout
from skipscope.papers.a.networks import AlignmentNet
from skipscope.papers.a.quantities import WIDE_RANK
from skipscope.papers.a.subjects import decay_budget_of, is_changed
from skipscope.papers.kit import Bench, Subject
from skipscope.runs.sweep import Task, keyed, merged
from skipscope.trace import Point, Trunk, trace
from skipscope.training.loop import accuracy
from skipscope.training.networks import Trained

PATHS_PER_CLASS = 10  # training samples whose paths are drawn
DRAWN_VALUES = 15  # singular values against depth, as in the paper's figures
LEFT_OUT_BY_THE_PAPER = 9  # first blocks that the paper's fits leave out
IMAGES_OF_DRAWS = 1  # at which the Jacobians of untrained networks are taken
TOLERANCE = 1e-6  # of the triplets of large Jacobians, relative to s_1; smaller ones are decomposed as a whole


# -- what is measured


def emergence(bench: Bench, subject: Subject) -> xarray.Dataset:
    """Statistics (seed, epoch) of a subject's networks; NaN after the divergence of one."""
    train_all(bench, [subject])
    changed = is_changed(subject)
    studies = (bench.study,) if changed else ("A.alignment", "A.collapse")
    pieces = followed(bench, subject, studies)
    about = {"title": subject.title, "network": subject.model, "data": subject.data.name, "changed": int(changed)}
    return bench.shared(
        f"emergence-{subject.key(bench.device)}",
        lambda: merged(pieces, "seed", measure="emergence", **about),
        studies,
    )


def followed(bench: Bench, subject: Subject, studies: Sequence[str]) -> list[xarray.Dataset]:
    """The same network by network. studies: that share these datasets."""
    tasks = [Task(subject.key(bench.device, seed), partial(_followed, bench, subject, seed)) for seed in subject.seeds]
    return bench.sweep(tasks, studies=studies)


def train_all(bench: Bench, subjects: Iterable[Subject]) -> None:
    """Trains the networks of several subjects before any is measured, at the same time where that is possible.

    `Subject.trained` then finds them. Those that the run has measured already are not needed any more.
    """
    networks = [
        subject.network(seed, bench.device)
        for subject in subjects
        for seed in subject.seeds
        if not bench.run.has(f"data/{subject.key(bench.device, seed)}.nc")
    ]
    if networks:
        bench.trained_fleet(networks)


def untrained(bench: Bench, subject: Subject, draws: int) -> xarray.Dataset:
    """Statistics (draw) of random draws of the network before training, with which trained ones are compared.

    Of a fully connected network all of them, Jacobians at fewer images; of a convolutional one those of the line.
    """
    own = replace(subject, seeds=tuple(bench.seeds(draws)))
    determined_by = {"seeds": own.seeds, "data": subject.data.describe(), "images": subject.images}
    return bench.shared(keyed(f"untrained-{subject.model}", determined_by), lambda: _drawn(bench, own))


def _drawn(bench: Bench, subject: Subject) -> xarray.Dataset:
    images, _ = subject.samples(bench.device)
    model: Any = subject.network(subject.seeds[0], bench.device).initial().eval()
    trunk, rows = traced(model, images[:2]), []
    for seed in bench.each(f"untrained networks of {subject.title}", subject.seeds):
        model.load_state_dict(subject.network(seed, bench.device).initial().state_dict())
        row = _line(trunk, images)
        if model.spec.flat:
            few = trunk.at(images[:IMAGES_OF_DRAWS])
            row |= _jacobians(trunk, few, subject.data.classes) | _wide(trunk, few, subject.data.classes)
        rows.append({name: value for name, value in row.items() if name != "value"})
    return xarray.Dataset(
        {name: ("draw", [row[name] for row in rows]) for name in rows[0]},
        {"draw": list(subject.seeds)},
        {"part": "piece", "images": len(images), "images_of_jacobians": IMAGES_OF_DRAWS},
    )


def portraits(bench: Bench, subject: Subject) -> None:
    """Of the first seed, in the end: the grids at one sample, and the paths of several of each class.

    A run that has them already needs no weights for it.
    """
    last = emergence(bench, subject)["train_accuracy"].isel(epoch=-1)  # NaN after a divergence
    seed = next((seed for seed in subject.seeds if math.isfinite(float(last.sel(seed=seed)))), None)
    if seed is None:
        bench.note(f"{subject.title}: all networks diverged, so that there are no grids and no paths to show")
        return
    key = subject.key(bench.device, seed)
    about = {"network": f"{subject.model}, seed {seed}", "data": subject.data.name}

    @cache
    def trunk() -> Trunk:
        return _traced(bench, subject, seed)[1]

    def of_one_image(k: int) -> xarray.Dataset:
        images, _ = subject.samples(bench.device, 1)
        return alignment(trunk(), images, k=k, classes=subject.data.classes, chance=0, tol=TOLERANCE)

    def grids() -> xarray.Dataset:
        # Not of 100 classes: grids of 16 blocks would take 20 MB, of which a panel shows the first corner.
        return of_one_image(min(subject.data.classes, WIDE_RANK)).assign_attrs(about)

    def papers_grids() -> xarray.Dataset:
        return in_papers_layout(of_one_image(_wide_rank(trunk()))).assign_attrs(about)

    def paths() -> xarray.Dataset:
        images, labels = subject.samples(bench.device, PATHS_PER_CLASS * min(subject.data.classes, 10))
        return trajectories(trunk(), images, labels=labels, seed=bench.seed).assign_attrs(about)

    tasks = {"alignment": grids, "grids": papers_grids, "trajectories": paths}
    bench.sweep([Task(f"{name}-{key}", task) for name, task in tasks.items()], studies=["A.alignment"])


def _traced(bench: Bench, subject: Subject, seed: int) -> tuple[Trained, Trunk]:
    found = subject.trained(bench, seed)
    return found, traced(found.model, subject.samples(bench.device, 2)[0])


def traced(model: AlignmentNet | Any, images: Tensor) -> Trunk:
    """Its residual units; the blocks of a network without skips, but for one that changes the shape of the state."""
    if model.skips:
        return trace(model, images)
    return trace(model, images, units=[name for k, name in enumerate(model.blocks) if k != model.spec.halved_at])


def _followed(bench: Bench, subject: Subject, seed: int) -> xarray.Dataset:
    found, trunk = _traced(bench, subject, seed)
    images, _ = subject.samples(bench.device)
    model, rows = found.model, []
    for epoch in bench.each(f"alignment of {subject.title}, seed {seed}", subject.looks):
        if epoch in found.snapshots:  # a diverged one has no more
            model.load_state_dict(dict(found.snapshots[epoch]))  # the trunk runs with the live weights
            splits = {"train": subject.data.train, "test": subject.data.test}
            accuracies = {f"{name}_accuracy": accuracy(model, split) for name, split in splits.items()}
            point = trunk.at(images)
            rows.append(_line(trunk, point) | _jacobians(trunk, point, subject.data.classes) | accuracies)
    if not is_changed(subject) and not found.diverged:
        in_the_end = _wide(trunk, images, subject.data.classes)
        nothing = dict.fromkeys(in_the_end, math.nan)
        rows = [row | (in_the_end if row is rows[-1] else nothing) for row in rows]
    missing = {name: numpy.full_like(value, math.nan, dtype=float) for name, value in rows[0].items()}
    rows += [missing] * (len(subject.looks) - len(rows))
    dimensions = ("seed", "epoch", "unit", "rank")
    return xarray.Dataset(
        {
            name: (dimensions[: 2 + numpy.ndim(value)], numpy.array([row[name] for row in rows])[None])
            for name, value in rows[0].items()
        },
        {"seed": [seed], "epoch": list(subject.looks), "unit": [unit.name for unit in trunk.units]},
        {
            "part": "piece",
            "classes": subject.data.classes,
            "images": len(images),
            "rate": subject.training.rate,
            "weight_decay": subject.training.weight_decay,
            "epochs": subject.training.epochs,
            "decay_budget": decay_budget_of(subject.training, len(subject.data.train)),
            "width": int(numpy.prod(trunk.units[-1].entry_shape)),
        },
    )


def _line(trunk: Trunk, images: Tensor | Point) -> dict[str, Any]:
    """Of the states of one network: means over the images."""
    paths = trajectories(trunk, images, projections=False)
    return {name: float(paths[name].mean()) for name in METRICS}


def _jacobians(trunk: Trunk, images: Tensor | Point, classes: int) -> dict[str, Any]:
    """Of one network: means over the images; of several stages the mean of theirs. value: (unit, rank)."""
    jacobians = alignment(trunk, images, k=classes, grids=False, tol=TOLERANCE)
    means, line = alignment_summary(jacobians), depth_fit(jacobians)
    papers = depth_fit(jacobians, LEFT_OUT_BY_THE_PAPER)
    singular_values = jacobians["value"].mean("sample").transpose("unit", "rank").values
    last_half = jacobians["u1v1"].isel(unit=slice(jacobians.sizes["unit"] // 2, None))
    return {
        **{f"coupling_{kind}": float(means["ujv"].sel(pairs=kind)) for kind in ("all", "adjacent", "last_half")},
        **{f"over_chance_{kind}": float(means["ujv_over_chance"].sel(pairs=kind)) for kind in ("all", "adjacent")},
        "swapped": float(means["vju"].sel(pairs="all")),
        "swapped_last_half": float(means["vju"].sel(pairs="last_half")),
        "swapped_over_chance": float(means["vju_over_chance"].sel(pairs="all")),
        **{name: float(means[name]) for name in ("u1v1", "energy", "gap", "large")},
        "u1v1_last_half": float(last_half.mean()),
        "r_squared": line.r_squared,
        "slope": line.slope,
        "log_log_slope": line.log_log_slope,
        "r_squared_papers": papers.r_squared,
        "value": singular_values[:, : max(DRAWN_VALUES, classes + 1)],
    }


def _wide(trunk: Trunk, images: Tensor | Point, classes: int) -> dict[str, Any]:
    """m of more singular vectors than classes, as in the paper's figures."""
    jacobians = alignment(trunk, images, k=_wide_rank(trunk), classes=classes, grids=False, tol=TOLERANCE)
    over_chance = alignment_summary(jacobians)["ujv_over_chance"]
    return {f"wide_over_chance_{kind}": float(over_chance.sel(pairs=kind)) for kind in ("all", "adjacent")}


def _wide_rank(trunk: Trunk) -> int:
    """The K of the paper's figures, or as many singular vectors as the smallest state has."""
    return min(WIDE_RANK, *(int(numpy.prod(unit.entry_shape)) for unit in trunk.units))
