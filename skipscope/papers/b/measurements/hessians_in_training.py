"""Hessians of networks on their way from the first weights to the optimum, by gradient descent on all samples.

Each kind of network is trained twice: at every learning rate of a short list for its losses, and at the rate with the
lowest mean loss at the end for its Hessians. They are taken where a run first falls below losses that are evenly spaced
in the logarithm of the excess over the optimum, and on request at even steps as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy
import xarray

from skipscope.errors import InputError
from skipscope.papers.b.learning_rates import lowest
from skipscope.papers.b.networks import Ensemble, train_grid
from skipscope.papers.b.networks.hessian import RELATIVE_NOISE, spectrum_numbers
from skipscope.papers.b.subjects import ARCHITECTURES, WhitenedData
from skipscope.papers.kit import Bench

CONVERGED_SHARE = 0.01  # of the first excess loss
BEYOND_CONVERGENCE = 1.3  # times the steps to convergence: as far as the index is followed step by step


@dataclass(frozen=True)
class Descents:
    """Networks of one kind, from several seeds."""

    bench: Bench
    white: WhitenedData
    architecture: str
    depth: int
    runs: int  # seeds

    def train(
        self, rates: Sequence[float], steps: int, snapshots: Sequence[int] = (), *, gradient_norms: bool = False
    ) -> Ensemble:
        """Seeds, and for each of them the rates. The losses of all steps are kept, unless snapshots are taken."""
        architecture = ARCHITECTURES[self.architecture]
        return train_grid(
            architecture.spec(self.depth),
            self.white.moments,
            architecture.init,
            seeds=self.bench.seeds(self.runs),
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
        progress = self.bench.steps(f"Hessians of {self.architecture} networks on their way")
        done, total = 0, sum(map(len, steps))
        found: dict[str, numpy.ndarray] = {}
        for member, each in enumerate(steps):
            for place, step in enumerate(each):
                progress(done, total)
                weights = trained.snapshots[step][member].to(self.bench.device)
                numbers = spectrum_numbers(trained.spec, weights, self.white.moments)
                for key, value in {"step": step, **numbers}.items():
                    empty = numpy.full((len(steps), max(map(len, steps))), numpy.nan)
                    found.setdefault(key, empty)[member, place] = value
                done += 1
        return found


def followed(
    descents: Descents, rates: Sequence[float], steps: int, *, snapshots: int, even: int = 0
) -> xarray.Dataset:
    """Hessians of runs at the best of the rates: (seed, snapshot), NaN after the last of a run.

    snapshots: how many are taken at falling losses. even: how many are also taken at even steps; then the dataset has
    the loss and the gradient of every step, too. `falling` and `even` are 1 where a Hessian was taken for that reason.
    """
    white = descents.white
    tuned = descents.train(rates, steps, gradient_norms=even > 0)
    histories = tuned.losses.reshape(descents.runs, len(rates), -1).numpy()
    best = lowest(histories[:, :, -1])
    if not numpy.isfinite(histories[:, best, -1]).all():
        raise InputError(f"rates: {descents.architecture} networks diverge at every one of {rates}")
    losses, lowest_loss = histories[:, best], white.moments.lowest_loss
    reasons = {
        "falling": [falling_steps(history, lowest_loss, snapshots) for history in losses],
        "even": [even_steps(history, lowest_loss, even) if even else [] for history in losses],
    }
    taken = [sorted({*falling, *evenly}) for falling, evenly in zip(*reasons.values(), strict=True)]
    found = descents.hessians(rates[best], taken)
    most = max(map(len, taken))
    for reason, chosen in reasons.items():
        marks = [numpy.isin(each, its).astype(float) for each, its in zip(taken, chosen, strict=True)]
        found[reason] = numpy.stack([padded(row, most) for row in marks])
    way = xarray.Dataset(
        {key: (("seed", "snapshot"), values) for key, values in found.items()},
        {"seed": descents.bench.seeds(descents.runs)},
        {
            "part": "piece",
            "rate": rates[best],
            "data": white.name,
            "depth": descents.depth,
            "steps": steps,
            "lowest_loss": lowest_loss,
        },
    )
    if not even:
        return way
    gradients = tuned.gradient_norms.reshape(histories.shape).numpy()[:, best]
    return way.assign(every_loss=(("seed", "every"), losses), gradient_norm=(("seed", "every"), gradients))


# -- which steps


def falling_steps(losses: numpy.ndarray, lowest_loss: float, count: int) -> list[int]:
    """The steps at which a run first falls to `count` losses from its first to its least, evenly spaced in
    log(loss - lowest); fewer where it falls past several in one step."""
    excess = numpy.maximum(losses - lowest_loss, RELATIVE_NOISE * abs(lowest_loss))
    levels = numpy.geomspace(excess[0], excess.min(), count)
    levels[-1] = excess.min()  # to the last bit
    return sorted({int((excess <= level).argmax()) for level in levels[1:]} | {0})


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
