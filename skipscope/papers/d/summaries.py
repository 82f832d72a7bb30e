"""What is kept of a spectrum for the claims: shares, means and quantiles, so that it can be judged again from little.

The reductions of D.spectra and D.proportions read this form, with the networks of one subject along `network`:

share_above, share_near_one, share_below, share_zero   as in `measure.spectra`
share_one                           within 1e-7 of 1
share_just_below, share_just_above  in [0.97, 0.99) and (1.01, 1.03], the neighbours of [0.99, 1.01]
largest, mean                       of all values
mean_positive, median_positive      of those that are not zero
quantile_off                        at 200 levels, of the values that are neither 0 nor 1
quantile                            at 512 levels, of all
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
import xarray

ONE = 1e-7  # a value this close to 1 counts as 1
LEVELS = (numpy.arange(200) + 0.5) / 200  # of the values that are neither 0 nor 1
ALL_LEVELS = (numpy.arange(512) + 0.5) / 512  # of all values
QUANTILES = {"quantile_off": "level", "quantile": "level_of_all"}  # and their dimensions


def summary(values: numpy.ndarray, zero: float) -> dict[str, Any]:
    """Of one sample's singular values, descending; shares are of all of them. zero: what is not above it is one."""
    positive = values[values > zero]
    off = positive[numpy.abs(positive - 1) > ONE]
    share = {
        "above": values > 1.01,
        "near_one": (values >= 0.99) & (values <= 1.01),
        "below": (values > zero) & (values < 0.99),
        "zero": values <= zero,
        "one": numpy.abs(values - 1) <= ONE,
        "just_below": (values >= 0.97) & (values < 0.99),
        "just_above": (values > 1.01) & (values <= 1.03),
    }
    return {
        **{f"share_{name}": float(which.mean()) for name, which in share.items()},
        "largest": float(values[0]),
        "mean": float(values.mean()),
        "mean_positive": float(positive.mean()) if len(positive) else numpy.nan,
        "median_positive": float(numpy.median(positive)) if len(positive) else numpy.nan,
        "quantile_off": numpy.quantile(off, LEVELS) if len(off) else numpy.full(len(LEVELS), numpy.nan),
        "quantile": numpy.quantile(values, ALL_LEVELS),
    }


def of_samples(rows: Sequence[dict[str, Any]]) -> xarray.Dataset:
    """The summaries of one unit's samples as a dataset."""
    data: dict[str, Any] = {
        name: ("sample", numpy.array([row[name] for row in rows])) for name in rows[0] if name not in QUANTILES
    }
    for name, dimension in QUANTILES.items():
        data[name] = (("sample", dimension), numpy.stack([row[name] for row in rows]).astype("float32"))
    return xarray.Dataset(data, {"level": LEVELS, "level_of_all": ALL_LEVELS})


def summarised(spectra: xarray.Dataset) -> xarray.Dataset:
    """Of the full spectra of one network, as `measure.spectra` gives them."""
    units = [_of_unit(spectra.isel(unit=place)) for place in range(spectra.sizes["unit"])]
    labels = {name: spectra[name] for name in ("unit", "kind", "skip", "stage")}
    return xarray.concat(units, "unit").assign_coords(labels).assign_attrs(spectra.attrs)


def _of_unit(spectrum: xarray.Dataset) -> xarray.Dataset:
    """Zeros are those that the measurement counted: where its bounds cannot tell, the smallest values are kept."""
    rows = []
    for sample in range(spectrum.sizes["sample"]):
        values = spectrum["value"].isel(sample=sample).dropna("index").values
        zeros = round(float(spectrum["share_zero"].isel(sample=sample).fillna(0)) * len(values))
        rows.append(summary(values, float(values[len(values) - zeros]) if zeros else 0.0))
    return of_samples(rows)
