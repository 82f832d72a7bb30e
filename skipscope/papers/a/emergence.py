"""How alignment emerges: what is measured of the networks of a subject on their way through the training.

At every look, an epoch of a share of the training, the networks are measured at training samples: the line that states
follow (`trajectories`), the Jacobians of the blocks and how they couple (`alignment`), accuracies. What a subject is
trained on and how is part of the name of its datasets, so that the studies of one run share what they have in common.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import numpy
import xarray
from torch import Tensor

from skipscope.measure import alignment, trajectories
from skipscope.measure.alignment_summary import alignment_summary, depth_fit
from skipscope.measure.trajectories import METRICS
from skipscope.papers.a.networks import AlignmentNet
from skipscope.papers.a.subjects import decay_budget_of, is_changed
from skipscope.papers.kit import Bench, Quantity, Subject
from skipscope.runs.sweep import Task, merged
from skipscope.trace import Trunk, trace
from skipscope.training.loop import accuracy
from skipscope.training.networks import Trained

PATHS_PER_CLASS = 10  # training samples whose paths are drawn
DRAWN_VALUES = 15  # singular values against depth, as in the paper's figures
LEFT_OUT_BY_THE_PAPER = 9  # first blocks that the paper's fits leave out
TOLERANCE = 1e-6  # of the triplets of large Jacobians, relative to s_1; smaller ones are decomposed as a whole


# Quantities that claims of several studies speak of, and the variables of the datasets that hold them.
LSS = Quantity("LSS")
STEP_COV = Quantity("step CoV")
ADJACENT = Quantity("m_K adjacent / chance")
ALL_PAIRS = Quantity("m_K all pairs / chance")
SWAPPED = Quantity("m_K(VJU)")
LEFT_ON_RIGHT = Quantity("u_1 . v_1")
ENERGY = Quantity("energy in the first C")
GAP = Quantity("s_(C+1) / s_1")
R_SQUARED = Quantity("R2 of 1 / s_1 over depth")
SLOPE = Quantity("slope of 1 / s_1 over depth")
VARIABLES = {
    LSS: "line_shape",
    STEP_COV: "step_variation",
    ADJACENT: "over_chance_adjacent",
    ALL_PAIRS: "over_chance_all",
    SWAPPED: "swapped",
    LEFT_ON_RIGHT: "u1v1",
    ENERGY: "energy",
    GAP: "gap",
    R_SQUARED: "r_squared",
    SLOPE: "slope",
}


def values(dataset: xarray.Dataset, epoch: int = -1) -> dict[Quantity, list[float]]:
    """One value per seed."""
    return {quantity: at_look(dataset, name, epoch) for quantity, name in VARIABLES.items()}


def values_of_all(datasets: Sequence[xarray.Dataset], epoch: int = -1) -> dict[Quantity, list[float]]:
    """The same of several subjects, one value per network."""
    found = [values(dataset, epoch) for dataset in datasets]
    return {quantity: [value for one in found for value in one[quantity]] for quantity in VARIABLES}


def at_look(dataset: xarray.Dataset, name: str, epoch: int = -1) -> list[float]:
    """A variable at one of the epochs, the last by default: one value per seed."""
    return dataset[name].isel(epoch=epoch).values.tolist()


# -- what is measured


def emergence(bench: Bench, subject: Subject) -> xarray.Dataset:
    """Statistics (seed, epoch) of a subject's networks; NaN after the divergence of one."""
    changed = is_changed(subject)
    studies = ("A.counterfactuals",) if changed else ("A.alignment", "A.collapse")
    tasks = [Task(subject.key(bench.device, seed), partial(_followed, bench, subject, seed)) for seed in subject.seeds]
    pieces = bench.sweep(tasks, studies=studies)
    about = {"title": subject.title, "network": subject.model, "data": subject.data.name, "changed": int(changed)}
    return bench.shared(
        f"emergence-{subject.key(bench.device)}",
        lambda: merged(pieces, "seed", measure="emergence", **about),
        studies,
    )


def portraits(bench: Bench, subject: Subject) -> None:
    """Of the first seed, in the end: the grids at one sample, and the paths of several of each class."""
    seed = next((seed for seed in subject.seeds if not subject.trained(bench, seed).diverged), None)
    if seed is None:
        bench.note(f"{subject.title}: all networks diverged, so that there are no grids and no paths to show")
        return
    key = subject.key(bench.device, seed)
    about = {"network": f"{subject.model}, seed {seed}", "data": subject.data.name}

    @cache
    def trunk() -> Trunk:
        return _traced(bench, subject, seed)[1]

    def grids() -> xarray.Dataset:
        images, _ = subject.samples(bench.device, 1)
        return alignment(trunk(), images, k=subject.data.classes, chance=0, tol=TOLERANCE).assign_attrs(about)

    def paths() -> xarray.Dataset:
        images, labels = subject.samples(bench.device, PATHS_PER_CLASS * min(subject.data.classes, 10))
        return trajectories(trunk(), images, labels=labels, seed=bench.seed).assign_attrs(about)

    bench.sweep([Task(f"alignment-{key}", grids), Task(f"trajectories-{key}", paths)], studies=["A.alignment"])


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
    progress = bench.steps(f"alignment of {subject.title}, seed {seed}")
    model, rows = found.model, []
    for done, epoch in enumerate(subject.looks):
        progress(done, len(subject.looks))
        if epoch in found.snapshots:  # a diverged one has no more
            model.load_state_dict(dict(found.snapshots[epoch]))  # the trunk runs with the live weights
            splits = {"train": subject.data.train, "test": subject.data.test}
            accuracies = {f"{name}_accuracy": accuracy(model, split) for name, split in splits.items()}
            rows.append(_statistics(trunk, images, subject.data.classes) | accuracies)
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


def _statistics(trunk: Trunk, images: Tensor, classes: int) -> dict[str, Any]:
    """Of one network: means over the samples; of several stages the mean of theirs. value: (unit, rank)."""
    point = trunk.at(images)
    paths = trajectories(trunk, point, projections=False)
    jacobians = alignment(trunk, point, k=classes, grids=False, tol=TOLERANCE)
    means, line = alignment_summary(jacobians), depth_fit(jacobians)
    papers = depth_fit(jacobians, LEFT_OUT_BY_THE_PAPER)
    singular_values = jacobians["value"].mean("sample").transpose("unit", "rank").values
    return {
        **{name: float(paths[name].mean()) for name in METRICS},
        **{f"coupling_{kind}": float(means["ujv"].sel(pairs=kind)) for kind in ("all", "adjacent", "last_half")},
        **{f"over_chance_{kind}": float(means["ujv_over_chance"].sel(pairs=kind)) for kind in ("all", "adjacent")},
        "swapped": float(means["vju"].sel(pairs="all")),
        "swapped_over_chance": float(means["vju_over_chance"].sel(pairs="all")),
        **{name: float(means[name]) for name in ("u1v1", "energy", "gap", "large")},
        "r_squared": line.r_squared,
        "slope": line.slope,
        "log_log_slope": line.log_log_slope,
        "r_squared_papers": papers.r_squared,
        "value": singular_values[:, : max(DRAWN_VALUES, classes + 1)],
    }
