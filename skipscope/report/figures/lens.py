"""The Jacobian lens: how well it is known, layer by layer, and how its error falls with the number of prompts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import xarray

from skipscope.report.figures.curves import Quantity, curves
from skipscope.report.style import by_network

LAYERS = {
    "relative_error": Quantity("standard error over prompts / lens", "share"),
    "split_half_cosine": Quantity("agreement of the two halves of the prompts", "cosine"),
    "identity_cosine": Quantity("cosine with the identity, 1 = logit lens", "cosine"),
    "gain": Quantity("root mean square of the lens's singular values", "gain"),
}
PROMPTS = {
    "worst": Quantity("largest standard error / lens of all layers", "share"),
    "middle": Quantity("median standard error / lens of the layers", "share"),
}


def lens(datasets: xarray.Dataset | Mapping[str, xarray.Dataset]) -> Any:
    """Errors, agreement and size of the lens, layer by layer, one curve per network. datasets: of `ss.lens`."""
    return curves(datasets, LAYERS, "unit")


def lens_history(datasets: xarray.Dataset | Mapping[str, xarray.Dataset]) -> Any:
    """Standard errors after more and more prompts, one curve per network. datasets: of `ss.lens`."""
    return curves(
        {name: _history(data) for name, data in by_network(datasets).items()}, PROMPTS, "prompts", named=False
    )


def _history(data: xarray.Dataset) -> xarray.Dataset:
    found = {"worst": data["history"].max("unit"), "middle": data["history"].median("unit")}
    by_prompts = {name: ("prompts", values.values) for name, values in found.items()}
    return xarray.Dataset(by_prompts, {"prompts": data["prompts"].values}, data.attrs)
