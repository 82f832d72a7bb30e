"""B.initial: figure 4 of paper B, the condition number of the Hessian before training, against depth.

    skipscope study run B.initial --preset quick --out DIR

The paper finds that the Hessian of 2-shortcut networks near zero weights has the same condition number at every depth,
while that of plain networks grows with depth, fastest from Xavier's weights. It takes the 10th percentile of |lambda|
for the smallest one, and so do we. It also says that 1-shortcut networks from zero are like plain ones from orthogonal
weights: B20 tests that before training here, and after it by the losses of B.learning. It takes both studies, in one
run of the whole paper; this one alone leaves it open.

We expect all of it but for the end of training. Hessians are exact, from the second moments of all samples, and all
their eigenvalues are computed in float64. Condition numbers above 10^LOG_CEILING are rounding noise: they are masked,
and steps between depths are taken over the runs that are not masked at either, which can only make them smaller.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy
import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.papers.b import PAPER
from skipscope.papers.b.claims import decided_by
from skipscope.papers.b.networks import Moments, ShortcutSpec, initial_weights, shortcut_hessian
from skipscope.papers.b.subjects import ARCHITECTURES, LOG_CEILING, NOISE, Task, spec_of, task
from skipscope.papers.kit.bench import Bench
from skipscope.papers.kit.study import Evidence, Study

if TYPE_CHECKING:
    import xarray

MEASURE = "shortcut_initial"
SHOWN = ("xavier", "orthogonal", "1-shortcut", "2-shortcut")
TENTH = 0.1  # the quantile of |lambda| that stands for the smallest
COMPARED = 16  # the depth at which Xavier's and orthogonal weights are


@dataclass(frozen=True)
class InitialSettings:
    data: str = "mnist"  # whitened
    depths: tuple[int, ...] = (4, 8, 16, 24, 32)
    runs: int = 10  # seeds at each of these depths
    deep: tuple[int, ...] = (64, 96)
    deep_runs: int = 1

    def __post_init__(self) -> None:
        depths = (*self.depths, *self.deep)
        if not self.depths or any(depth < 2 or depth % 2 for depth in depths):
            raise InputError(f"depths, deep: expected even depths, got {self.depths} and {self.deep}")
        if min(self.runs, self.deep_runs) < 1:
            raise InputError(f"runs, deep_runs: expected at least 1, got {self.runs} and {self.deep_runs}")

    def runs_at(self, depth: int) -> int:
        return self.runs if depth in self.depths else self.deep_runs

    @property
    def all_depths(self) -> tuple[int, ...]:
        return tuple(sorted({*self.depths, *self.deep}))


def run(bench: Bench, settings: InitialSettings) -> Evidence:
    subject = task(bench, settings.data)
    pieces = []
    for depth in settings.all_depths:  # the cheap ones first
        for name in SHOWN:
            seeds = bench.seeds(settings.runs_at(depth))
            pieces.append(bench.part(f"{name}-{depth}", partial(_at_start, bench, subject, name, depth, seeds)))
    about = {"measure": MEASURE, "log_ceiling": LOG_CEILING}
    return evidence(bench.part("", lambda: _joined(pieces).assign_attrs(about)))


def evidence(start: xarray.Dataset) -> dict[str, dict[str, Any]]:
    """start: `log_condition` (architecture, depth, seed), NaN where masked or not measured."""
    logs = {name: start["log_condition"].sel(architecture=name) for name in SHOWN}
    flat = logs["2-shortcut"]
    apart = logs["1-shortcut"] - logs["orthogonal"]
    known = start["depth"].values
    found: dict[str, dict[str, Any]] = {
        "B6": {
            "seeds": start.sizes["seed"],
            "range of log10 cond over depth, 2-shortcut": (flat.max("depth") - flat.min("depth")).values.tolist(),
            "smallest step of mean log10 cond over depth, orthogonal": _smallest_step(logs["orthogonal"]),
            "smallest step of mean log10 cond over depth, Xavier": _smallest_step(logs["xavier"]),
            "values masked": int(start["masked"].sum()),
            **{
                f"mean log10 cond by depth, {name}": values.mean("seed").values.tolist()
                for name, values in logs.items()
            },
            "depths": known.tolist(),
        },
        "B20": {
            "seeds": start.sizes["seed"],
            "largest |log10 cond, 1-shortcut - orthogonal| over depths": abs(apart).max("depth").values.tolist(),
            "|difference of mean log10 cond, 1-shortcut and orthogonal| by depth": abs(
                apart.mean("seed")
            ).values.tolist(),
            "depths compared after training (by B.learning)": 0,  # what that study says takes its place
        },
    }
    if COMPARED in known:
        gap = (logs["xavier"] - logs["orthogonal"]).sel(depth=COMPARED)
        found["B6"]["log10 cond at depth 16, Xavier - orthogonal"] = gap.values.tolist()
    return found


def _smallest_step(logs: xarray.DataArray) -> float:
    """Between neighbouring depths; the mean is over the runs that have both."""
    steps = logs.diff("depth").mean("seed").dropna("depth")
    return float(steps.min()) if steps.size else math.nan


# -- what is measured


def spectrum_numbers(spec: ShortcutSpec, weights: Tensor, moments: Moments) -> dict[str, float]:
    """Of the whole spectrum of the exact Hessian. index: the share of negative eigenvalues, but for rounding noise."""
    at = shortcut_hessian(spec, weights, moments)
    values = torch.linalg.eigvalsh(at.matrix)
    magnitudes = values.abs()
    largest, tenth = float(magnitudes.max()), float(magnitudes.quantile(TENTH))
    return {
        "loss": at.loss,
        "gradient": float(at.gradient.norm()),
        "largest": largest,
        "tenth": tenth,
        "index": float((values < -NOISE * largest).double().mean()),
    }


def log_condition(largest: Any, tenth: Any) -> numpy.ndarray:
    """log10 of largest / tenth; NaN where that is above LOG_CEILING, and hence rounding noise."""
    largest, tenth = numpy.asarray(largest, float), numpy.asarray(tenth, float)
    fine = tenth > NOISE * largest
    return numpy.where(fine, numpy.log10(largest / numpy.where(fine, tenth, 1.0)), numpy.nan)


def _at_start(bench: Bench, subject: Task, name: str, depth: int, seeds: Sequence[int]) -> xarray.Dataset:
    import xarray

    spec, (_, init) = spec_of(name, depth), ARCHITECTURES[name]
    progress = bench.steps(f"Hessians of {name} networks of depth {depth}")
    rows = []
    for done, seed in enumerate(seeds):
        progress(done, len(seeds))
        rows.append(spectrum_numbers(spec, initial_weights(spec, init, seed, device=bench.device), subject.moments))
    columns = {key: numpy.array([row[key] for row in rows]) for key in rows[0]}
    columns["log_condition"] = log_condition(columns["largest"], columns["tenth"])
    columns["masked"] = numpy.isnan(columns["log_condition"]).astype(float)
    dimensions = ("architecture", "depth", "seed")
    return xarray.Dataset(
        {key: (dimensions, values[None, None]) for key, values in columns.items()},
        {"architecture": [name], "depth": [depth], "seed": list(seeds)},
        {"part": "piece", "data": subject.name},
    )


def _joined(pieces: Sequence[xarray.Dataset]) -> xarray.Dataset:
    """NaN where a depth has fewer seeds; architectures in the order in which they came."""
    import xarray

    names = list(dict.fromkeys(str(name) for piece in pieces for name in piece["architecture"].values))
    # As objects: to join texts of different lengths cuts them to that of the first.
    safe = [piece.assign_coords(architecture=piece["architecture"].astype(object)) for piece in pieces]
    joined = xarray.merge(safe, join="outer", compat="no_conflicts", combine_attrs="override")
    return joined.sel(architecture=names).assign_coords(architecture=names)


STUDY = Study(
    PAPER,
    "initial",
    paper_found="Constant in depth for 2-shortcut networks; growing for plain ones, fastest from Xavier's weights.",
    we_expect="The same; 1-shortcut networks begin like orthogonal ones, but do not end with the same loss.",
    presets={
        "smoke": InitialSettings(depths=(4, 16), runs=2, deep=(8,)),
        "quick": InitialSettings(),
        "full": InitialSettings(deep_runs=3),
        "paper": InitialSettings(deep_runs=10),
    },
    cost={
        "smoke": "seconds",
        "quick": "3 minutes on 2 cores, most of it for the one run at depth 96",
        "full": "minutes on one GPU",
        "paper": "a quarter of an hour on one GPU: Hessians of 9,600 weights",
    },
    run=run,
    claims=decided_by("B.initial"),
)
