"""B.initial: figure 4 of paper B, the condition number of the Hessian before training, against depth.

    skipscope study run B.initial --preset quick --out DIR

The paper finds that the Hessian of 2-shortcut networks near zero weights has the same condition number at every depth,
while that of plain networks grows with depth, fastest from Xavier's weights. It takes the 10th percentile of |lambda|
for the smallest one, and so do we. It also says that 1-shortcut networks from zero are like plain ones from orthogonal
weights, which B20 tests before training and after.

We expect all of it but for the end of training. Hessians are exact, from the second moments of all samples, and all
their eigenvalues are computed in float64. Condition numbers above 1e14 are rounding noise: they are masked, and steps
between depths are taken over the runs that are not masked at either, which can only make them smaller.
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
from skipscope.models import Moments, ShortcutSpec, initial_weights, shortcut_hessian
from skipscope.studies.b.subjects import ARCHITECTURES, COMPONENTS, Task, task
from skipscope.studies.bench import Bench
from skipscope.studies.study import Evidence, Study
from skipscope.training.ensemble import grid, member_weights, train_ensemble

if TYPE_CHECKING:
    import xarray

MEASURE = "shortcut_initial"
SHOWN = ("xavier", "orthogonal", "1-shortcut", "2-shortcut")
ALIKE = ("orthogonal", "1-shortcut")  # compared after training too
NOISE = 1e-14  # of the largest |lambda|: smaller ones are rounding errors
TENTH = 0.1  # the quantile of |lambda| that stands for the smallest
COMPARED = 16  # the depth at which Xavier's and orthogonal weights are


@dataclass(frozen=True)
class InitialSettings:
    data: str = "mnist"  # whitened
    depths: tuple[int, ...] = (4, 8, 16, 24, 32)
    runs: int = 10  # seeds at each of these depths
    deep: tuple[int, ...] = (64, 96)
    deep_runs: int = 1
    networks: int = 3  # seeds of those that are trained
    rates: tuple[float, ...] = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
    steps: int = 1000

    def __post_init__(self) -> None:
        if not self.depths or not self.rates or any(depth < 2 or depth % 2 for depth in (*self.depths, *self.deep)):
            raise InputError(f"expected a learning rate and even depths, got {self.rates}, {self.depths}, {self.deep}")
        if min(self.runs, self.deep_runs, self.networks, self.steps) < 1:
            raise InputError("expected runs, deep_runs, networks and steps of at least 1")

    def runs_at(self, depth: int) -> int:
        return self.runs if depth in self.depths else self.deep_runs

    @property
    def all_depths(self) -> tuple[int, ...]:
        return tuple(sorted({*self.depths, *self.deep}))


def run(bench: Bench, settings: InitialSettings) -> Evidence:
    subject = task(bench, settings.data)
    pieces, ends = [], []
    for depth in settings.all_depths:  # the cheap ones first
        for name in SHOWN:
            seeds = bench.seeds(settings.runs_at(depth))
            pieces.append(bench.part(f"{name}-{depth}", partial(_at_start, bench, subject, name, depth, seeds)))
        ends.append(bench.part(f"trained-{depth}", partial(_trained, bench, settings, subject, depth)))
    return evidence(
        bench.part("", lambda: _joined(pieces).assign_attrs(measure=MEASURE)),
        bench.part("trained", lambda: _joined(ends).assign_attrs(measure="shortcut_alike")),
    )


def evidence(start: xarray.Dataset, trained: xarray.Dataset) -> dict[str, dict[str, Any]]:
    """start: `log_condition` (architecture, depth, seed), NaN where masked or not measured. trained: `log_excess`."""
    logs = {name: start["log_condition"].sel(architecture=name) for name in SHOWN}
    flat = logs["2-shortcut"]
    best = at_best_rate(trained)
    apart = abs(best["log_excess"].sel(architecture="1-shortcut") - best["log_excess"].sel(architecture="orthogonal"))
    alike = abs(logs["1-shortcut"] - logs["orthogonal"])
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
            "seeds": trained.sizes["seed"],
            "largest |log10 cond, 1-shortcut - orthogonal| over depths": alike.max("depth").values.tolist(),
            "largest |log10 excess loss, 1-shortcut - orthogonal| over depths": apart.max("depth").values.tolist(),
            "mean |log10 excess loss, 1-shortcut - orthogonal| by depth": apart.mean("seed").values.tolist(),
            "|difference of mean log10 cond, 1-shortcut and orthogonal| by depth": abs(
                (logs["1-shortcut"] - logs["orthogonal"]).mean("seed")
            ).values.tolist(),
            "best learning rates on the edge of their grid": int(best["edge"].sum()),
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


def at_best_rate(trained: xarray.Dataset) -> xarray.Dataset:
    """(architecture, depth, seed) at the rate whose mean loss over seeds is the lowest; `edge`: the first or last."""
    means = trained["excess"].mean("seed").fillna(math.inf)
    place = means.argmin("rate")
    best = trained.isel(rate=place)
    edge = (place == 0) | (place == trained.sizes["rate"] - 1)
    return best.assign(log_excess=numpy.log10(best["excess"]), edge=edge)


# -- what is measured


def curvature(spec: ShortcutSpec, weights: Tensor, moments: Moments) -> dict[str, float]:
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
    """log10 of largest / tenth; NaN where that is above 1 / NOISE, and hence rounding noise."""
    largest, tenth = numpy.asarray(largest, float), numpy.asarray(tenth, float)
    fine = tenth > NOISE * largest
    return numpy.where(fine, numpy.log10(largest / numpy.where(fine, tenth, 1.0)), numpy.nan)


def spec_of(name: str, depth: int) -> tuple[ShortcutSpec, str]:
    """And the initialisation."""
    n, init = ARCHITECTURES[name]
    return ShortcutSpec(depth, COMPONENTS, n), init


def _at_start(bench: Bench, subject: Task, name: str, depth: int, seeds: Sequence[int]) -> xarray.Dataset:
    import xarray

    spec, init = spec_of(name, depth)
    progress = bench.steps(f"Hessians of {name} networks of depth {depth}")
    rows = []
    for done, seed in enumerate(seeds):
        progress(done, len(seeds))
        rows.append(curvature(spec, initial_weights(spec, init, seed, device=bench.device), subject.moments))
    columns = {key: numpy.array([row[key] for row in rows]) for key in rows[0]}
    columns["log_condition"] = log_condition(columns["largest"], columns["tenth"])
    columns["masked"] = numpy.isnan(columns["log_condition"]).astype(float)
    dimensions = ("architecture", "depth", "seed")
    return xarray.Dataset(
        {key: (dimensions, values[None, None]) for key, values in columns.items()},
        {"architecture": [name], "depth": [depth], "seed": list(seeds)},
        {"part": "piece", "data": subject.name},
    )


def _trained(bench: Bench, settings: InitialSettings, subject: Task, depth: int) -> xarray.Dataset:
    """Losses above the best of a linear map, at the end; infinite where a network diverged."""
    import xarray

    seeds = bench.seeds(settings.networks)
    found = []
    for done, name in enumerate(ALIKE):
        bench.steps(f"training networks of depth {depth}")(done, len(ALIKE))
        spec, init = spec_of(name, depth)
        members = grid([init], seeds, settings.rates)
        weights = member_weights(spec, members, device=bench.device)
        rates = [member.rate for member in members]
        ended = train_ensemble(spec, weights, subject.moments, rates, settings.steps, record=())
        found.append((ended.final_losses - subject.moments.lowest_loss).reshape(len(seeds), -1).numpy())
    return xarray.Dataset(
        {"excess": (("architecture", "depth", "seed", "rate"), numpy.stack(found)[:, None])},
        {"architecture": list(ALIKE), "depth": [depth], "seed": seeds, "rate": list(settings.rates)},
        {"part": "piece", "data": subject.name, "steps": settings.steps},
    )


def _joined(pieces: Sequence[xarray.Dataset]) -> xarray.Dataset:
    """NaN where a depth has fewer seeds; architectures in the order in which they came."""
    import xarray

    names = list(dict.fromkeys(str(name) for piece in pieces for name in piece["architecture"].values))
    # As objects: to join texts of different lengths cuts them to that of the first.
    safe = [piece.assign_coords(architecture=piece["architecture"].astype(object)) for piece in pieces]
    joined = xarray.merge(safe, join="outer", compat="no_conflicts", combine_attrs="override")
    return joined.sel(architecture=names).assign_coords(architecture=names)


INITIAL = Study(
    id="B.initial",
    title="Conditioning of the Hessian at initialisation (figure 4)",
    paper_found="Constant in depth for 2-shortcut networks; growing for plain ones, fastest from Xavier's weights.",
    we_expect="The same; 1-shortcut networks begin like orthogonal ones, but do not end with the same loss.",
    presets={
        "smoke": InitialSettings(depths=(4, 16), runs=2, deep=(8,), networks=2, rates=(0.1, 0.3), steps=20),
        "quick": InitialSettings(),
        "full": InitialSettings(deep_runs=3, networks=10),
        "paper": InitialSettings(deep_runs=10, networks=10),
    },
    cost={
        "smoke": "seconds",
        "quick": "6 minutes on 2 cores, most of it for the one run at depth 96",
        "full": "minutes on one GPU",
        "paper": "a quarter of an hour on one GPU: Hessians of 9,600 weights",
    },
    run=run,
)
