"""Neural collapse against depth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from skipscope.report.figures.curves import curves
from skipscope.report.figures.style import networks_in

if TYPE_CHECKING:
    import xarray

PANELS = {
    "nc1": "NC1: within classes / between",
    "cdnv": "CDNV, distance-normalised variance",
    "nc2_maximal_angle": "NC2: |cosine + 1/(C-1)|, mean",
    "nearest_mean_accuracy": "accuracy of the nearest class mean",
}


def collapse(datasets: xarray.Dataset | Mapping[str, xarray.Dataset]) -> Any:
    """NC1, CDNV, NC2 and the nearest class mean layer by layer, one curve a network."""
    import xarray

    named = networks_in(datasets) if isinstance(datasets, xarray.Dataset) else datasets
    renamed = {name: data.rename(layer="unit") for name, data in named.items()}
    there = {key: title for key, title in PANELS.items() if any(data[key].notnull().any() for data in named.values())}
    return curves(renamed, there, along="unit")
