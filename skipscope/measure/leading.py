"""Units whose full spectrum costs too much: their largest singular values, and estimated shares of the rest.

value, residual, converged  the k largest singular values by block Golub-Kahan iteration (`spectrum.svd`); a value is
                            within its residual of an exact one
products                    vectors multiplied, per sample
share_above                 the share of singular values above 1.01, from random probes (`spectrum.spectral_density`)
share_near_one              in [0.99, 1.01]
share_above_error, share_near_one_error     standard error over the probes plus the quadrature's bias

Cost of a unit: some hundred products per sample; no matrix is ever formed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from skipscope.measure.selection import Units, chosen_units, labels, point_of
from skipscope.measure.spectra import NEAR_ONE
from skipscope.spectrum import spectral_density, svd
from skipscope.trace import Point, Trunk, Unit

if TYPE_CHECKING:
    import xarray


def leading(
    trunk: Trunk,
    x: Any,
    *,
    units: Units = None,
    k: int = 10,
    max_products: int | None = None,
    probes: int = 8,
    steps: int = 32,
    seed: int = 0,
) -> xarray.Dataset:
    """Measure at a batch of model inputs or a point; dimensions `unit`, `sample` and `rank`."""
    import xarray

    chosen, point = chosen_units(trunk, units), point_of(trunk, x)
    rows = [_row(unit, point, k, max_products, probes, steps, seed) for unit in chosen]
    data: dict[str, Any] = {}
    for name in rows[0]:
        column = torch.stack([row[name] for row in rows]).cpu().numpy()
        data[name] = (("unit", "sample", "rank")[: column.ndim], column)
    return xarray.Dataset(
        data,
        {**labels(chosen), "sample": list(range(point.batch))},
        {
            "measure": "leading",
            "mode": "eval",
            "near_one": NEAR_ONE,
            "probes": probes,
            "steps": steps,
            "seed": seed,
            "notes": "; ".join(trunk.notes),
        },
    )


def _row(
    unit: Unit, point: Point, k: int, max_products: int | None, probes: int, steps: int, seed: int
) -> dict[str, Tensor]:
    J = unit.jacobian(point)
    top = svd(J, k=min(k, *J.shape[1:]), max_products=max_products, seed=seed)
    density = spectral_density(J, probes=probes, steps=steps, seed=seed)
    low, high = NEAR_ONE
    above, near = density.count(high, float("inf")), density.count(low, high)
    missing = k - top.S.shape[1]

    def filled(values: Tensor, value: float) -> Tensor:
        return torch.nn.functional.pad(values.double(), (0, missing), value=value)

    return {
        "value": filled(top.S, float("nan")),
        "residual": filled(top.residuals, float("nan")),
        "converged": filled(top.converged, 1.0) == 1,
        "products": top.products + density.products,
        "share_above": above.value,
        "share_above_error": above.standard_error + above.bias,
        "share_near_one": near.value,
        "share_near_one_error": near.standard_error + near.bias,
    }
