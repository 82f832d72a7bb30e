"""Solvers on operators; every result carries its error: a bound, residuals or a standard error."""

from skipscope.spectrum.condition import Condition, condition_number, percentile_condition
from skipscope.spectrum.density import Density, Estimate, spectral_density
from skipscope.spectrum.full import Spectrum, singular_values
from skipscope.spectrum.lanczos import Eigs, Inertia, eigs, inertia
from skipscope.spectrum.plan import Plan, plan
from skipscope.spectrum.truncated_svd import SVD, svd

__all__ = [
    "SVD",
    "Condition",
    "Density",
    "Eigs",
    "Estimate",
    "Inertia",
    "Plan",
    "Spectrum",
    "condition_number",
    "eigs",
    "inertia",
    "percentile_condition",
    "plan",
    "singular_values",
    "spectral_density",
    "svd",
]
