"""skipscope shows what the skip connections do inside a network.

Public names are imported when they are first used: torch takes seconds to import, which `skipscope --help` and a
shell's completion do not have.
"""
# ruff: noqa: F403

from typing import TYPE_CHECKING

from skipscope.deferred import defer
from skipscope.waiting import sleep_while_waiting

if TYPE_CHECKING:  # a star where all public names of a folder are also those of the package
    from skipscope import plot as plot
    from skipscope.check import *
    from skipscope.errors import InputError as InputError
    from skipscope.errors import SkipscopeError as SkipscopeError
    from skipscope.errors import TraceError as TraceError
    from skipscope.findings import Finding as Finding
    from skipscope.inspection import *
    from skipscope.linear import Dense as Dense
    from skipscope.linear import Hessian as Hessian
    from skipscope.linear import Jacobian as Jacobian
    from skipscope.linear import Operator as Operator
    from skipscope.linear import Verification as Verification
    from skipscope.linear import verify as verify
    from skipscope.measure import *
    from skipscope.models import build as build
    from skipscope.models import on_disk as on_disk
    from skipscope.monitor import *
    from skipscope.runs.executors.execution import Execution as Execution
    from skipscope.spectrum import *
    from skipscope.sweeps import sweep as sweep
    from skipscope.trace import *
    from skipscope.trace.contract import Contract as Contract
    from skipscope.trace.contract import HookPlace as HookPlace
    from skipscope.trace.contract import HookStep as HookStep
    from skipscope.trace.contract import Summand as Summand
    from skipscope.trace.contract import UnitContract as UnitContract
    from skipscope.trace.surgery import noisy_weights as noisy_weights
    from skipscope.trace.surgery import with_scaled_skip as with_scaled_skip
    from skipscope.trace.surgery import with_weights as with_weights

__version__ = "0.2.0.dev0"

sleep_while_waiting()

__all__ = defer(
    __name__,
    {
        "": "plot",
        "check": "Attempt Forecast ShortTraining Trial check",
        "errors": "InputError SkipscopeError TraceError",
        "findings": "Finding",
        "inspection": "Report Result inspect load report",
        "linear": "Dense Hessian Jacobian Operator Verification verify",
        "measure": (
            "DepthFit alignment alignment_summary collapse conditioning coupling curvature depth_fit depth_use "
            "law leading lens normality profile spectra stability streams trajectories verification"
        ),
        "models": "build on_disk",
        "runs.executors.execution": "Execution",
        "monitor": "Alarm Monitor",
        "spectrum": (
            "SVD Condition Density Eigs Estimate Inertia Plan Spectrum condition_number eigs inertia "
            "percentile_condition plan singular_values spectral_density svd"
        ),
        "sweeps": "sweep",
        "trace": "Point Segment Span Stage Trunk Unit trace",
        "trace.contract": "Contract HookPlace HookStep Summand UnitContract",
        "trace.surgery": "noisy_weights with_scaled_skip with_weights",
    },
)
