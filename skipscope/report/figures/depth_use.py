"""How a network uses its depth: curves over its units and over its states, with the first position and without it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import xarray

from skipscope.report.figures.curves import Quantity, curves
from skipscope.report.style import by_network

UNITS = {
    "block_influence": Quantity("block influence, 1 - cosine of entry and exit", "influence"),
    "growth": Quantity("growth |exit| / |entry|, geometric mean over positions", "factor"),
    "branch_share": Quantity("|branch| / |skip|", "ratio"),
    "branch_cosine": Quantity("cosine of branch and skip", "cosine"),
    "skip_kl": Quantity("change of the prediction without the branch", "KL in nats"),
    "skip_loss_change": Quantity("change of the loss without the branch", "nats"),
}
STATES = {
    "total_growth": Quantity("mean size of the state, over that of the first", "factor"),
    "massive_ratio": Quantity("largest entry over the median", "ratio"),
    "state_norm": Quantity("size of the state", "|h|"),
    "lens_kl": Quantity("logit lens: distance from the model's prediction", "KL in nats"),
}


def depth_use(datasets: xarray.Dataset | Mapping[str, xarray.Dataset]) -> Any:
    """What the units do to the state and to the prediction, unit by unit; medians over the samples of means over the
    positions. datasets: of `ss.depth_use`."""
    return curves(_by_scope(datasets), UNITS, "unit")


def depth_states(datasets: xarray.Dataset | Mapping[str, xarray.Dataset]) -> Any:
    """Sizes of the states and what the head makes of them, state by state. datasets: of `ss.depth_use`."""
    return curves(_by_scope(datasets), STATES, "state")


def in_scope(data: xarray.Dataset, scope: str) -> xarray.Dataset:
    """Means over all positions, or over those after the first."""
    inside = data.sel(scope=scope, drop=True)
    if scope != "all":
        inside = inside.isel(position=data["position"].values != 0)
    return inside.mean("position", keep_attrs=True)


def _by_scope(datasets: xarray.Dataset | Mapping[str, xarray.Dataset]) -> dict[str, xarray.Dataset]:
    found = {}
    for name, data in by_network(datasets).items():
        scopes = [str(scope) for scope in data["scope"].values]
        for scope in scopes:
            words = "" if len(scopes) == 1 else "all positions" if scope == "all" else "without the first position"
            found[", ".join(filter(None, (name, words)))] = in_scope(data, scope)
    return found
