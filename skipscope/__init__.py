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
    from skipscope.check import Forecast, check
    from skipscope.errors import InputError, SkipscopeError, TraceError
    from skipscope.inspection import Result, inspect, load
    from skipscope.linear import Dense, Hessian, Jacobian, Operator, verify
    from skipscope.measure import (
        alignment,
        collapse,
        conditioning,
        curvature,
        law,
        profile,
        spectra,
        stability,
        trajectories,
    )
    from skipscope.spectrum import condition_number, eigs, inertia, plan, singular_values, spectral_density, svd
    from skipscope.trace import Point, Segment, Span, Stage, Trunk, Unit, trace

__version__ = "0.1.0"

__all__ = [
    "Dense",
    "Forecast",
    "Hessian",
    "InputError",
    "Jacobian",
    "Operator",
    "Point",
    "Result",
    "Segment",
    "SkipscopeError",
    "Span",
    "Stage",
    "TraceError",
    "Trunk",
    "Unit",
    "alignment",
    "check",
    "collapse",
    "condition_number",
    "conditioning",
    "curvature",
    "eigs",
    "inertia",
    "inspect",
    "law",
    "load",
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
    "verify",
]

_MODULES = {"plot": "skipscope.plot"}  # public names that are modules themselves
_HOMES = homes(
    __name__,
    {
        "check": "Forecast check",
        "errors": "InputError SkipscopeError TraceError",
        "inspection": "Result inspect load",
        "linear": "Dense Hessian Jacobian Operator verify",
        "measure": "alignment collapse conditioning curvature law profile spectra stability trajectories",
        "spectrum": "condition_number eigs inertia plan singular_values spectral_density svd",
        "trace": "Point Segment Span Stage Trunk Unit trace",
    },
)


class _Package(Deferred):
    def __getattr__(self, name: str) -> Any:
        return import_module(_MODULES[name]) if name in _MODULES else super().__getattr__(name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})


sys.modules[__name__].__class__ = _Package
