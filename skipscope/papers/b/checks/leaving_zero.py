"""Linear networks of equal depth, trained from small weights: does gradient descent get away from zero?

Shortcuts of depths 4, 5 and 6, each at the learning rate of its lowest mean loss. One grid for all of them, up to rates
that diverge: losses that hardly differ, as where no network leaves zero, are no reason to look no higher.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy

from skipscope.papers.b.checks.zero_weights import MEASURE
from skipscope.papers.b.networks import ShortcutSpec, grid, member_weights, train_ensemble
from skipscope.papers.b.studies.learning import flat, rate_of
from skipscope.papers.b.subjects import COMPONENTS, Task, lowest
from skipscope.papers.kit.bench import Bench

if TYPE_CHECKING:
    import xarray

DEEP = (4, 5, 6)  # n of the networks, all of this many layers:
LAYERS = 60
STARTS = (0.01, 0.1)  # times Xavier's weights: the paper's, and the one that decides
DECADES = (-1.5, 1.0)  # of the learning rates: from 0.1 times Xavier's weights all diverge well below the last


def escape(bench: Bench, subject: Task, *, networks: int, steps: int, per_decade: int) -> xarray.Dataset:
    """Final losses (n, start, network, rate), infinite where one diverged. per_decade: learning rates."""
    import xarray

    first, last = (round(decade * per_decade) for decade in DECADES)
    rates = [rate_of(k, per_decade) for k in range(first, last + 1)]
    seeds, cases = bench.seeds(networks), list(itertools.product(DEEP, STARTS))
    found = []
    for done, (n, start) in enumerate(cases):
        bench.steps("training n-shortcut networks from small weights")(done, len(cases))
        spec, members = ShortcutSpec(LAYERS, COMPONENTS, n), grid(["zero"], seeds, rates)
        weights = member_weights(spec, members, factor=start, device=bench.device)
        each = [member.rate for member in members]
        found.append(train_ensemble(spec, weights, subject.moments, each, steps, record=[]).final_losses.numpy())
    return xarray.Dataset(
        {
            "loss": (
                ("n", "start", "network", "rate"),
                numpy.reshape(found, (len(DEEP), len(STARTS), len(seeds), len(rates))),
            )
        },
        {"n": list(DEEP), "start": list(STARTS), "network": seeds, "rate": rates},
        {
            "measure": MEASURE,
            "part": "escape",
            "data": subject.name,
            "layers": LAYERS,
            "steps": steps,
            "loss_at_zero": float(subject.samples.loss(subject.samples.x)[0]),
            "lowest_loss": subject.moments.lowest_loss,
        },
    )


def best_of(losses: xarray.DataArray) -> xarray.Dataset:
    """Losses (n, network) at the rate of each n's lowest mean, that rate (n), and whether it is the first or last.

    Where all rates end alike (`flat`) none is best, and none on an edge.
    """
    import xarray

    columns = losses.transpose("n", "network", "rate").values
    places = [lowest(each) for each in columns]
    return xarray.Dataset(
        {
            "loss": (("n", "network"), [each[:, place] for each, place in zip(columns, places, strict=True)]),
            "rate": ("n", losses["rate"].values[places]),
            "flat": ("n", [flat(each) for each in columns]),
            "on_edge": (
                "n",
                [
                    place in (0, losses.sizes["rate"] - 1) and not flat(each)
                    for each, place in zip(columns, places, strict=True)
                ],
            ),
        },
        {"n": losses["n"].values},
    )
