"""Hessians of networks on their way from the first weights to the optimum, by gradient descent on all samples.

The learning rate of a kind of network is the best of calibration networks. The judged ones are trained twice at it, or
at a share of it: for their losses, and for their Hessians. These are taken where a run first falls to given losses, to
losses that are evenly spaced in the logarithm of the excess over the optimum, and on request at even steps as well.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy
import torch
import xarray

from skipscope.cores import on_all_cores
from skipscope.papers.b.learning_rates import BestRate, best_rate, tuned
from skipscope.papers.b.networks import Ensemble, train_grid
from skipscope.papers.b.networks.hessian import RELATIVE_NOISE, spectrum_numbers
from skipscope.papers.b.subjects import ARCHITECTURES, WhitenedData
from skipscope.papers.kit import Bench

CONVERGED_SHARE = 0.01  # of the first excess loss
EXCESSES = (3.0, 1.0, 0.1, 0.01, 0.001)  # losses above the optimum at which networks are compared
AT_EXCESS = 0.05  # decades: a Hessian as close as this is taken for that at the loss itself
BEYOND_CONVERGENCE = 1.3  # times the steps to convergence: as far as the index is followed step by step


@dataclass(frozen=True)
class Descents:
    """Networks of one kind, from several seeds."""

    bench: Bench
    white: WhitenedData
    architecture: str
    depth: int
    seeds: tuple[int, ...]

    def train(
        self, rates: Sequence[float], steps: int, snapshots: Sequence[int] = (), *, gradient_norms: bool = False
    ) -> Ensemble:
        """Seeds, and for each of them the rates. The losses of all steps are kept, unless snapshots are taken."""
        architecture = ARCHITECTURES[self.architecture]
        return train_grid(
            architecture.spec(self.depth),
            self.white.moments,
            architecture.init,
            seeds=self.seeds,
            rates=rates,
            steps=steps,
            device=self.bench.device,
            record=() if snapshots else None,
            snapshots=snapshots,
            gradient_norms=gradient_norms,
        )

    def hessians(self, rate: float, steps: Sequence[Sequence[int]]) -> dict[str, numpy.ndarray]:
        """What `spectrum_numbers` finds at the steps of each run: (seed, most steps of a run), NaN after its last."""
        every = sorted({step for each in steps for step in each})
        trained = self.train([rate], every[-1], every)
        places = [(member, place) for member, each in enumerate(steps) for place in range(len(each))]

        def numbers_at(where: tuple[int, int]) -> dict[str, float]:
            member, place = where
            step = steps[member][place]
            weights = trained.snapshots[step][member].to(self.bench.device)
            return {"step": step, **spectrum_numbers(trained.spec, weights, self.white.moments)}

        everywhere = on_all_cores if torch.device(self.bench.device).type == "cpu" else map
        found: dict[str, numpy.ndarray] = {}
        empty = numpy.full((len(steps), max(map(len, steps))), numpy.nan)
        counted = self.bench.each(f"Hessians of {self.architecture} networks on their way", places)
        for where, numbers in zip(counted, everywhere(numbers_at, places), strict=True):
            for key, value in numbers.items():
                found.setdefault(key, empty.copy())[where] = value
        return found


def calibrated(descents: Descents, steps: int, per_decade: int) -> tuple[float, BestRate]:
    """The learning rate of the lowest mean loss after so many steps, on a grid that grows until it is inside."""
    lowest_loss = descents.white.moments.lowest_loss

    def losses(rates: Sequence[float]) -> numpy.ndarray:
        return descents.train(rates, steps).final_losses.reshape(len(descents.seeds), len(rates)).numpy()

    rates, found = tuned(losses, per_decade, lowest_loss)
    best = best_rate(found, lowest_loss)
    return rates[best.place], best


def followed(
    descents: Descents, rate: float, steps: int, *, snapshots: int, even: int = 0, on_edge: bool = False
) -> xarray.Dataset:
    """Hessians of runs: (seed, snapshot), NaN after the last of a run.

    snapshots: how many are taken at falling losses, beside those at EXCESSES. even: how many are also taken at even
    steps; then the dataset has the loss and the gradient of every step, too. `falling` and `even` are 1 where a Hessian
    was taken for that reason. on_edge: whether the rate was the first or last of those that were tried.
    """
    white = descents.white
    trained = descents.train([rate], steps, gradient_norms=even > 0)
    losses, lowest_loss = trained.losses.numpy(), white.moments.lowest_loss
    reasons = {
        "falling": [falling_steps(history, lowest_loss, snapshots) for history in losses],
        "even": [even_steps(history, lowest_loss, even) if even else [] for history in losses],
    }
    at_excesses = [excess_steps(history, lowest_loss) for history in losses]
    taken = [sorted({*each}) for each in map(itertools.chain, *reasons.values(), at_excesses)]
    found = descents.hessians(rate, taken)
    most = max(map(len, taken))
    for reason, its_steps in reasons.items():
        marks = [numpy.isin(each, its).astype(float) for each, its in zip(taken, its_steps, strict=True)]
        found[reason] = numpy.stack([padded(row, most) for row in marks])
    way = xarray.Dataset(
        {key: (("seed", "snapshot"), values) for key, values in found.items()},
        {"seed": list(descents.seeds)},
        {
            "part": "piece",
            "rate": rate,
            "on_edge": int(on_edge),
            "data": white.name,
            "depth": descents.depth,
            "steps": steps,
            "snapshots": snapshots,
            "even": even,
            "lowest_loss": lowest_loss,
        },
    )
    if not even:
        return way
    gradients = trained.gradient_norms.numpy()
    return way.assign(every_loss=(("seed", "every"), losses), gradient_norm=(("seed", "every"), gradients))


# -- which steps


def falling_steps(losses: numpy.ndarray, lowest_loss: float, count: int) -> list[int]:
    """The steps at which a run first falls to `count` losses from its first to its least, evenly spaced in
    log(loss - lowest); fewer where it falls past several in one step."""
    excess = numpy.maximum(losses - lowest_loss, RELATIVE_NOISE * abs(lowest_loss))
    levels = numpy.geomspace(excess[0], excess.min(), count)
    levels[-1] = excess.min()  # to the last bit
    return sorted({int((excess <= level).argmax()) for level in levels[1:]} | {0})


def excess_steps(losses: numpy.ndarray, lowest_loss: float) -> list[int]:
    """The steps at which a run first falls to EXCESSES; with the one before where it falls far below in one step."""
    excess = losses - lowest_loss
    found = set()
    for level in EXCESSES:
        step = int((excess <= level).argmax())
        if excess[0] > level >= excess[step]:
            far_below = math.log10(level / max(excess[step], RELATIVE_NOISE)) > AT_EXCESS
            found |= {step - 1, step} if far_below else {step}
    return sorted(found)


def at_excesses(one: xarray.Dataset, logs: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Values (snapshot) of one run at EXCESSES, linear in log excess, and whether it passes them.

    A run that begins below a loss does not pass it. Not a number where the value is not one.
    """
    excess = one["loss"].values - float(one.attrs["lowest_loss"])
    values, passed = numpy.full(len(EXCESSES), numpy.nan), numpy.zeros(len(EXCESSES), bool)
    for place, level in enumerate(EXCESSES):
        after = int((excess <= level).argmax())
        if not excess[0] > level >= excess[after]:
            continue
        passed[place] = True
        last, before = (math.log10(max(excess[step], RELATIVE_NOISE)) for step in (after, after - 1))
        share = (last - math.log10(level)) / (last - before)
        close = math.log10(level) - last <= AT_EXCESS
        values[place] = logs[after] if close else logs[after] + share * (logs[after - 1] - logs[after])
    return values, passed


def even_steps(losses: numpy.ndarray, lowest_loss: float, count: int) -> list[int]:
    """From the first step to BEYOND_CONVERGENCE, or to the last where a run does not converge."""
    end = numpy.fmin(BEYOND_CONVERGENCE * steps_to(losses[None], lowest_loss, CONVERGED_SHARE)[0], len(losses) - 1)
    return sorted({round(step) for step in numpy.linspace(0, end, count).tolist()})


def steps_to(losses: numpy.ndarray, lowest_loss: float, share: float) -> numpy.ndarray:
    """Of each run (a row): the first step at which so much of its first excess loss is left, NaN where none is."""
    excess = losses - lowest_loss
    there = excess <= share * excess[:, :1]
    return numpy.where(there.any(1), there.argmax(1), numpy.nan)


def chosen(one: xarray.Dataset, reason: str) -> xarray.Dataset:
    """The snapshots of one run that were taken for a reason, `falling` or `even`."""
    return one.isel(snapshot=numpy.flatnonzero(one[reason].values == 1))


def padded(values: numpy.ndarray, length: int) -> numpy.ndarray:
    return numpy.pad(values, (0, length - len(values)), constant_values=numpy.nan)
