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

Cost per unit and sample: the full spectra of J and of J_R. With count_only=True nothing is decomposed: zeros_at_least
and ones_at_least, which are the exact zeros and ones where the law is generic, cost a forward pass and the derivatives
of the activations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy
import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.linear.law import Law, law_or_reason
from skipscope.measure.descriptions import described
from skipscope.measure.selection import Units, attributes, chosen_units, labels, point_of
from skipscope.memory_limit import Memory, with_memory
from skipscope.renamed import renamed_parameters
from skipscope.spectrum import Spectrum
from skipscope.spectrum.full import COUNTS_AS_ONE, Route, full_spectrum
from skipscope.trace import Point, Trunk, Unit

if TYPE_CHECKING:
    import xarray

ROUTES = ("svd", "gram")  # both decompose the assembled matrix; the third, "law", would only repeat what is tested
BOUNDS = ("zeros", "ones", "above", "below", "near")
FROM_ACTIVATIONS = (
    *("size", "entries", "exits", "inactive", "carried", "inner_active", "factor", "generic"),
    *("zeros_at_least", "ones_at_least", "above_at_most", "below_at_most"),
)
NAMES = (*FROM_ACTIVATIONS, "inner_above", *BOUNDS, "near_at_least")
AT_ONCE = 256  # samples whose states are held at a time, where nothing is decomposed


@renamed_parameters(tolerance="tol")
@with_memory
def law(
    trunk: Trunk,
    x: Any,
    *,
    units: Units = None,
    tol: float | None = None,
    epsilon: float = 0.01,
    route: Route = "auto",
    count_only: bool = False,
    changed: Callable[[Unit], Unit] | None = None,
    memory: Memory | None = None,
) -> xarray.Dataset:
    """Counts and bounds at a batch of model inputs or a point; dimensions `unit` and `sample`, and `bound`.

    tol: values this close to c count as c, 1e-7 by default (or their error bound, where that is larger).
    route: "svd" or "gram", for the counted values; "auto" takes the more exact one, "svd".
    count_only: the bounds alone, from counts of active outputs and inner entries; for thousands of samples.
    changed: what each unit is replaced by, such as `lambda unit: ss.with_scaled_skip(unit, 0.5)`.
    """
    import xarray

    if count_only:
        return _bounds(trunk, x, chosen_units(trunk, units), changed)
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
    for unit in _changed(chosen, changed):
        found = _with_a_plateau(unit, point)
        reasons.append(found if isinstance(found, str) else "")
        rows.append(missing if isinstance(found, str) else _counted(found, unit, point, close, epsilon, route))
    columns = {name: torch.stack([row[name] for row in rows]).numpy() for name in NAMES}
    pair = ("unit", "sample")
    dataset = xarray.Dataset(
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
    return described(dataset)


def _changed(units: list[Unit], change: Callable[[Unit], Unit] | None) -> Iterator[Unit]:
    return iter(units) if change is None else map(change, units)


def _bounds(trunk: Trunk, x: Any, chosen: list[Unit], change: Callable[[Unit], Unit] | None) -> xarray.Dataset:
    """From counts of active entries alone."""
    import xarray

    units = list(_changed(chosen, change))
    reasons = [""] * len(units)
    batches = []
    for some in x.split(AT_ONCE) if isinstance(x, Tensor) else [x]:
        point = point_of(trunk, some)
        missing = torch.full((len(FROM_ACTIVATIONS), point.batch), float("nan"), dtype=torch.float64, device="cpu")
        rows = []
        for place, unit in enumerate(units):
            found = _with_a_plateau(unit, point)
            if isinstance(found, str):
                reasons[place] = found
                rows.append(missing)
            else:
                counts = _from_activations(found)
                rows.append(torch.stack([counts[name].cpu().double() for name in FROM_ACTIVATIONS]))
        batches.append(torch.stack(rows))
    values = torch.cat(batches, 2).numpy()  # units, names, samples
    for place, reason in enumerate(reasons):
        if reason:  # of any batch
            values[place] = float("nan")
    pair = ("unit", "sample")
    dataset = xarray.Dataset(
        {name: (pair, values[:, place]) for place, name in enumerate(FROM_ACTIVATIONS)},
        {
            **labels(chosen),
            "reason": ("unit", numpy.array(reasons, dtype=object)),
            "sample": list(range(values.shape[2])),
        },
        attributes("law_bounds", trunk),
    )
    return described(dataset)


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
    spectrum, inner = (full_spectrum(operator, route=route) for operator in (J, branch))
    # Where rounding decides whether a value counts, it is counted so that it does not contradict a bound.
    inner_above = (inner.values > epsilon - inner.bound).sum(1)
    counts = {
        **_from_activations(law),
        "inner_above": inner_above,
        **counts_around(spectrum, law.factor.cpu(), close, epsilon),
        "near_at_least": (law.carried.cpu() - 2 * inner_above).clamp_min(0),
    }
    return {name: count.cpu().double() for name, count in counts.items()}


def _from_activations(law: Law) -> dict[str, Tensor]:
    """(B,) each: what follows from which entries are active."""
    batch, exits = law.tail.shape
    return {
        "size": torch.full((batch,), law.size),
        "entries": torch.full((batch,), law.entries),
        "exits": torch.full((batch,), exits),
        "inactive": law.inactive,
        "carried": law.carried,
        "inner_active": law.rank,
        "factor": law.factor,
        "generic": law.generic,
        "zeros_at_least": law.zeros_at_least,
        "ones_at_least": law.ones_at_least,
        "above_at_most": law.above_at_most,
        "below_at_most": law.below_at_most,
    }


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
