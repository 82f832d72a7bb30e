"""Linear networks of equal depth, trained from small weights: does gradient descent get away from zero?

Shortcuts of depths 4, 5 and 6, each at the learning rate of its lowest mean loss. One grid for all of them, up to rates
that diverge: losses that hardly differ, as where no network leaves zero, are no reason to look no higher.
"""

from __future__ import annotations

import itertools

import numpy
import xarray

from skipscope.papers.b.learning_rates import best_rate, rate_of
from skipscope.papers.b.measurements.zero_weights import MEASURE_NAME
from skipscope.papers.b.networks import ShortcutSpec, train_grid
from skipscope.papers.b.whitened import COMPONENTS, WhitenedData
from skipscope.papers.kit import Bench

SHORTCUT_DEPTHS = (4, 5, 6)  # n of the networks, all of this many layers:
LAYERS = 60
START_FACTORS = (0.01, 0.1)  # times Xavier's weights: the paper's, and the one that decides
RATE_DECADES = (-1.5, 1.0)  # from 0.1 times Xavier's weights all networks diverge well below the last rate


def escape(bench: Bench, data: WhitenedData, *, networks: int, steps: int, per_decade: int) -> xarray.Dataset:
    """Final losses (n, start, network, rate), infinite where one diverged. per_decade: learning rates."""
    first, last = (round(decade * per_decade) for decade in RATE_DECADES)
    rates = [rate_of(k, per_decade) for k in range(first, last + 1)]
    seeds, cases = bench.seeds(networks), list(itertools.product(SHORTCUT_DEPTHS, START_FACTORS))
    found = []
    for done, (n, start) in enumerate(cases):
        bench.steps("training n-shortcut networks from small weights")(done, len(cases))
        ended = train_grid(
            ShortcutSpec(LAYERS, COMPONENTS, n),
            data.moments,
            "zero",
            seeds=seeds,
            rates=rates,
            steps=steps,
            device=bench.device,
            factor=start,
            record=[],
        )
        found.append(ended.final_losses.numpy())
    shape = (len(SHORTCUT_DEPTHS), len(START_FACTORS), len(seeds), len(rates))
    return xarray.Dataset(
        {"loss": (("n", "start", "network", "rate"), numpy.reshape(found, shape))},
        {"n": list(SHORTCUT_DEPTHS), "start": list(START_FACTORS), "network": seeds, "rate": rates},
        {
            "measure": MEASURE_NAME,
            "part": "escape",
            "data": data.name,
            "layers": LAYERS,
            "steps": steps,
            "loss_at_zero": float(data.samples.loss(data.samples.x)[0]),
            "lowest_loss": data.moments.lowest_loss,
        },
    )


def at_best_rates(losses: xarray.DataArray) -> xarray.Dataset:
    """Losses (n, network) at the rate of each n's lowest mean, that rate (n), and whether it is the first or last.

    Where all rates end alike (`flat`) none is best, and none on an edge.
    """
    columns = losses.transpose("n", "network", "rate").values
    best = [best_rate(each) for each in columns]
    return xarray.Dataset(
        {
            "loss": (("n", "network"), [each[:, its.place] for each, its in zip(columns, best, strict=True)]),
            "rate": ("n", losses["rate"].values[[its.place for its in best]]),
            "flat": ("n", [its.flat for its in best]),
            "on_edge": ("n", [its.on_edge for its in best]),
        },
        {"n": losses["n"].values},
    )
