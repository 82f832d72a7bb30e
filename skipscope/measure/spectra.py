"""The spectra of a trunk: all singular values of every unit's and every stage's Jacobian, one sample at a time.

With sigma_1 >= sigma_2 >= ... the size = min(m, n) singular values of a Jacobian of n entries and m exits:

value, bound        the values, and how far each may be from the exact one; NaN after the last
largest, mean       sigma_1, and the mean of all
share_above         the share of the values above 1.01
share_near_one      in [0.99, 1.01], the bucket of Rothauge, Yao, Hu and Mahoney (linearised stability)
share_below         below 0.99 but not zero
share_zero          zero within the tolerance of `singular_values`; the four shares are of `size` and sum to 1
zeros, ones         counts of the values that are 0 and 1 up to rounding; NaN where the bounds cannot tell
zeros_at_least, ones_at_least   what is proved of them: zero rows and columns; the law of `linear.law`
rank                size - zeros
converged           whether every bound is within 1e-6 of the largest value
route               how the values were found: law, gram or svd

For a unit that changes the size of the state (m is not n) shares are of the min(m, n) values: the zeros that a wide or
tall matrix has for its shape alone do not count.

Cost per unit and sample: min(m, n) products, and a dense problem of min(m, n)^3 operations (less by the law). One
unit and one sample are in memory at a time: 8 m n bytes and work of the same size.

`leading` is for units whose full spectrum costs too much, at some hundred products per sample and without a matrix:

value, residual, converged  the k largest singular values by block Golub-Kahan iteration (`spectrum.svd`); a value is
                            within its residual of an exact one
products                    vectors multiplied, per sample
share_above, share_near_one     as above, estimated from random probes (`spectrum.spectral_density`)
share_above_error, share_near_one_error     standard error over the probes plus the quadrature's bias
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy
import torch
from torch import Tensor

from skipscope.linear import Operator
from skipscope.measure.descriptions import described
from skipscope.measure.selection import (
    Jacobians,
    Samples,
    Units,
    attributes,
    chosen_units,
    filled,
    labels,
    point_of,
    sample_indices,
)
from skipscope.memory_limit import Memory, with_memory
from skipscope.progress import Progress, called, with_progress
from skipscope.spectrum import Spectrum, spectral_density, svd
from skipscope.spectrum.full import Route, full_spectrum
from skipscope.trace import Point, Span, Trunk, Unit
from skipscope.trace.freshness import asked_once

if TYPE_CHECKING:
    import xarray

NEAR_ONE = (0.99, 1.01)
ACCURACY = 1e-6

QUANTITIES: dict[str, Callable[[Spectrum], Tensor]] = {
    "largest": lambda s: s.values[:, 0],
    "mean": lambda s: s.values.mean(1),
    "share_above": lambda s: _share(s, s.values > NEAR_ONE[1]),
    "share_near_one": lambda s: _share(s, (s.values >= NEAR_ONE[0]) & (s.values <= NEAR_ONE[1])),
    "share_below": lambda s: _share(s, s.values < NEAR_ONE[0]),
    "share_zero": lambda s: s.zeros / s.values.shape[1],
    "zeros": lambda s: s.zeros,
    "zeros_at_least": lambda s: s.zeros_at_least,
    "ones": lambda s: s.ones,
    "ones_at_least": lambda s: s.ones_at_least,
    "rank": lambda s: s.rank,
    "converged": lambda s: s.bound.amax(1) <= ACCURACY * s.values[:, 0],
}


@with_progress
@with_memory
def spectra(
    trunk: Trunk,
    x: Any,
    *,
    units: Units = None,
    stages: bool | Sequence[int] = True,
    route: Route = "auto",
    samples: Samples = None,
    memory: Memory | None = None,
    progress: Progress | bool | None = None,
) -> xarray.Dataset:
    """Measure at a batch of model inputs or a point; dimensions `unit`, `sample` and `index`.

    units: names or indices, all by default.
    stages: whole stages as well, after the units (coordinate `kind`): all, none, or those with these indices in the
    list `trunk.stages`, so 0 is the first. Names, `unit.stage` and the coordinate `stage` count stages from 1.
    route: "law", "gram" or "svd" for all; "auto" takes the cheapest that is accurate enough.
    samples: how many of the first, or which of the batch; all by default.
    """
    point = point_of(trunk, x)
    chosen = chosen_units(trunk, units)
    whole = [stage for stage in trunk.stages if (stages if isinstance(stages, bool) else stage.index in stages)]
    spans: list[Span] = [*chosen, *whole]
    indices = sample_indices(point.batch, samples)
    found = spectra_of(Jacobians(spans, point_of(trunk, point, samples)), route=route, progress=called(progress))
    known = labels(chosen)
    found = found.assign_coords(
        kind=("unit", ["unit"] * len(chosen) + ["stage"] * len(whole)),
        skip=("unit", [*known["skip"][1], *("" for _ in whole)]),
        branch=("unit", [*known["branch"][1], *("" for _ in whole)]),
        stage=("unit", [*known["stage"][1], *(stage.number for stage in whole)]),
        sample=indices,
    )
    return described(found.assign_attrs(mode="eval", notes="; ".join(trunk.notes)))


@asked_once()
def spectra_of(
    operators: Mapping[str, Operator], *, route: Route = "auto", progress: Progress | None = None
) -> xarray.Dataset:
    """The same numbers of operators with one number of samples, by name; one operator is looked up at a time."""
    import xarray

    rows: list[Spectrum] = []
    types = set()
    for done, name in enumerate(operators):
        if progress is not None:
            progress(done, len(operators))
        operator = operators[name]
        types.add(str(operator.dtype).removeprefix("torch."))
        rows.append(full_spectrum(operator, tol=ACCURACY, route=route))
    if progress is not None:
        progress(len(operators), len(operators))
    longest = max(spectrum.values.shape[1] for spectrum in rows)
    pair = ("unit", "sample")
    data: dict[str, Any] = {
        "value": ((*pair, "index"), _stacked(rows, lambda s: filled(s.values, longest))),
        "bound": ((*pair, "index"), _stacked(rows, lambda s: filled(s.bound, longest))),
        **{name: (pair, _stacked(rows, get)) for name, get in QUANTITIES.items()},
        "route": (pair, numpy.array([spectrum.routes for spectrum in rows], dtype=object)),
        "size": (("unit",), numpy.array([spectrum.values.shape[1] for spectrum in rows])),
        "entries": (("unit",), numpy.array([spectrum.shape[2] for spectrum in rows])),
        "exits": (("unit",), numpy.array([spectrum.shape[1] for spectrum in rows])),
    }
    about = {
        "measure": "spectra",
        "route": route,
        "near_one": NEAR_ONE,
        "accuracy": ACCURACY,
        "dtype": ", ".join(sorted(types)),
        "computed_in": "float64",
    }
    return described(xarray.Dataset(data, {"unit": list(operators), "sample": list(range(rows[0].shape[0]))}, about))


def joined(parts: Sequence[xarray.Dataset], order: Sequence[str]) -> xarray.Dataset:
    """What was measured unit by unit as one dataset, its units in the given order; spectra are filled up with NaN."""
    import xarray

    longest = max(part.sizes.get("index", 0) for part in parts)
    padded = [part.pad(index=(0, longest - part.sizes["index"])) if longest else part for part in parts]
    together = xarray.concat(padded, "unit", combine_attrs="override")
    return described(together.sel(unit=[name for name in order if name in together["unit"].values]))


def _share(spectrum: Spectrum, which: Tensor) -> Tensor:
    """(B,) of the values that are not zero, relative to all."""
    return (which & (spectrum.values > spectrum.tolerance[:, None])).double().mean(1)


def _stacked(rows: list[Spectrum], get: Callable[[Spectrum], Tensor]) -> numpy.ndarray:
    return torch.stack([get(spectrum) for spectrum in rows]).numpy()


@asked_once()
@with_memory
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
    memory: Memory | None = None,
) -> xarray.Dataset:
    """Measure at a batch of model inputs or a point; dimensions `unit`, `sample` and `rank`."""
    import xarray

    chosen, point = chosen_units(trunk, units), point_of(trunk, x)
    rows = [_leading(unit, point, k, max_products, probes, steps, seed) for unit in chosen]
    data: dict[str, Any] = {}
    for name in rows[0]:
        column = torch.stack([row[name] for row in rows]).cpu().numpy()
        data[name] = (("unit", "sample", "rank")[: column.ndim], column)
    dataset = xarray.Dataset(
        data,
        {**labels(chosen), "sample": list(range(point.batch))},
        attributes("leading", trunk, near_one=NEAR_ONE, probes=probes, steps=steps, seed=seed),
    )
    return described(dataset)


def _leading(
    unit: Unit, point: Point, k: int, max_products: int | None, probes: int, steps: int, seed: int
) -> dict[str, Tensor]:
    J = unit.jacobian(point)
    top = svd(J, k=min(k, *J.shape[1:]), max_products=max_products, seed=seed)
    density = spectral_density(J, probes=probes, steps=steps, seed=seed)
    low, high = NEAR_ONE
    above, near = density.count(high, float("inf")), density.count(low, high)
    return {
        "value": filled(top.S.double(), k),
        "residual": filled(top.residuals.double(), k),
        "converged": filled(top.converged, k, True),
        "products": top.products + density.products,
        "share_above": above.value,
        "share_above_error": above.standard_error + above.bias,
        "share_near_one": near.value,
        "share_near_one_error": near.standard_error + near.bias,
    }
