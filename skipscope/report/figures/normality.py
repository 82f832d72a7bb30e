"""Eigenvalues of unit Jacobians: curves over the units, and the eigenvalues themselves in the complex plane."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy
import xarray

from skipscope.report.charts import Series, axis, chart
from skipscope.report.figures.curves import Quantity, curves
from skipscope.report.style import names_of, thinned

UNITS = {
    "departure": Quantity("departure from normality, 0 = normal", "share"),
    "amplification": Quantity("largest singular value / spectral radius, 1 = normal", "ratio"),
    "spectral_radius": Quantity("spectral radius", "|eigenvalue|"),
    "rotation": Quantity("share of imaginary parts, 0 = all real", "share"),
}
UNITS_DRAWN = 6  # of more, evenly spaced
VALUES_DRAWN = 1500  # of more eigenvalues of a unit, evenly spaced


def normality(datasets: xarray.Dataset | Mapping[str, xarray.Dataset]) -> Any:
    """Departure from normality, amplification, spectral radius and rotation, unit by unit; medians over the samples
    with their quartiles. datasets: of `ss.normality`."""
    return curves(datasets, UNITS, "unit")


def eigenvalues(dataset: xarray.Dataset, sample: int = 0) -> Any:
    """The eigenvalues of one sample in the complex plane, one panel per unit. dataset: of `ss.normality`."""
    there = [k for k, reason in enumerate(names_of(dataset, "reason")) if not reason]
    shown = [there[k] for k in thinned(len(there), UNITS_DRAWN)]
    series, names = [], names_of(dataset, "unit")
    for panel, unit in enumerate(shown):
        real, imaginary = plane(dataset, unit, sample)
        hover = "%{x:.3g} + %{y:.3g} i"
        series.append(Series("eigenvalues", real, imaginary, hover, "", panel, mode="markers", size=4, labelled=False))
    columns = min(3, len(shown))
    rows = -(-len(shown) // columns)
    return chart(
        series,
        panels=[names[unit] for unit in shown],
        columns=columns,
        x=axis("real part"),
        y=axis("imaginary part"),
        height=300 * rows + 100,
        vertical_spacing=0.3 / rows,
        horizontal_spacing=0.1,
    )


def plane(dataset: xarray.Dataset, unit: int, sample: int) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Real and imaginary parts of the eigenvalues that are drawn."""
    here = dataset.isel(unit=unit, sample=sample)
    real, imaginary = here["eigenvalue_real"].values, here["eigenvalue_imaginary"].values
    there = numpy.flatnonzero(numpy.isfinite(real))
    kept = there[thinned(len(there), VALUES_DRAWN)]
    return real[kept], imaginary[kept]
