"""Numbers of the whole spectrum of an exact Hessian, in float64."""

from __future__ import annotations

from typing import Any

import numpy
import torch
from torch import Tensor

from skipscope.papers.b.networks import Moments, ShortcutSpec, shortcut_hessian

LOG_CEILING = 14  # log10 of a condition number, above which it is rounding noise of float64
RELATIVE_NOISE = 10.0**-LOG_CEILING  # of the largest |lambda|: smaller ones are rounding errors
SMALL_QUANTILE = 0.1  # the quantile of |lambda| that stands for the smallest, as in the paper


def spectrum_numbers(spec: ShortcutSpec, weights: Tensor, moments: Moments) -> dict[str, float]:
    """index: the share of negative eigenvalues, except those that are rounding noise."""
    at = shortcut_hessian(spec, weights, moments)
    values = torch.linalg.eigvalsh(at.matrix)
    magnitudes = values.abs()
    largest, tenth = float(magnitudes.max()), float(magnitudes.quantile(SMALL_QUANTILE))
    return {
        "loss": at.loss,
        "gradient": float(at.gradient.norm()),
        "largest": largest,
        "tenth": tenth,
        "index": float((values < -RELATIVE_NOISE * largest).double().mean()),
    }


def log_condition(largest: Any, tenth: Any) -> numpy.ndarray:
    """log10 of largest / tenth; NaN where that is above LOG_CEILING, and hence rounding noise."""
    largest, tenth = numpy.asarray(largest, float), numpy.asarray(tenth, float)
    fine = tenth > RELATIVE_NOISE * largest
    return numpy.where(fine, numpy.log10(largest / numpy.where(fine, tenth, 1.0)), numpy.nan)
