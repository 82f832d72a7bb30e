"""B.dynamics: figures 5 and 6 of paper B, the Hessian on the way from the first weights to the optimum.

    skipscope study run B.dynamics --preset quick --out DIR

The paper trains networks of depth 16 by gradient descent on all samples and looks at the Hessian as the loss falls. It
finds that 2-shortcut networks are better conditioned at every loss, though orthogonal ones end up alike; that they meet
points of lower index (share of negative eigenvalues); and that their index drops where their gradient peaks.

We expect it at large losses. At the optimum itself the Hessian has rank 100 at most, whatever the network: all
condition numbers diverge on the way there, and how alike they are depends on how near the end is.

Each kind of network is trained twice: at every learning rate of a short list for its losses, and at the rate with the
lowest mean loss at the end for its Hessians. That rate is chosen by the runs that are then compared, as in the paper.
The list ends where steps are still small: most networks would take ten times the rate, but jump from the first loss to
a tenth of it, and 2-shortcut networks be there after ten steps. Hence also more steps than the paper's 1000. This
matters: at ten times the rates and 1000 steps, which we tried first, one 2-shortcut run of three had the higher index
at one loss near the optimum, so that B8 was inconclusive.

Hessians are taken where a run first falls below losses that are evenly spaced in the logarithm of the excess over the
optimum, and every run is interpolated linearly on a grid of losses: the index as it is, magnitudes by their logarithms.
The grid has the losses that all 2-shortcut and orthogonal runs pass; Xavier's begin and end where they do, and count
where they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy

from skipscope.errors import InputError
from skipscope.papers.b import PAPER
from skipscope.papers.b.claims import decided_by
from skipscope.papers.b.networks.ensemble import Ensemble, grid, member_weights, train_ensemble
from skipscope.papers.b.studies.initial import log_condition, spectrum_numbers
from skipscope.papers.b.subjects import ARCHITECTURES, NOISE, Task, lowest, spec_of, task
from skipscope.papers.kit.bench import Bench
from skipscope.papers.kit.study import Evidence, Study

if TYPE_CHECKING:
    import xarray

MEASURE = "shortcut_dynamics"
CHOSEN = (
    "the learning rates and the number of steps of B.dynamics were chosen after a look at the results: at ten times "
    "the rates and 1000 steps B8 was inconclusive"
)
QUANTITIES = ("log_largest", "log_tenth", "log_condition", "index")
SHOWN = ("xavier", "orthogonal", "1-shortcut", "2-shortcut")
SPANNING = ("orthogonal", "2-shortcut")  # whose losses the grid spans
OTHERS = ("xavier", "orthogonal")  # those that the paper compares 2-shortcut networks with
FOLLOWED = "2-shortcut"  # step by step
LARGE_LOSS = 1.0
CONVERGED = 0.01  # of the first excess loss
FALL = (0.9, 0.1)  # of the first excess loss, between which it falls
BEYOND = 1.3  # times the steps to convergence: as far as the index is followed step by step


@dataclass(frozen=True)
class DynamicsSettings:
    data: str = "mnist"  # whitened
    depth: int = 16
    runs: int = 5  # seeds
    snapshots: int = 15  # Hessians on the way of a run
    levels: int = 20  # losses of the grid
    epochs: int = 24  # Hessians of a 2-shortcut run, evenly spaced in steps
    rates: tuple[float, ...] = (0.001, 0.003, 0.01)
    steps: int = 5000

    def __post_init__(self) -> None:
        if self.depth < 2 or self.depth % 2:
            raise InputError(f"depth: expected an even number, got {self.depth}")
        if not self.rates or min(self.rates) <= 0:
            raise InputError(f"rates: expected learning rates above 0, got {self.rates}")
        for key, least in {"snapshots": 3, "levels": 3, "epochs": 3, "runs": 1, "steps": 1}.items():
            if getattr(self, key) < least:
                raise InputError(f"{key}: expected at least {least}, got {getattr(self, key)}")


def run(bench: Bench, settings: DynamicsSettings) -> Evidence:
    subject = task(bench, settings.data)
    bench.note(CHOSEN)
    ways = {name: bench.part(name, partial(_way, bench, settings, subject, name)) for name in SHOWN}
    return evidence(
        bench.part("", lambda: on_grid(ways, settings.levels)),
        bench.part("epochs", lambda: by_epoch(ways[FOLLOWED])),
    )


def evidence(by_loss: xarray.Dataset, epochs: xarray.Dataset) -> dict[str, dict[str, Any]]:
    """One value a run; a run is compared with those of the same seed, where both pass a loss."""
    logs = {name: by_loss["log_condition"].sel(architecture=name) for name in SHOWN}
    ours = logs["2-shortcut"].fillna(numpy.inf)  # its runs pass every loss: what is not there was too large to measure
    gaps = {name: ours - logs[name] for name in SHOWN if name != "2-shortcut"}
    large = by_loss["level"] > LARGE_LOSS
    index = by_loss["index"].sel(architecture="2-shortcut") - by_loss["index"].sel(architecture="orthogonal")
    seeds = by_loss.sizes["seed"]
    return {
        "B7": {
            "seeds": seeds,
            "largest log10 cond, 2-shortcut - others, losses above 1": _largest(
                [gaps[name].isel(level=large.values) for name in OTHERS]
            ),
            "largest log10 cond, 2-shortcut - others, every loss": _largest([gaps[name] for name in OTHERS]),
            "|log10 cond, 2-shortcut - orthogonal| at the end": abs(gaps["orthogonal"].isel(level=-1)).values.tolist(),
            **{f"largest log10 cond, 2-shortcut - {name}": _largest([gap]) for name, gap in gaps.items()},
            "mean log10 cond by loss, 2-shortcut - orthogonal": gaps["orthogonal"].mean("seed").values.tolist(),
            "losses": by_loss["level"].values.tolist(),
            "lowest loss of a linear map": float(by_loss.attrs["lowest_loss"]),
            **{f"learning rate, {name}": float(by_loss["rate"].sel(architecture=name)) for name in SHOWN},
        },
        "B8": {
            "seeds": seeds,
            "largest index, 2-shortcut - orthogonal, on the loss grid": index.max("level").values.tolist(),
            "loss where it is largest": index.idxmax("level").values.tolist(),
            "share of losses with a lower index": (index < 0).mean("level").values.tolist(),
        },
        "B9": {
            "seeds": epochs.sizes["seed"],
            "|epoch of index drop - of gradient peak| / epochs to convergence": (
                abs(epochs["drop"] - epochs["peak"]) / epochs["converged"]
            ).values.tolist(),
            "|epoch of index drop - of gradient peak| / epochs from 90 % to 10 % of the first excess loss": (
                abs(epochs["drop"] - epochs["peak"]) / epochs["fall"]
            ).values.tolist(),
            "epoch of the steepest drop of the index": epochs["drop"].values.tolist(),
            "epoch of the largest gradient": epochs["peak"].values.tolist(),
            "epochs to convergence": epochs["converged"].values.tolist(),
            "epochs from 90 % to 10 % of the first excess loss": epochs["fall"].values.tolist(),
        },
    }


def _largest(gaps: Sequence[xarray.DataArray]) -> list[float]:
    """Of each run, over networks and losses."""
    each = numpy.stack([gap.max("level").values for gap in gaps])
    return [float(value) for value in numpy.fmax.reduce(each)]


def steepest_drop(steps: numpy.ndarray, index: numpy.ndarray) -> numpy.ndarray:
    """Of each run (a row): the middle of the two neighbouring steps between which the index falls fastest."""
    slopes = numpy.diff(index, axis=1) / numpy.diff(steps, axis=1)
    middles = (steps[:, 1:] + steps[:, :-1]) / 2
    return middles[range(len(steps)), numpy.nanargmin(slopes, axis=1)]


# -- the grid of losses


def interpolated(losses: numpy.ndarray, values: numpy.ndarray, levels: numpy.ndarray) -> numpy.ndarray:
    """values at losses that fall, linearly interpolated at the levels; NaN where a run has no such loss."""
    return numpy.interp(levels, losses[::-1], values[::-1], left=numpy.nan, right=numpy.nan)


def on_grid(ways: dict[str, xarray.Dataset], levels: int) -> xarray.Dataset:
    """QUANTITIES (architecture, seed, level), at falling losses."""
    import xarray

    first = next(iter(ways.values()))
    lowest = float(first.attrs["lowest_loss"])
    spanning = [ways[name]["loss"] for name in SPANNING]
    top = min(float(loss.max("snapshot").min()) for loss in spanning)
    bottom = max(float(loss.min("snapshot").max()) for loss in spanning)
    spaced = lowest + numpy.geomspace(top - lowest, bottom - lowest, levels)
    spaced[0], spaced[-1] = top, bottom  # to the last bit
    found = {key: numpy.full((len(ways), first.sizes["seed"], levels), numpy.nan) for key in QUANTITIES}
    for place, way in enumerate(ways.values()):
        for member in range(way.sizes["seed"]):
            one = chosen(way.isel(seed=member), "falling")
            for key, values in _quantities(one).items():
                found[key][place, member] = interpolated(one["loss"].values, values, spaced)
    return xarray.Dataset(
        {
            **{key: (("architecture", "seed", "level"), values) for key, values in found.items()},
            "rate": ("architecture", [float(way.attrs["rate"]) for way in ways.values()]),
        },
        {"architecture": list(ways), "seed": first["seed"].values, "level": spaced},
        {
            "measure": MEASURE,
            "data": first.attrs["data"],
            "depth": first.attrs["depth"],
            "steps": first.attrs["steps"],
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
    import xarray

    runs = [chosen(way.isel(seed=member), "even") for member in range(way.sizes["seed"])]
    most = max(one.sizes["snapshot"] for one in runs)
    found = {
        key: numpy.stack([_padded(one[key].values, most) for one in runs])
        for key in ("step", "loss", "gradient", "largest", "tenth", "index")
    }
    losses, gradients = way["every_loss"].values, way["gradient_norm"].values
    lowest_loss = float(way.attrs["lowest_loss"])
    converged = steps_to(losses, lowest_loss, CONVERGED)
    first, last = (steps_to(losses, lowest_loss, share) for share in FALL)
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
        {"measure": "shortcut_epochs", **{key: way.attrs[key] for key in ("data", "depth", "rate")}},
    )


def steps_to(losses: numpy.ndarray, lowest_loss: float, share: float) -> numpy.ndarray:
    """Of each run (a row): the first step at which so much of its first excess loss is left, NaN where none is."""
    excess = losses - lowest_loss
    there = excess <= share * excess[:, :1]
    return numpy.where(there.any(1), there.argmax(1), numpy.nan)


def even_steps(losses: numpy.ndarray, lowest_loss: float, count: int) -> list[int]:
    """From the first step to BEYOND convergence, or to the last where a run does not converge."""
    end = numpy.fmin(BEYOND * steps_to(losses[None], lowest_loss, CONVERGED)[0], len(losses) - 1)
    return sorted({round(step) for step in numpy.linspace(0, end, count).tolist()})


def chosen(one: xarray.Dataset, why: str) -> xarray.Dataset:
    """The snapshots of one run that were taken for a reason, `falling` or `even`."""
    return one.isel(snapshot=numpy.flatnonzero(one[why].values == 1))


def _padded(values: numpy.ndarray, length: int) -> numpy.ndarray:
    return numpy.pad(values, (0, length - len(values)), constant_values=numpy.nan)


# -- what is measured


def falling_steps(losses: numpy.ndarray, lowest_loss: float, count: int) -> list[int]:
    """The steps at which a run first falls to `count` losses from its first to its least, evenly spaced in
    log(loss - lowest); fewer where it falls past several in one step."""
    excess = numpy.maximum(losses - lowest_loss, NOISE * abs(lowest_loss))
    levels = numpy.geomspace(excess[0], excess.min(), count)
    levels[-1] = excess.min()  # to the last bit
    return sorted({int((excess <= level).argmax()) for level in levels[1:]} | {0})


def _way(bench: Bench, settings: DynamicsSettings, subject: Task, name: str) -> xarray.Dataset:
    """Hessians of runs at the best rate: (seed, snapshot), NaN after the last of a run.

    They are taken at falling losses, and for the network that is followed step by step at even steps too; `falling`
    and `even` are 1 where they were. That network also has its loss and gradient at every step.
    """
    import xarray

    tuned = _train(bench, settings, subject, name, settings.rates)
    histories = tuned.losses.reshape(settings.runs, len(settings.rates), -1).numpy()
    best = lowest(histories[:, :, -1])
    if not numpy.isfinite(histories[:, best, -1]).all():
        raise InputError(f"rates: {name} networks diverge at every one of {settings.rates}")
    losses, lowest_loss = histories[:, best], subject.moments.lowest_loss
    reasons = {
        "falling": [falling_steps(history, lowest_loss, settings.snapshots) for history in losses],
        "even": [even_steps(history, lowest_loss, settings.epochs) if name == FOLLOWED else [] for history in losses],
    }
    steps = [sorted({*falling, *even}) for falling, even in zip(*reasons.values(), strict=True)]
    found = _hessians(bench, settings, subject, name, settings.rates[best], steps)
    most = max(map(len, steps))
    for why, taken in reasons.items():
        marks = [numpy.isin(each, its).astype(float) for each, its in zip(steps, taken, strict=True)]
        found[why] = numpy.stack([_padded(row, most) for row in marks])
    about = {"data": subject.name, "depth": settings.depth, "steps": settings.steps, "lowest_loss": lowest_loss}
    way = xarray.Dataset(
        {key: (("seed", "snapshot"), values) for key, values in found.items()},
        {"seed": bench.seeds(settings.runs)},
        {"part": "piece", "rate": settings.rates[best], **about},
    )
    if name != FOLLOWED:
        return way
    assert tuned.gradient_norms is not None
    gradients = tuned.gradient_norms.reshape(histories.shape).numpy()[:, best]
    return way.assign(every_loss=(("seed", "every"), losses), gradient_norm=(("seed", "every"), gradients))


def _train(
    bench: Bench,
    settings: DynamicsSettings,
    subject: Task,
    name: str,
    rates: Sequence[float],
    snapshots: Sequence[int] = (),
) -> Ensemble:
    """Seeds, and for each of them the rates, to the last of the snapshots if there are any."""
    spec, (_, init) = spec_of(name, settings.depth), ARCHITECTURES[name]
    members = grid([init], bench.seeds(settings.runs), rates)
    return train_ensemble(
        spec,
        member_weights(spec, members, device=bench.device),
        subject.moments,
        [member.rate for member in members],
        max(snapshots, default=settings.steps),
        record=() if snapshots else None,
        snapshots=snapshots,
        gradient_norms=name == FOLLOWED and not snapshots,
    )


def _hessians(
    bench: Bench, settings: DynamicsSettings, subject: Task, name: str, rate: float, steps: Sequence[Sequence[int]]
) -> dict[str, numpy.ndarray]:
    """What `spectrum_numbers` finds at the steps of each run: (seed, most steps of a run), NaN after a run's last."""
    trained = _train(bench, settings, subject, name, [rate], sorted({step for each in steps for step in each}))
    progress = bench.steps(f"Hessians of {name} networks on their way")
    done, total = 0, sum(map(len, steps))
    found: dict[str, numpy.ndarray] = {}
    for member, each in enumerate(steps):
        for place, step in enumerate(each):
            progress(done, total)
            weights = trained.snapshots[step][member].to(bench.device)
            for key, value in {"step": step, **spectrum_numbers(trained.spec, weights, subject.moments)}.items():
                empty = numpy.full((len(steps), max(map(len, steps))), numpy.nan)
                found.setdefault(key, empty)[member, place] = value
            done += 1
    return found


STUDY = Study(
    PAPER,
    "dynamics",
    paper_found="2-shortcut networks are better conditioned and of lower index at every loss; orthogonal end up alike.",
    we_expect="The same at large losses. All condition numbers diverge towards the optimum, where the rank is 100.",
    presets={
        "smoke": DynamicsSettings(depth=4, runs=2, snapshots=5, levels=6, epochs=6, rates=(0.03, 0.1), steps=200),
        "quick": DynamicsSettings(),
        "full": DynamicsSettings(runs=10, snapshots=30, levels=40, epochs=60, steps=10_000),
        "paper": DynamicsSettings(runs=10, snapshots=100, levels=100, epochs=150, steps=10_000),
    },
    cost={
        "smoke": "seconds",
        "quick": "3 minutes on 2 cores",
        "full": "minutes on one GPU",
        "paper": "a quarter of an hour on one GPU",
    },
    run=run,
    claims=decided_by("B.dynamics"),
)
