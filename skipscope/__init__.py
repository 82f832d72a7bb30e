"""skipscope shows what the skip connections do inside a network.

Public names are imported when they are first used: torch takes seconds to import, which `skipscope --help` and a
shell's completion do not have.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from skipscope.deferred import Deferred, homes

if TYPE_CHECKING:
    from skipscope import plot
    from skipscope.check import Finding, Forecast, check
    from skipscope.errors import InputError, SkipscopeError, TraceError
    from skipscope.inspection import Result, inspect, load
    from skipscope.linear import Dense, Hessian, Jacobian, Operator, Verification, verify
    from skipscope.measure import (
        DepthFit,
        alignment,
        alignment_summary,
        collapse,
        conditioning,
        curvature,
        depth_fit,
        law,
        leading,
        profile,
        spectra,
        stability,
        trajectories,
        verification,
    )
    from skipscope.models import build
    from skipscope.spectrum import (
        SVD,
        Condition,
        Density,
        Eigs,
        Estimate,
        Inertia,
        Plan,
        Spectrum,
        condition_number,
        eigs,
        inertia,
        percentile_condition,
        plan,
        singular_values,
        spectral_density,
        svd,
    )
    from skipscope.trace import Point, Segment, Span, Stage, Trunk, Unit, trace
    from skipscope.trace.surgery import noisy_weights, with_scaled_skip, with_weights

__version__ = "0.2.0.dev0"

__all__ = [
    "SVD",
    "Condition",
    "Dense",
    "Density",
    "DepthFit",
    "Eigs",
    "Estimate",
    "Finding",
    "Forecast",
    "Hessian",
    "Inertia",
    "InputError",
    "Jacobian",
    "Operator",
    "Plan",
    "Point",
    "Result",
    "Segment",
    "SkipscopeError",
    "Span",
    "Spectrum",
    "Stage",
    "TraceError",
    "Trunk",
    "Unit",
    "Verification",
    "alignment",
    "alignment_summary",
    "build",
    "check",
    "collapse",
    "condition_number",
    "conditioning",
    "curvature",
    "depth_fit",
    "eigs",
    "inertia",
    "inspect",
    "law",
    "leading",
    "load",
    "noisy_weights",
    "percentile_condition",
    "plan",
    "plot",
    "profile",
    "singular_values",
    "spectra",
    "spectral_density",
    "stability",
    "svd",
    "trace",
    "trajectories",
    "verification",
    "verify",
    "with_scaled_skip",
    "with_weights",
]

_MODULES = {"plot": "skipscope.plot"}  # public names that are modules themselves
_HOMES = homes(
    __name__,
    {
        "check": "Finding Forecast check",
        "errors": "InputError SkipscopeError TraceError",
        "inspection": "Result inspect load",
        "linear": "Dense Hessian Jacobian Operator Verification verify",
        "measure": (
            "DepthFit alignment alignment_summary collapse conditioning curvature depth_fit law leading "
            "profile spectra stability trajectories verification"
        ),
        "models": "build",
        "spectrum": (
            "SVD Condition Density Eigs Estimate Inertia Plan Spectrum condition_number eigs inertia "
            "percentile_condition plan singular_values spectral_density svd"
        ),
        "trace": "Point Segment Span Stage Trunk Unit trace",
        "trace.surgery": "noisy_weights with_scaled_skip with_weights",
    },
)


class _Package(Deferred):
    def __getattr__(self, name: str) -> Any:
        return import_module(_MODULES[name]) if name in _MODULES else super().__getattr__(name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})


sys.modules[__name__].__class__ = _Package
