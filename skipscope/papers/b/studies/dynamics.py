"""B.dynamics: figures 5 and 6 of paper B, the Hessian on the way from the first weights to the optimum.

    skipscope study run B.dynamics --preset quick --out DIR

The paper trains networks of depth 16 by gradient descent on all samples and looks at the Hessian as the loss falls. It
finds that 2-shortcut networks are better conditioned at every loss, though orthogonal ones end up alike; that they meet
points of lower index (share of negative eigenvalues); and that their index drops where their gradient peaks.

We expect it at large losses. At the optimum itself the Hessian has rank 100 at most, whatever the network: all
condition numbers diverge on the way there. Hence "the end" is the same distance from the optimum for all, and networks
are compared at five such distances, those that both of a pair pass: Xavier's begin below the largest ones.

The learning rate is the best of other seeds after the paper's 1000 steps. Networks jump at it, 2-shortcut ones to a
tenth of their first loss within ten steps; at the preset full a tenth of the rate is measured too, and stands beside.

For the index, every run is interpolated linearly on a grid of losses that all 2-shortcut and orthogonal runs pass;
magnitudes by their logarithms. Xavier's begin and end where they do, and count where they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import numpy
import xarray

from skipscope.constraints import Constrained, above, at_least, each, multiple_of, not_empty
from skipscope.papers.b import PAPER
from skipscope.papers.b.learning_rates import CHOSEN_ON_OTHER_SEEDS, NONE_ON_EDGE, ON_EDGE
from skipscope.papers.b.measurements.hessians_in_training import (
    CONVERGED_SHARE,
    EXCESSES,
    Descents,
    at_excesses,
    calibrated,
    chosen,
    followed,
    padded,
    steps_to,
)
from skipscope.papers.b.networks.hessian import log_condition
from skipscope.papers.b.subjects import LOWEST_LOSS, MNIST, WITH_HESSIANS, WhitenedData, subject_on, whitened_data
from skipscope.papers.kit import Bench, Claim, Evidence, Measured, Part, Quantity, Study
from skipscope.runs.sweep import Task

INTERPOLATED = ("log_largest", "log_tenth", "log_condition", "index")
SPANNING_GRID = ("orthogonal", "2-shortcut")  # whose losses the grid spans
COMPARED_WITH = ("xavier", "orthogonal")  # those that the paper compares 2-shortcut networks with
FOLLOWED = "2-shortcut"  # step by step
LARGE_EXCESS = 1.0
HESSIANS = 100  # on the way of a run, that it takes to judge its index
FALL_SHARES = (0.9, 0.1)  # of the first excess loss, between which it falls
FALL = "epochs from 90 % to 10 % of the first excess loss"


# -- claims

GAP_AT_LARGE_LOSSES = Quantity("largest log10 cond, 2-shortcut - others, at excess losses 3 and 1")
GAP = Quantity("largest log10 cond, 2-shortcut - others, at every excess loss")
GAP_AT_END = Quantity(f"|log10 cond, 2-shortcut - orthogonal| at an excess loss of {EXCESSES[-1]:g}")
END_FLOOR = Quantity("that of orthogonal networks of different seeds")
GAP_TO = {name: Quantity(f"largest log10 cond, 2-shortcut - {name}") for name in WITH_HESSIANS if name != "2-shortcut"}
MEAN_GAP = Quantity("mean log10 cond by excess loss, 2-shortcut - orthogonal")
NOT_COMPARED = Quantity("pairs that are not compared, since one does not pass the excess loss")
LEARNING_RATE = {name: Quantity(f"learning rate, {name}") for name in WITH_HESSIANS}
B7 = Claim(
    "B7",
    "2-shortcut networks are better conditioned at every loss on the way; orthogonal ones end up alike.",
    "log10 cond at excess losses of 3, 1, 0.1, 0.01 and 0.001, depth 16 (figure 5)",
    parts=(
        Part("better at large losses", (GAP_AT_LARGE_LOSSES.below(0.0),), (NONE_ON_EDGE,)),
        Part("better at every loss", (GAP.below(0.0),), (NONE_ON_EDGE,)),
        Part("alike in the end", (GAP_AT_END.at_most(0.5, floor=END_FLOOR),), (NONE_ON_EDGE,)),
    ),
    subjects={MNIST: 10},
    note=(
        "A pair is compared at the losses that all runs of both pass. A 2-shortcut run whose value is masked at a loss "
        f"counts as infinitely badly conditioned there. {CHOSEN_ON_OTHER_SEEDS}"
    ),
)

INDEX_GAP = Quantity("largest index, 2-shortcut - orthogonal, on the loss grid")
INDEX_GAP_LOSS = Quantity("loss where it is largest")
LOWER_INDEX_SHARE = Quantity("share of losses with a lower index", "share")
B8 = Claim(
    "B8",
    "2-shortcut networks meet points of lower index on their way.",
    "share of negative eigenvalues on a grid of losses, depth 16 (figure 6, left)",
    criteria=(INDEX_GAP.below(0.0),),
    subjects={MNIST: 20},
    note=f"It takes {HESSIANS} Hessians on the way of every run. {CHOSEN_ON_OTHER_SEEDS}",
)

DROP_FROM_PEAK = Quantity("|epoch of index drop - of gradient peak| / epochs to convergence")
DROP_FROM_PEAK_IN_FALL = Quantity(f"|epoch of index drop - of gradient peak| / {FALL}")
DROP_EPOCH = Quantity("epoch of the steepest drop of the index")
PEAK_EPOCH = Quantity("epoch of the largest gradient")
EPOCHS_TO_CONVERGENCE = Quantity("epochs to convergence")
EPOCHS_OF_FALL = Quantity(FALL)
B9 = Claim(
    "B9",
    "The index drops where the gradient peaks.",
    "epoch of the steepest drop of the index against epoch of the largest gradient (figure 6, right)",
    criteria=(DROP_FROM_PEAK.at_most(0.1),),
    subjects={MNIST: 20},
    note=(
        "Convergence is to 1 % of the first excess loss, which takes long, so that the criterion is lax: the same "
        "distance is also given as a share of the epochs from 90 % to 10 % of the first excess loss."
    ),
)


@dataclass(frozen=True)
class DynamicsSettings(Constrained):
    data: str = "mnist"  # whitened
    depth: Annotated[int, at_least(2), multiple_of(2)] = 16
    runs: Annotated[int, at_least(1)] = 10  # seeds that are judged
    calibration: Annotated[int, at_least(1)] = 10  # seeds by which the learning rate is chosen
    calibration_steps: Annotated[int, at_least(1)] = 1000
    per_decade: Annotated[int, at_least(1)] = 4  # learning rates
    shares: Annotated[tuple[float, ...], not_empty, each(above(0))] = (
        1.0,
    )  # of the best learning rate; the first decides
    snapshots: Annotated[int, at_least(3)] = 5  # Hessians on the way of a run, beside those at given losses
    levels: Annotated[int, at_least(3)] = 20  # losses of the grid
    epochs: Annotated[int, at_least(3)] = 12  # Hessians of a 2-shortcut run, evenly spaced in steps
    steps: Annotated[int, at_least(1)] = 5000


def run(bench: Bench, settings: DynamicsSettings) -> Evidence:
    white = whitened_data(bench, settings.data)
    rates = bench.part("rates", partial(_rates, bench, white, settings))
    found: dict[Claim, list[Measured]] = {B7: [], B8: [], B9: []}
    for share in settings.shares:
        ending = "" if share == settings.shares[0] else f"-{share:g}"
        tasks = [
            Task(
                f"{name}{ending}",
                partial(
                    followed,
                    Descents(bench, white, name, settings.depth, tuple(bench.seeds(settings.runs))),
                    share * float(rates["rate"].sel(architecture=name)),
                    settings.steps,
                    snapshots=settings.snapshots,
                    even=settings.epochs if name == FOLLOWED else 0,
                    on_edge=bool(rates["on_edge"].sel(architecture=name)),
                ),
            )
            for name in WITH_HESSIANS
        ]
        ways = dict(zip(WITH_HESSIANS, bench.sweep(tasks), strict=True))
        by_loss = bench.part(ending.removeprefix("-"), partial(on_grid, ways, settings.levels, share))
        epochs = bench.part(f"epochs{ending}", partial(by_epoch, ways[FOLLOWED]))
        for claim, measured in evidence(by_loss, epochs).items():
            found[claim].append(measured)
    return found


def _rates(bench: Bench, white: WhitenedData, settings: DynamicsSettings) -> xarray.Dataset:
    """The best learning rate of each kind of network (architecture), and whether it is on the edge of its grid."""
    seeds = tuple(bench.calibration_seeds(settings.calibration))
    each = [
        calibrated(Descents(bench, white, name, settings.depth, seeds), settings.calibration_steps, settings.per_decade)
        for name in WITH_HESSIANS
    ]
    return xarray.Dataset(
        {
            "rate": ("architecture", [rate for rate, _ in each]),
            "on_edge": ("architecture", [int(best.on_edge) for _, best in each]),
        },
        {"architecture": list(WITH_HESSIANS)},
        {"part": "piece"},
    )


def evidence(by_loss: xarray.Dataset, epochs: xarray.Dataset) -> dict[Claim, Measured]:
    """One value per run; a run is compared with those of the same seed."""
    index = by_loss["index"].sel(architecture="2-shortcut") - by_loss["index"].sel(architecture="orthogonal")
    apart = abs(epochs["drop"] - epochs["peak"])
    share = float(by_loss.attrs["share"])
    subject = subject_on(str(by_loss.attrs["data"])) + ("" if share == 1 else f", {share:g} of the rate")
    seeds = by_loss["seed"].values.tolist()
    of_index = {
        INDEX_GAP: index.max("level").values.tolist(),
        INDEX_GAP_LOSS: index.idxmax("level").values.tolist(),
        LOWER_INDEX_SHARE: (index < 0).mean("level").values.tolist(),
    }
    of_epochs = {
        DROP_FROM_PEAK: (apart / epochs["converged"]).values.tolist(),
        DROP_FROM_PEAK_IN_FALL: (apart / epochs["fall"]).values.tolist(),
        DROP_EPOCH: epochs["drop"].values.tolist(),
        PEAK_EPOCH: epochs["peak"].values.tolist(),
        EPOCHS_TO_CONVERGENCE: epochs["converged"].values.tolist(),
        EPOCHS_OF_FALL: epochs["fall"].values.tolist(),
    }
    return {
        B7: Measured(_conditions(by_loss), subject, seeds),
        B8: Measured(of_index, subject, seeds, unmet=_too_few(by_loss.attrs["snapshots"])),
        B9: Measured(of_epochs, subject, seeds, unmet=_too_few(epochs.attrs["even"])),
    }


def _too_few(hessians: int) -> str:
    return f"{hessians} of the {HESSIANS} Hessians on the way that it takes" if hessians < HESSIANS else ""


def _conditions(by_loss: xarray.Dataset) -> dict[Quantity, Any]:
    """At the excess losses that all runs of both kinds pass."""
    logs, passed = by_loss["at_excess"], by_loss["passed"].astype(bool).all("seed")
    # Where a run passes, what is not there was too large to measure.
    ours = logs.sel(architecture="2-shortcut").fillna(numpy.inf)
    both = {name: (passed.sel(architecture="2-shortcut") & passed.sel(architecture=name)).values for name in GAP_TO}
    gaps = {name: (ours - logs.sel(architecture=name)).isel(excess=both[name]) for name in GAP_TO}
    large = {name: gap.sel(excess=gap["excess"] >= LARGE_EXCESS) for name, gap in gaps.items()}
    end = gaps["orthogonal"].sel(excess=gaps["orthogonal"]["excess"] == EXCESSES[-1])
    plain = logs.sel(architecture="orthogonal").sel(excess=EXCESSES[-1]).values
    values: dict[Quantity, Any] = {
        GAP_AT_LARGE_LOSSES: _largest([large[name] for name in COMPARED_WITH]),
        GAP: _largest([gaps[name] for name in COMPARED_WITH]),
        **{gap_to: _largest([gaps[name]]) for name, gap_to in GAP_TO.items()},
        MEAN_GAP: gaps["orthogonal"].mean("seed").values.tolist(),
        NOT_COMPARED: [f"{name} at {EXCESSES[place]:g}" for name in both for place in numpy.flatnonzero(~both[name])],
        LOWEST_LOSS: float(by_loss.attrs["lowest_loss"]),
        ON_EDGE: int(by_loss["on_edge"].sum()),
        **{rate: float(by_loss["rate"].sel(architecture=name)) for name, rate in LEARNING_RATE.items()},
    }
    if end.size:
        values[GAP_AT_END] = abs(end).isel(excess=0).values.tolist()
        values[END_FLOOR] = float(numpy.mean(abs(plain - numpy.roll(plain, 1))))
    return {quantity: value for quantity, value in values.items() if value is not None}


def _largest(gaps: Sequence[xarray.DataArray]) -> list[float] | None:
    """Of each run, over networks and losses; None where nothing is compared."""
    each = [gap.max("excess").values for gap in gaps if gap.sizes["excess"]]
    return [float(value) for value in numpy.fmax.reduce(each)] if each else None


def steepest_drop(steps: numpy.ndarray, index: numpy.ndarray) -> numpy.ndarray:
    """Of each run (a row): the middle of the two neighbouring steps between which the index falls fastest."""
    slopes = numpy.diff(index, axis=1) / numpy.diff(steps, axis=1)
    middles = (steps[:, 1:] + steps[:, :-1]) / 2
    return middles[range(len(steps)), numpy.nanargmin(slopes, axis=1)]


# -- the grid of losses


def interpolated(losses: numpy.ndarray, values: numpy.ndarray, levels: numpy.ndarray) -> numpy.ndarray:
    """values at losses that fall, linearly interpolated at the levels; NaN where a run has no such loss."""
    return numpy.interp(levels, losses[::-1], values[::-1], left=numpy.nan, right=numpy.nan)


def on_grid(ways: Mapping[str, xarray.Dataset], levels: int, share: float) -> xarray.Dataset:
    """INTERPOLATED (architecture, seed, level), at falling losses; log10 cond at EXCESSES, too.

    share: of the best learning rate at which the networks were trained.
    """
    first = next(iter(ways.values()))
    lowest = float(first.attrs["lowest_loss"])
    spanning = [ways[name]["loss"] for name in SPANNING_GRID]
    top = min(float(loss.max("snapshot").min()) for loss in spanning)
    bottom = max(float(loss.min("snapshot").max()) for loss in spanning)
    spaced = lowest + numpy.geomspace(top - lowest, bottom - lowest, levels)
    spaced[0], spaced[-1] = top, bottom  # to the last bit
    found = {key: numpy.full((len(ways), first.sizes["seed"], levels), numpy.nan) for key in INTERPOLATED}
    at = numpy.full((len(ways), first.sizes["seed"], len(EXCESSES)), numpy.nan)
    passed = numpy.zeros_like(at)
    for place, way in enumerate(ways.values()):
        for member in range(way.sizes["seed"]):
            run = way.isel(seed=member).dropna("snapshot", subset=["step"])
            logs = log_condition(run["largest"].values, run["tenth"].values)
            at[place, member], passed[place, member] = at_excesses(run, logs)
            one = chosen(way.isel(seed=member), "falling")
            for key, values in _quantities(one).items():
                found[key][place, member] = interpolated(one["loss"].values, values, spaced)
    return xarray.Dataset(
        {
            **{key: (("architecture", "seed", "level"), values) for key, values in found.items()},
            "at_excess": (("architecture", "seed", "excess"), at),
            "passed": (("architecture", "seed", "excess"), passed),
            "rate": ("architecture", [float(way.attrs["rate"]) for way in ways.values()]),
            "on_edge": ("architecture", [int(way.attrs["on_edge"]) for way in ways.values()]),
        },
        {"architecture": list(ways), "seed": first["seed"].values, "level": spaced, "excess": list(EXCESSES)},
        {
            "measure": "shortcut_dynamics",
            "data": first.attrs["data"],
            "depth": first.attrs["depth"],
            "steps": first.attrs["steps"],
            "snapshots": first.attrs["snapshots"],
            "share": share,
            "lowest_loss": lowest,
        },
    )


def _quantities(one: xarray.Dataset) -> dict[str, numpy.ndarray]:
    largest, tenth = one["largest"].values, one["tenth"].values
    condition = log_condition(largest, tenth)
    return {
        "log_largest": numpy.log10(largest),
        "log_tenth": numpy.log10(largest) - condition,  # masked alike
        "log_condition": condition,
        "index": one["index"].values,
    }


# -- step by step


def by_epoch(way: xarray.Dataset) -> xarray.Dataset:
    """Hessians at even steps (seed, epoch), NaN after a run's last, and where index and gradient turn."""
    runs = [chosen(way.isel(seed=member), "even") for member in range(way.sizes["seed"])]
    most = max(one.sizes["snapshot"] for one in runs)
    found = {
        key: numpy.stack([padded(one[key].values, most) for one in runs])
        for key in ("step", "loss", "gradient", "largest", "tenth", "index")
    }
    losses, gradients = way["every_loss"].values, way["gradient_norm"].values
    lowest_loss = float(way.attrs["lowest_loss"])
    converged = steps_to(losses, lowest_loss, CONVERGED_SHARE)
    first, last = (steps_to(losses, lowest_loss, share) for share in FALL_SHARES)
    return xarray.Dataset(
        {
            **{key: (("seed", "epoch"), values) for key, values in found.items()},
            "every_loss": (("seed", "every"), losses),
            "gradient_norm": (("seed", "every"), gradients),
            "drop": ("seed", steepest_drop(found["step"], found["index"])),
            "peak": ("seed", gradients.argmax(1).astype(float)),
            "converged": ("seed", converged),
            "fall": ("seed", numpy.maximum(last - first, 1.0)),  # one step where it is within one
        },
        {"seed": way["seed"].values},
        {"measure": "shortcut_epochs", **{key: way.attrs[key] for key in ("data", "depth", "rate", "even")}},
    )


STUDY = Study(
    PAPER,
    "dynamics",
    paper_found="2-shortcut networks are better conditioned and of lower index at every loss; orthogonal end up alike.",
    we_expect="The same at large losses. All condition numbers diverge towards the optimum, where the rank is 100.",
    presets={
        "smoke": DynamicsSettings(
            depth=4,
            runs=2,
            calibration=2,
            calibration_steps=50,
            per_decade=2,
            snapshots=5,
            levels=6,
            epochs=6,
            steps=200,
        ),
        "quick": DynamicsSettings(),
        "full": DynamicsSettings(runs=20, shares=(1.0, 0.1), snapshots=100, levels=100, epochs=100, steps=20_000),
        "paper": DynamicsSettings(runs=20, shares=(1.0, 0.1), snapshots=100, levels=100, epochs=150, steps=20_000),
    },
    cost={
        "smoke": "seconds",
        "quick": "about 5 minutes on 2 cores",
        "full": "about 12 minutes on 13 cores, which decompose as many Hessians at a time",
        "paper": "as full, with half as many Hessians more at even steps",
    },
    run=run,
    claims=(B7, B8, B9),
)
