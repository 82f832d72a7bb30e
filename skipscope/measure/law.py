"""The exact law of units against their counted spectra.

`linear.law` proves bounds on a unit's spectrum from three counts: active outputs, active outputs that the skip brings
something to (e), and entries of a cut of the branch whose derivative is not zero (r). Here the singular values are
counted by a route that knows nothing of the law, and compared with the bounds. With c the factor of the skip (1 but
for a scaled or averaging one), and values up to rounding:

size, entries, exits        min(m, n) values of a Jacobian of n entries and m exits
inactive, carried           outputs that the tail shuts off (z); e, which is m - z for the identity
inner_active                r, a bound on the rank of the branch's Jacobian J_R
factor                      c
zeros >= zeros_at_least     values that are 0
ones  >= ones_at_least      values that are c: e - 2 r, which is n - z - 2 r for the identity
above <= above_at_most      values above c: r
below <= below_at_most      values between 0 and c: r for the identity
near  >= near_at_least      values within epsilon of c: e - 2 inner_above, where inner_above singular values of J_R are
                            above epsilon; for epsilon = 0.01 the plateau of Rothauge et al.
generic                     2 r < e: a plateau is predicted, and for the identity `ones` equals its bound as a rule;
                            with a padded skip it is often larger (see `linear.law`)
violated                    per bound (dimension `bound`), whether it does not hold; it never should

A unit that the law says nothing of has NaN and, in the coordinate `reason`, why.

Cost per unit and sample: the full spectra of J and of J_R.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy
import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.linear.law import Law, law_or_reason
from skipscope.measure.selection import Units, attributes, chosen_units, labels, point_of
from skipscope.renamed import renamed_parameters
from skipscope.spectrum import Spectrum, singular_values
from skipscope.spectrum.full import COUNTS_AS_ONE, Route
from skipscope.trace import Point, Trunk, Unit

if TYPE_CHECKING:
    import xarray

ROUTES = ("svd", "gram")  # both decompose the assembled matrix; the third, "law", would only repeat what is tested
BOUNDS = ("zeros", "ones", "above", "below", "near")
NAMES = (
    *("size", "entries", "exits", "inactive", "carried", "inner_active", "inner_above", "factor", "generic"),
    *BOUNDS,
    *(f"{name}_at_{'most' if name in ('above', 'below') else 'least'}" for name in BOUNDS),
)


@renamed_parameters(tolerance="tol")
def law(
    trunk: Trunk,
    x: Any,
    *,
    units: Units = None,
    tol: float | None = None,
    epsilon: float = 0.01,
    route: Route = "auto",
) -> xarray.Dataset:
    """Counts and bounds at a batch of model inputs or a point; dimensions `unit` and `sample`, and `bound`.

    tol: values this close to c count as c, 1e-7 by default (or their error bound, where that is larger).
    route: "svd" or "gram", for the counted values; "auto" takes the more exact one, "svd".
    """
    import xarray

    if route == "auto":
        route = "svd"
    if route not in ROUTES:
        raise InputError(f"route={route!r}: expected auto, {' or '.join(ROUTES)}, which know nothing of the law")
    if epsilon <= 0 or (tol is not None and tol < 0):
        raise InputError(f"expected epsilon > 0 and tol >= 0, got {epsilon} and {tol}")
    chosen, point = chosen_units(trunk, units), point_of(trunk, x)
    close = COUNTS_AS_ONE if tol is None else tol
    missing = {name: torch.full((point.batch,), float("nan"), dtype=torch.float64, device="cpu") for name in NAMES}
    rows, reasons = [], []
    for unit in chosen:
        found = _with_a_plateau(unit, point)
        reasons.append(found if isinstance(found, str) else "")
        rows.append(missing if isinstance(found, str) else _counted(found, unit, point, close, epsilon, route))
    columns = {name: torch.stack([row[name] for row in rows]).numpy() for name in NAMES}
    pair = ("unit", "sample")
    return xarray.Dataset(
        {
            **{name: (pair, column) for name, column in columns.items()},
            "violated": ((*pair, "bound"), numpy.stack([violation(columns, name) for name in BOUNDS], axis=2)),
        },
        {
            **labels(chosen),
            "reason": ("unit", numpy.array(reasons, dtype=object)),
            "sample": list(range(point.batch)),
            "bound": list(BOUNDS),
        },
        attributes("law", trunk, route=route, epsilon=epsilon, tolerance=close),
    )


def violation(columns: Any, name: str) -> Any:
    """Where a count contradicts its bound; False where there is none. columns: by name, arrays or a dataset."""
    if name in ("above", "below"):
        return columns[name] > columns[f"{name}_at_most"]
    return columns[name] < columns[f"{name}_at_least"]


def _with_a_plateau(unit: Unit, point: Point) -> Law | str:
    found = law_or_reason(unit, point)
    if isinstance(found, Law) and not found.binary.all():
        return f"the tail ({' '.join(unit.tail.operations)}) passes other shares of an entry than 0 and 1"
    return found


def _counted(law: Law, unit: Unit, point: Point, close: float, epsilon: float, route: Route) -> dict[str, Tensor]:
    """By name, (B,) in float64."""
    J, branch = unit.jacobian(point), unit.jacobian(point, of="branch")
    spectrum, inner = (singular_values(operator, route=route) for operator in (J, branch))
    batch, exits, entries = J.shape
    # Where rounding decides whether a value counts, it is counted so that it does not contradict a bound.
    inner_above = (inner.values > epsilon - inner.bound).sum(1)
    counts = {
        "size": torch.full((batch,), law.size),
        "entries": torch.full((batch,), entries),
        "exits": torch.full((batch,), exits),
        "inactive": exits - law.active,
        "carried": law.carried,
        "inner_active": law.rank,
        "inner_above": inner_above,
        "factor": law.factor,
        "generic": law.generic,
        **counts_around(spectrum, law.factor.cpu(), close, epsilon),
        "zeros_at_least": law.zeros_at_least,
        "ones_at_least": law.ones_at_least,
        "above_at_most": law.above_at_most,
        "below_at_most": law.below_at_most,
        "near_at_least": (law.carried.cpu() - 2 * inner_above).clamp_min(0),
    }
    return {name: count.cpu().double() for name, count in counts.items()}


def counts_around(spectrum: Spectrum, factor: Tensor, close: float, epsilon: float) -> dict[str, Tensor]:
    """(B,) each: how many values are zero, at `factor` (B,), above it, between, and within epsilon of it."""
    distance = spectrum.values - factor[:, None]
    rounding = spectrum.bound.clamp_min(close)
    positive = spectrum.values > spectrum.tolerance[:, None]
    return {
        "zeros": spectrum.zeros,
        "ones": (positive & (distance.abs() <= rounding)).sum(1),
        "above": (positive & (distance > rounding)).sum(1),
        "below": (positive & (distance < -rounding)).sum(1),
        "near": (distance.abs() <= epsilon + spectrum.bound).sum(1),
    }
