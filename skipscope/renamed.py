"""Names that changed: the old ones work for one release, with a warning that gives the new one.

Two kinds of names change. A parameter: `@renamed_parameters(tolerance="tol")`. A place to import from: `MOVED` lists
them, and a package that something moved out of says `keep_old_names(__name__)`. The places are strings, resolved on
first use, because the core imports no paper.

Warnings are `FutureWarning`s: Python shows a `DeprecationWarning` in the main program alone, and an old name is as
often in a module of the user's own.
"""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

# By the package that the names were in: where they are now, and which, with spaces between them; OLD:NEW where the name
# itself is another one.
MOVED: Mapping[str, Mapping[str, str]] = {
    "skipscope.theory": {
        "skipscope.papers.a.theory": (
            "LOSSES AlignedTrajectory LinearisedLogit Solution TraceInequality UnconstrainedJacobians boundary_points "
            "gamma_growth inverse_affine linearised_logit theorem31 theorem33 trace_inequality"
        ),
        "skipscope.papers.b.theory": (
            "HessianAtZero LemmaOne SmallNormNetwork SpherePath commutation hessian_at_zero hessian_from_moments "
            "lemma1 lemma2 theorem1 unit_labels"
        ),
        "skipscope.papers.c.theory": (
            "ENTRIES CommutingProduct LinearGradients MatrixProduct PerturbedLeastSquares RankOfProduct "
            "ResidualIsometry commuting_product gaussian_exponents linear_gradients matrix_product proposition3 "
            "random_matrices random_product rank_of_product residual_isometry singular small_branch_exponents "
            "worst_change"
        ),
    },
    "skipscope.models": {
        "skipscope.papers.a.networks": "AlignmentNet AlignmentSpec",
        "skipscope.papers.b.networks": (
            "Moments Samples ShortcutHessian ShortcutNet ShortcutSpec initial_weights loss_and_gradient "
            "shortcut_hessian"
        ),
    },
    "skipscope.training": {
        "skipscope.papers.b.networks": "Ensemble Member grid member_weights train_ensemble",
    },
    "skipscope.measure": {"skipscope.papers.c.measures": "layer_sensitivity sensitivity"},
    "skipscope.measure.alignment_summary": {"skipscope.measure": "summary:alignment_summary"},
    "skipscope.studies": {
        "skipscope.papers.kit.catalogue": "find",
        "skipscope.papers.kit.running": "Outcome run_studies",
        "skipscope.papers.kit.names": "PRESETS",
        "skipscope.papers.kit.study": "Study",
    },
    "skipscope.runs": {"skipscope.papers.kit": "Claim"},
}


def renamed_parameters(*, positional: Sequence[str] = (), **names: str) -> Callable[[Function], Function]:
    """names: old and new ones. positional: parameters that are given by name now and could be given by position, after
    those that still can."""

    def decorate(function: Function) -> Function:
        parameters = inspect.signature(function).parameters.values()
        count = sum(parameter.kind is parameter.POSITIONAL_OR_KEYWORD for parameter in parameters)
        called = function.__qualname__.removesuffix(".__init__")

        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            if len(args) <= count + len(positional):  # with more of them Python itself says what is wrong
                for name, value in zip(positional, args[count:], strict=False):
                    _warn(f"{called}: give {name} by its name, {name}=...; by position is the old form")
                    _put(called, options, name, name, value)
                args = args[:count]
            for old, new in names.items():
                if old in options:
                    _warn(f"{called}: {old}= is now {new}=")
                    _put(called, options, old, new, options.pop(old))
            return function(*args, **options)

        return call  # type: ignore[return-value]

    return decorate


def _put(called: str, options: dict[str, Any], old: str, new: str, value: Any) -> None:
    if new in options:
        also = "by position and by name" if old == new else f"as {old}= too, its old name"
        raise TypeError(f"{called}: {new}= is given {also}; give it once")
    options[new] = value


def old_names() -> list[tuple[str, str, str, str]]:
    """Of everything that moved: the package it was in and its name there, where it is now and its name there."""
    return [
        (package, name.partition(":")[0], place, name.rpartition(":")[2])
        for package, places in MOVED.items()
        for place, listed in places.items()
        for name in listed.split()
    ]


def keep_old_names(package: str) -> None:
    """Called by a package that names of `MOVED` were in."""
    moved = {old: (place, new) for former, old, place, new in old_names() if former == package}

    def old_name(name: str) -> Any:
        if name not in moved:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        place, new = moved[name]
        try:
            value = getattr(import_module(place), new)
        except ModuleNotFoundError as error:
            raise ImportError(f"{package}.{name} is now {place}.{new}, which is not installed") from error
        _warn(f"{package}.{name} is now {place}.{new}")
        return value

    sys.modules[package].__dict__["__getattr__"] = old_name


def _warn(message: str) -> None:
    warnings.warn(f"{message}; the old form works until the next release", FutureWarning, stacklevel=3)
