"""Random matrices: products of many of them, with and without skips, and how often one is singular (proposition 1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import xarray

from skipscope.papers.c.measurements.commuting_weights import MEASURE, drawing
from skipscope.papers.c.theory import (
    ENTRIES,
    random_matrices,
    random_product,
    residual_isometry,
    singular,
    small_branch_exponents,
)
from skipscope.papers.kit.tables import table

TENTH = 0.1
SCALES = (1.0, 0.5, 0.3, TENTH, 0.05, 0.01)  # of branches, times He's; 0.5: two weights of variance 1/n
VARIANCES = (0.25, 1.0)  # c, of all branches together


def products(*, draws: int, size: int, units: Sequence[int], seed: int) -> xarray.Dataset:
    """log10 cond of I + s W2 W1 and of W2 W1, by the number of units; `float64`: as it is computed there.

    What small branches are predicted to have: in short networks, where c is far below 1, and in long ones.
    """
    depths = sorted(set(units))
    at = torch.tensor(depths, device="cpu") - 1
    shape = (len(SCALES) + 1, draws, len(depths))
    true, computed = torch.empty(shape, dtype=torch.float64), torch.empty(shape, dtype=torch.float64)
    for place, scale in enumerate((*SCALES, None)):
        for draw in range(draws):
            product = random_product(
                size,
                depths[-1],
                seed=drawing("products", seed, draw),
                skips=scale is not None,
                scale=1.0 if scale is None else scale,
            )
            true[place, draw] = product.log10_condition[at]
            for column, depth in enumerate(depths):
                computed[place, draw, column] = math.log10(product.in_float64(depth).value)
    growth = [small_branch_exponents(size, 4 * scale**2 / size) for scale in SCALES]
    long = [[float(line[0] - line[-1]) * depth / math.log(10) for depth in depths] for line in growth]
    short = [[2 * math.sqrt(8 * scale**2 * depth) / math.log(10) for depth in depths] for scale in SCALES]
    return xarray.Dataset(
        {
            "log10_condition": (("scale", "draw", "units"), true[:-1].numpy()),
            "float64": (("scale", "draw", "units"), computed[:-1].numpy()),
            "predicted_long": (("scale", "units"), long),
            "predicted_short": (("scale", "units"), short),
            "log10_condition_plain": (("draw", "units"), true[-1].numpy()),
            "float64_plain": (("draw", "units"), computed[-1].numpy()),
        },
        {"scale": list(SCALES), "draw": range(draws), "units": depths},
        {"measure": MEASURE, "part": "products", "width": size, "numerical_infinity": product.numerical_infinity},
    )


def moments(*, size: int, units: int, seed: int) -> xarray.Dataset:
    """Squared singular values of many units whose branches have the variance c in all, against the limit."""
    rows = []
    for c in VARIANCES:
        product = random_product(size, units, seed=drawing("moments", seed), scale=math.sqrt(c / (4 * units)))
        values = product.squared_singular_values()
        measured = (float(values.mean()), float(values.square().mean()))
        for moment, found in enumerate(measured, 1):
            formula = residual_isometry(c).moment(moment)
            condition = float(product.log10_condition[-1])
            rows.append({"c": c, "moment": moment, "measured": found, "formula": formula, "log10_condition": condition})
    return table("case", range(len(rows)), rows, measure=MEASURE, part="moments", width=size, units=units)


def singularity(*, draws: int, sizes: Sequence[int], seed: int) -> xarray.Dataset:
    rows: list[dict[str, Any]] = []
    for entries in ENTRIES:
        for size in sizes:
            drawn = random_matrices(entries, draws, size, drawing("singular", seed, entries, size))
            rows.append(
                {
                    "entries": entries,
                    "size": size,
                    "draws": draws,
                    "singular": int(singular(drawn).sum()),
                    "smallest": float(torch.linalg.svdvals(drawn)[:, -1].min()),
                }
            )
    return table("case", range(len(rows)), rows, measure=MEASURE, part="singularity")
