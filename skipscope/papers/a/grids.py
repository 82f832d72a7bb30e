"""The grids of figures 10 to 37: every Jacobian in the leading singular vectors of every other, in the paper's layout.

Row i of the grid is whose Jacobian, column j whose vectors; a panel is |U_j^T J_i V_j| (or |V_j^T J_i U_j|), K x K,
relative to its own largest entry. A panel is kept in steps of 1 / 255 of that entry, beside the entry itself: that is
more than a picture shows, and a grid of 16 blocks and K = 30 takes a quarter of a megabyte and not two.
"""

from __future__ import annotations

import numpy
import xarray

WAYS = ("ujv", "vju")
STEPS = 255  # of a panel's largest entry


def in_papers_layout(jacobians: xarray.Dataset) -> xarray.Dataset:
    """Of the grids of `ss.alignment` at its first sample: panels (unit, other, row, column) in whole steps, and their
    largest entries (unit, other), NaN where states differ in shape and there is no panel."""
    found: dict[str, xarray.DataArray] = {}
    for way in WAYS:
        panels = abs(jacobians[way].isel(sample=0)).transpose("unit", "other", "row", "column")
        largest = panels.max(("row", "column"))
        relative = (panels / largest.where(largest > 0)).fillna(0.0)
        found[way] = (STEPS * relative).round().astype(numpy.uint8)
        found[f"largest_{way}"] = largest.where(panels.notnull().any(("row", "column"))).astype(numpy.float32)
    kept = ("unit", "other")
    data = xarray.Dataset(
        {name: part.drop_vars([c for c in part.coords if c not in kept]) for name, part in found.items()}
    )
    about = {"k": jacobians.sizes["row"], "classes": int(jacobians.attrs["classes"])}
    return data.assign_attrs(measure="alignment_grids", sample=int(jacobians["sample"].values[0]), **about)
