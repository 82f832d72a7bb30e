"""Several residual streams: how the matrices that mix them, and the products of those, act along the depth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import xarray

from skipscope.report.figures.curves import Quantity, curves

STREAMS = {
    "product_row_gain": Quantity("gain of the product of all mixing matrices up to a unit", "largest row sum"),
    "product_second_value": Quantity("second singular value of that product, 0 = one stream", "singular value"),
    "sinkhorn_residual": Quantity("distance of a unit's matrix from doubly stochastic", "largest |sum - 1|"),
    "branch_share": Quantity("share of the branch, |branch| / (|branch| + |skip|)", "share"),
}


def streams(datasets: xarray.Dataset | Mapping[str, xarray.Dataset]) -> Any:
    """Mixing of the streams unit by unit, medians over the samples with their quartiles, one curve per network.

    datasets: of `ss.streams`.
    """
    return curves(datasets, STREAMS, "unit")
