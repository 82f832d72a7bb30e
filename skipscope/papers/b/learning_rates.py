"""The search of the best learning rate: that of the lowest mean final loss over seeds of calibration.

The grid of learning rates is logarithmic, and grows until the best rate is inside. Losses are then those of other seeds
at that rate, so that none is optimistic. Where all rates end alike there is no best one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import xarray

from skipscope.papers.b.networks import Moments, ShortcutSpec, train_grid
from skipscope.papers.b.networks.ensemble import precision_of
from skipscope.papers.b.networks.loss import Data
from skipscope.papers.b.networks.network import ZERO_FACTOR
from skipscope.papers.kit import Bench, Quantity

FIRST_DECADES = (-1.5, 0.0)  # of the first learning rates
DECADE_LIMITS = (-5.0, 2.0)  # between which a grid grows
MARGIN_DECADES = 0.5  # on either side of the best rate that a grid has, unless they diverge
ALIKE_WITHIN = 0.01  # where losses differ by less of themselves, at all rates that do not diverge, none is best;
FEWEST_ALIKE = 3  # it takes so many rates to say so
SMALLEST_EXCESS = 1e-15  # a distance from the optimum that is not rounding

ON_EDGE = Quantity("best learning rates on the edge of their grid")
NONE_ON_EDGE = ON_EDGE.exactly(0.0)  # control of the claims that compare losses at the best learning rate
CHOSEN_ON_OTHER_SEEDS = (  # for the notes of these claims
    "Learning rates are the best of other seeds; the paper chooses them by the losses that it shows."
)
CURVE_POINTS = 20  # of the losses in training at the best rate, evenly spaced in the logarithm of the step


# -- the choice among given rates


@dataclass(frozen=True)
class BestRate:
    place: int  # among the rates
    flat: bool  # all rates end alike: none is best, and none on an edge
    on_edge: bool  # it is the first or the last


def best_rate(losses: numpy.ndarray, lowest_loss: float = 0.0) -> BestRate:
    """Of final losses (seeds, rates), infinite where a network diverged."""
    place, alike = lowest(losses), flat(losses, lowest_loss)
    return BestRate(place, alike, place in (0, losses.shape[1] - 1) and not alike)


def lowest(losses: numpy.ndarray) -> int:
    """The place of the lowest mean over seeds of losses (seeds, rates); the first one if all means are infinite."""
    return int(losses.mean(0).argmin())


def flat(losses: numpy.ndarray, lowest_loss: float = 0.0) -> bool:
    """Do all learning rates end alike, by what they leave above the lowest loss?"""
    means = losses.mean(0) - lowest_loss
    means = means[numpy.isfinite(means)]
    return len(means) >= FEWEST_ALIKE and bool(means.max() - means.min() <= ALIKE_WITHIN * means.min())


# -- the grid


def rate_of(k: int, per_decade: int) -> float:
    return float(f"{10 ** (k / per_decade):.4g}")


def tuned(
    losses: Callable[[list[float]], numpy.ndarray], per_decade: int, lowest_loss: float = 0.0
) -> tuple[list[float], numpy.ndarray]:
    """Learning rates and the losses (seeds, rates) that a function gives for them.

    The rates are 10^(k / per_decade): those of FIRST_DECADES, and more of them where the lowest mean loss is close to
    an end, until there are MARGIN_DECADES, or rates that diverge, or DECADE_LIMITS. Where all losses are alike there is
    nothing to look for.
    """
    least, most = (round(decade * per_decade) for decade in DECADE_LIMITS)
    first, last = (round(decade * per_decade) for decade in FIRST_DECADES)
    margin = max(1, round(MARGIN_DECADES * per_decade))
    found: dict[int, numpy.ndarray] = {}
    wanted = range(first, last + 1)
    while wanted and not (found and flat(_columns(found), lowest_loss)):
        found |= zip(wanted, losses([rate_of(k, per_decade) for k in wanted]).T, strict=True)
        first, last = min(found), max(found)
        best = first + lowest(_columns(found))
        wanted = range(max(best - margin, least), first)
        if not wanted and numpy.isfinite(found[last]).all():
            wanted = range(last + 1, min(best + margin, most) + 1)
    return [rate_of(k, per_decade) for k in sorted(found)], _columns(found)


def _columns(found: Mapping[int, numpy.ndarray]) -> numpy.ndarray:
    return numpy.stack([found[k] for k in sorted(found)], 1)


# -- training at every rate


def trained_at_best_rate(
    bench: Bench,
    spec: ShortcutSpec,
    data: Data,
    init: str,
    *,
    calibration: int,
    networks: int,
    steps: int,
    per_decade: int,
    attrs: Mapping[str, Any],
    every_rate: bool = False,
    factor: float = ZERO_FACTOR,
    name: str = "",
) -> xarray.Dataset:
    """Final losses of judged networks (seed) at the rate of the lowest mean loss over calibration networks.

    With the losses of these (calibration_seed, rate), infinite where one diverged, and the losses of the judged ones
    during training (seed, step). every_rate: judged networks are trained at all rates (seed, rate), which gives the
    best rate of each. factor: of the initialisation "zero". attrs: of the dataset; it says the rest itself. name: that
    of the dataset; each round of learning rates is kept beside it as soon as it is trained, so that a stopped run goes
    on within the grid of a network. Without a name they are not kept.
    """
    choosing, judged = bench.calibration_seeds(calibration), bench.seeds(networks)

    def trained(piece: str, seeds: Sequence[int], rates: Sequence[float], record: Sequence[int] = ()) -> xarray.Dataset:
        def compute() -> xarray.Dataset:
            ended = train_grid(
                spec,
                data,
                init,
                seeds=seeds,
                rates=rates,
                steps=steps,
                device=bench.device,
                factor=factor,
                record=record,
            )
            losses = ended.losses.reshape(len(seeds), len(rates), -1).numpy()
            return xarray.Dataset(
                {"loss": (("seed", "rate", "step"), losses)},
                {"seed": list(seeds), "rate": list(rates), "step": list(ended.recorded)},
                {"part": "piece"},
            )

        return bench.part(f"{name}-{piece}", compute) if name else compute()

    def final_losses(piece: str, seeds: Sequence[int], rates: Sequence[float]) -> numpy.ndarray:
        found = trained(f"{piece}-{rates[0]:g}-{rates[-1]:g}", seeds, rates)
        return found["loss"].isel(step=-1).values

    lowest_loss = data.lowest_loss if isinstance(data, Moments) else 0.0
    rates, chosen_by = tuned(lambda some: final_losses("rates", choosing, some), per_decade, lowest_loss)
    best = best_rate(chosen_by, lowest_loss)
    followed = trained("judged", judged, [rates[best.place]], curve_steps(steps)).isel(rate=0)["loss"]
    losses = numpy.full((networks, len(rates)), numpy.nan)
    others = [rate for place, rate in enumerate(rates) if place != best.place]
    if every_rate and others:
        losses[:, numpy.arange(len(rates)) != best.place] = final_losses("judged-rates", judged, others)
    losses[:, best.place] = followed.isel(step=-1).values
    final = losses[:, best.place]
    return xarray.Dataset(
        {
            "calibration": (("calibration_seed", "rate"), chosen_by),
            "loss": (("seed", "rate"), losses),
            "final": ("seed", final),
            "log_excess": ("seed", log_excess(final, lowest_loss)),
            "curve": (("seed", "step"), log_excess(followed.values, lowest_loss)),
        },
        {"calibration_seed": choosing, "seed": judged, "rate": rates, "step": followed["step"].values},
        {
            **attrs,
            "depth": spec.depth,
            "n": spec.n,
            "init": init,
            "steps": steps,
            "precision": precision_of(spec, bench.device),
            "best_rate": rates[best.place],
            "lowest_loss": lowest_loss,
            "flat": int(best.flat),
            "on_edge": int(best.on_edge),
        },
    )


def curve_steps(steps: int) -> list[int]:
    """From the first to the last."""
    return sorted({round(step) for step in numpy.geomspace(1, steps, CURVE_POINTS).tolist()})


def own_rates(part: xarray.Dataset) -> numpy.ndarray:
    """The best rate of every judged network (seed); not a number where all its rates diverge, or one was tried."""
    losses, rates = part["loss"].values, part["rate"].values
    known = numpy.isfinite(losses).any(1) & ~numpy.isnan(losses).any(1)
    places = numpy.where(numpy.isnan(losses), numpy.inf, losses).argmin(1)
    return numpy.where(known, rates[places], numpy.nan)


def log_excess(losses: numpy.ndarray, lowest_loss: float) -> numpy.ndarray:
    """log10 of what losses are above the lowest one."""
    return numpy.log10(numpy.maximum(losses - lowest_loss, SMALLEST_EXCESS))


def extreme_per_seed(rows: Sequence[numpy.ndarray], extreme: Callable[..., Any]) -> list[float]:
    """The largest or smallest (numpy.max, numpy.min) of rows with one value per seed; none where there are no rows."""
    return extreme(rows, axis=0).tolist() if len(rows) else []
