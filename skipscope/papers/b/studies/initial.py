"""B.initial: figure 4 of paper B, the condition number of the Hessian before training, against depth.

    skipscope study run B.initial --preset quick --out DIR

The paper finds that the Hessian of 2-shortcut networks near zero weights has the same condition number at every depth,
while that of plain networks grows with depth, fastest from Xavier's weights. It takes the 10th percentile of |lambda|
for the smallest one, and so do we. It also says that 1-shortcut networks from zero are like plain ones from orthogonal
weights: B20 tests that before training here, and after it by the losses of B.learning. It takes both studies, in one
run of the whole paper; this one alone leaves it open.

We expect all of it except for the end of training. Hessians are exact, from the second moments of all samples, and all
their eigenvalues are computed in float64. Condition numbers above 10^LOG_CEILING are rounding noise: they are masked,
and steps of a network between depths are taken where it is not masked at either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import numpy
import xarray

from skipscope.constraints import Constrained, at_least, each, multiple_of, not_empty
from skipscope.papers.b import PAPER
from skipscope.papers.b.alike import apart, between_seeds, farthest
from skipscope.papers.b.learning_rates import CHOSEN_ON_OTHER_SEEDS, NONE_ON_EDGE
from skipscope.papers.b.networks import initial_weights
from skipscope.papers.b.networks.hessian import LOG_CEILING, log_condition, spectrum_numbers
from skipscope.papers.b.subjects import ARCHITECTURES, MNIST, WITH_HESSIANS, WhitenedData, subject_on, whitened_data
from skipscope.papers.kit import Bench, Claim, Evidence, Measured, Part, Quantity, Study
from skipscope.runs.sweep import Task

COMPARED_DEPTH = 16  # at which Xavier's and orthogonal weights are compared
FIGURE7_DEPTHS = (4, 6, 12, 16, 24, 32, 48, 96)
BEFORE_TRAINING = f"{MNIST}, before training"  # the subject of what B.initial says for B20


# -- claims

RANGE = {name: Quantity(f"range of log10 cond over depth, {name}") for name in ("2-shortcut", "orthogonal")}
SMALLEST_STEP = {
    name: Quantity(f"smallest step of log10 cond from a depth to the next, {title}")
    for name, title in {"orthogonal": "orthogonal", "xavier": "Xavier"}.items()
}
XAVIER_GAP = Quantity(f"log10 cond at depth {COMPARED_DEPTH}, Xavier - orthogonal")
VALUES_MASKED = Quantity("values masked")
MEAN_BY_DEPTH = {name: Quantity(f"mean log10 cond by depth, {name}") for name in WITH_HESSIANS}
DEPTHS = Quantity("depths")
B6 = Claim(
    "B6",
    "At initialisation the condition number of 2-shortcut networks is constant in depth; that of plain networks "
    "grows, fastest with Xavier weights.",
    "log10 cond at initialisation against depth, 10 runs (figure 4)",
    parts=(
        Part("constant with 2-shortcuts", (RANGE["2-shortcut"].at_most(0.05),), (RANGE["orthogonal"].at_least(0.5),)),
        Part("plain networks grow", tuple(step.above(0.0) for step in SMALLEST_STEP.values())),
        Part("fastest with Xavier weights", (XAVIER_GAP.at_least(1.0),)),
    ),
    subjects={MNIST: 10},
    note=f"Values above 1e{LOG_CEILING} are float64 noise and masked; steps to or from them do not count.",
)

CONDITIONS_APART = Quantity("largest |difference of mean log10 cond, 1-shortcut and orthogonal| over depths")
CONDITION_FLOOR = Quantity("the same between orthogonal networks of different seeds")
MEAN_CONDITIONS_APART = Quantity("|difference of mean log10 cond, 1-shortcut and orthogonal| by depth")
LOSSES_APART = {
    depth: Quantity(f"|difference of mean log10 excess loss, 1-shortcut and orthogonal|, depth {depth}")
    for depth in FIGURE7_DEPTHS
}
LOSS_FLOOR = {
    depth: Quantity(f"that of orthogonal networks of different seeds, depth {depth}") for depth in FIGURE7_DEPTHS
}
CURVES_APART = {depth: Quantity(f"the largest of them during training, depth {depth}") for depth in FIGURE7_DEPTHS}
CURVE_FLOOR = {
    depth: Quantity(f"that during training of orthogonal networks of different seeds, depth {depth}")
    for depth in FIGURE7_DEPTHS
}
B20 = Claim(
    "B20",
    "1-shortcut networks from zero train like plain ones from orthogonal weights.",
    "mean log10 cond at initialisation, and mean log10 excess loss at the best learning rate after training and during "
    "it, at every depth of figures 4 and 7",
    parts=(
        Part(
            "condition numbers at the start",
            (CONDITIONS_APART.at_most(0.05, floor=CONDITION_FLOOR),),
            subject=BEFORE_TRAINING,
        ),
        Part(
            "final losses",
            tuple(LOSSES_APART[depth].at_most(0.3, floor=LOSS_FLOOR[depth]) for depth in FIGURE7_DEPTHS),
            (NONE_ON_EDGE,),
        ),
        Part(
            "losses along training",
            tuple(CURVES_APART[depth].at_most(0.3, floor=CURVE_FLOOR[depth]) for depth in FIGURE7_DEPTHS),
            (NONE_ON_EDGE,),
        ),
    ),
    subjects={MNIST: 10, BEFORE_TRAINING: 10},
    note=(
        "The condition numbers are those of B.initial, the losses those of B.learning: both have to run, as they "
        "do in a run of the whole paper. The floors are what orthogonal networks of different seeds differ by: mean "
        f"over 64 random halves of them. {CHOSEN_ON_OTHER_SEEDS}"
    ),
    cost="skipscope study run B.initial,B.learning --preset quick (20 minutes on 2 cores), with MNIST",
)


@dataclass(frozen=True)
class InitialSettings(Constrained):
    data: str = "mnist"  # whitened
    depths: Annotated[tuple[int, ...], not_empty, each(at_least(2), multiple_of(2))] = (4, 8, 16, 24, 32)
    runs: Annotated[int, at_least(1)] = 10  # seeds at each of these depths
    deep: Annotated[tuple[int, ...], each(at_least(2), multiple_of(2))] = (64, 96)
    deep_runs: Annotated[int, at_least(1)] = 1

    def runs_at(self, depth: int) -> int:
        return self.runs if depth in self.depths else self.deep_runs

    @property
    def all_depths(self) -> tuple[int, ...]:
        return tuple(sorted({*self.depths, *self.deep}))


def run(bench: Bench, settings: InitialSettings) -> Evidence:
    white = whitened_data(bench, settings.data)
    pieces = bench.sweep(
        Task(f"{name}-{depth}", partial(_at_start, bench, white, name, depth, bench.seeds(settings.runs_at(depth))))
        for depth in settings.all_depths  # the cheap ones first
        for name in WITH_HESSIANS
    )
    about = {"measure": "shortcut_initial", "log_ceiling": LOG_CEILING}
    return evidence(bench.part("", lambda: _joined(pieces).assign_attrs(about)))


def evidence(start: xarray.Dataset) -> Evidence:
    """start: `log_condition` (architecture, depth, seed), NaN where masked or not measured."""
    logs = {name: start["log_condition"].sel(architecture=name) for name in WITH_HESSIANS}
    known = start["depth"].values
    growth: dict[Quantity, Any] = {
        **{RANGE[name]: (logs[name].max("depth") - logs[name].min("depth")).values.tolist() for name in RANGE},
        **{step: logs[name].diff("depth").min("depth").values.tolist() for name, step in SMALLEST_STEP.items()},
        VALUES_MASKED: int(start["masked"].sum()),
        **{mean: logs[name].mean("seed").values.tolist() for name, mean in MEAN_BY_DEPTH.items()},
        DEPTHS: known.tolist(),
    }
    if COMPARED_DEPTH in known:
        growth[XAVIER_GAP] = (logs["xavier"] - logs["orthogonal"]).sel(depth=COMPARED_DEPTH).values.tolist()
    subject, seeds = subject_on(str(start.attrs["data"])), start["seed"].values.tolist()
    before = f"{subject}{BEFORE_TRAINING.removeprefix(MNIST)}"
    return {
        B6: [Measured(growth, subject, seeds)],
        B20: [Measured(_alike(logs["1-shortcut"], logs["orthogonal"]), before, seeds)],
    }


def _alike(one: xarray.DataArray, plain: xarray.DataArray) -> dict[Quantity, Any]:
    """At the depths that all runs have; at others there are too few to know what seeds do."""
    apart_by_depth = abs(one.mean("seed") - plain.mean("seed"))
    whole = (one.notnull() & plain.notnull()).all("seed").values
    ours, theirs = (logs.transpose("seed", "depth").values[:, whole] for logs in (one, plain))
    found: dict[Quantity, Any] = {MEAN_CONDITIONS_APART: apart_by_depth.values.tolist()}
    if whole.any():
        place = farthest(ours, theirs)
        cells = [side[:, depth] for side in (ours, theirs) for depth in range(ours.shape[1]) if depth != place]
        found[CONDITIONS_APART] = apart(ours[:, place], theirs[:, place], cells)
        found[CONDITION_FLOOR] = between_seeds(theirs)
    return found


# -- what is measured


def _at_start(bench: Bench, white: WhitenedData, name: str, depth: int, seeds: Sequence[int]) -> xarray.Dataset:
    spec, init = ARCHITECTURES[name].spec(depth), ARCHITECTURES[name].init
    rows = []
    for seed in bench.each(f"Hessians of {name} networks of depth {depth}", seeds):
        rows.append(spectrum_numbers(spec, initial_weights(spec, init, seed, device=bench.device), white.moments))
    columns = {key: numpy.array([row[key] for row in rows]) for key in rows[0]}
    columns["log_condition"] = log_condition(columns["largest"], columns["tenth"])
    columns["masked"] = numpy.isnan(columns["log_condition"]).astype(float)
    dimensions = ("architecture", "depth", "seed")
    return xarray.Dataset(
        {key: (dimensions, values[None, None]) for key, values in columns.items()},
        {"architecture": [name], "depth": [depth], "seed": list(seeds)},
        {"part": "piece", "data": white.name},
    )


def _joined(pieces: Sequence[xarray.Dataset]) -> xarray.Dataset:
    """NaN where a depth has fewer seeds; architectures in the order in which they came."""
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
    claims=(B6, B20),
)
