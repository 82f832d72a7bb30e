"""Every measurement on one model, as far as the budget goes.

Cheap measurements of all units come first (profile, tests of the linearisation, condition numbers), then full spectra
from the smallest unit to the largest, then whole stages and the exact law. A unit whose full spectrum does not fit the
time or the memory gets its largest singular values instead. What was left out is listed with the reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from skipscope.errors import InputError
from skipscope.inspection.budget import Budget, seconds_in
from skipscope.inspection.result import Result
from skipscope.linear import Operator
from skipscope.measure import law, profile, spectra, state_conditions, verification, weight_conditions
from skipscope.measure.leading import leading
from skipscope.measure.selection import point_of
from skipscope.measure.spectra import joined
from skipscope.spectrum import plan
from skipscope.trace import Span, Stage, Trunk, trace

if TYPE_CHECKING:
    import xarray

Progress = Callable[[str, int, int], None]  # what is done now, how much of it is done, how much there is
Keep = Callable[[str, "xarray.Dataset"], object]  # called with every dataset as soon as it is there
LEADING = 10  # singular values of a unit that is too large for all of them
LAW_FACTOR = 3.0  # cost of the law beside a spectrum: two more spectra, by routes that do not use it


def inspect(
    model: nn.Module,
    x: Any,
    *,
    budget: float | str = "5m",
    units: Sequence[str] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Result:
    """Measure a model at a batch, in about `budget` (seconds, or text such as "5m").

    units: names of modules that are residual units, where the model cannot be exported.
    """
    seconds = seconds_in(budget)
    trunk = trace(model, x, units=units)
    made: dict[str, xarray.Dataset] = {}
    left_out = dict(steps(trunk, x, seconds, seed=seed, progress=progress, keep=made.__setitem__))
    parameters = {"budget": seconds, "trunk": trunk.to_dict()}
    return Result(made, parameters, left_out, seed=seed, device=str(device_of(trunk, x)))


def steps(
    trunk: Trunk, x: Any, seconds: float, *, seed: int, progress: Progress | None, keep: Keep
) -> Iterator[tuple[str, str]]:
    """Make all datasets and give them to `keep`; yields what was left out, and why."""
    say = progress or (lambda what, done, total: None)
    if not trunk.units:
        raise InputError(
            f"{type(trunk.model).__name__} has no residual units to measure"
            + (f"; left out: {trunk.left_out[0]}" if trunk.left_out else "")
        )
    point = trunk.at(x)
    budget = Budget(seconds, device_of(trunk, point))
    cheap: dict[str, Callable[[], xarray.Dataset]] = {
        "profile": lambda: profile(trunk, x, seed=seed),
        "verification": lambda: verification(trunk, point),
        "states": lambda: state_conditions(trunk, point),
    }
    for done, (name, measure) in enumerate(cheap.items()):
        say("profile, tests, condition numbers", done, len(cheap) + 1)
        if budget.left > 0:
            keep(name, measure())
        else:
            yield name, _late(budget)
    yield from _weights(trunk.model, budget, keep)
    say("profile, tests, condition numbers", len(cheap) + 1, len(cheap) + 1)

    full: list[str] = []
    large: list[str] = []
    found: list[xarray.Dataset] = []
    for done, unit in enumerate(sorted(trunk.units, key=lambda unit: _size(unit.jacobian(point)))):  # type: ignore[attr-defined]
        say("spectra", done, len(trunk.units))
        reason = _spectrum(unit, trunk, point, budget, found)
        (large if reason else full).append(unit.name)
        if reason:
            yield f"all singular values of {unit.name}", reason
    for stage in trunk.stages:
        if len(stage.units) > 1:
            reason = _spectrum(stage, trunk, point, budget, found)
            if reason:
                yield f"all singular values of {stage.name}", reason
    say("spectra", len(trunk.units), len(trunk.units))
    if found:
        order = [span.name for span in (*trunk.units, *trunk.stages)]
        keep("spectra", joined(found, order))
    yield from _leading(large, trunk, point, seed, budget, keep, say)
    yield from _law(full, trunk, point, budget, keep, say)


def _spectrum(span: Span, trunk: Trunk, point: Any, budget: Budget, found: list[xarray.Dataset]) -> str:
    """Measure, or say why not."""
    J = span.jacobian(point)  # type: ignore[attr-defined]
    cost = plan(J)
    if not cost.fits:
        return f"it needs {cost.bytes / 2**30:.1f} GiB, {cost.free / 2**30:.1f} GiB are free"
    estimate = budget.for_spectrum(J)
    if estimate > budget.left:
        return f"it would take about {estimate:.0f} s, {max(budget.left, 0):.0f} s were left"
    start = time.monotonic()
    if isinstance(span, Stage):
        found.append(spectra(trunk, point, units=[], stages=[span.index]))
    else:
        found.append(spectra(trunk, point, units=[span.name], stages=False))
    budget.learn(estimate, time.monotonic() - start)
    return ""


def _weights(model: nn.Module, budget: Budget, keep: Keep) -> Iterator[tuple[str, str]]:
    """Condition numbers of the weights that a tenth of the time is enough for."""
    allowed, chosen = budget.seconds / 10, []
    for name, weight in sorted(model.named_parameters(), key=lambda named: named[1].numel()):
        if weight.dim() < 2:
            continue
        small, large = sorted((weight.shape[0], weight.numel() // max(weight.shape[0], 1)))
        allowed -= budget.for_operations(8.0 * large * small**2)
        if allowed < 0:
            yield f"condition number of {name}", "the weights' share of the time, a tenth, was used up"
        else:
            chosen.append(name)
    if chosen:
        keep("weights", weight_conditions(model, parameters=chosen))


def _leading(
    names: list[str], trunk: Trunk, point: Any, seed: int, budget: Budget, keep: Keep, say: Progress
) -> Iterator[tuple[str, str]]:
    found: list[xarray.Dataset] = []
    for done, name in enumerate(names):
        say("leading singular values", done, len(names))
        if budget.left <= 0:
            yield f"leading singular values of {name}", _late(budget)
        else:
            found.append(leading(trunk, point, units=[name], k=LEADING, seed=seed))
    if names:
        say("leading singular values", len(names), len(names))
    if found:
        import xarray

        keep("leading", xarray.concat(found, "unit", combine_attrs="override"))


def _law(
    names: list[str], trunk: Trunk, point: Any, budget: Budget, keep: Keep, say: Progress
) -> Iterator[tuple[str, str]]:
    """On the units with full spectra, from the smallest on."""
    found: list[xarray.Dataset] = []
    for done, name in enumerate(names):
        say("the exact law", done, len(names))
        estimate = LAW_FACTOR * budget.for_spectrum(trunk[name].jacobian(point))  # type: ignore[attr-defined]
        if estimate > budget.left:
            yield f"the law on {name}", f"it would take about {estimate:.0f} s, {max(budget.left, 0):.0f} s were left"
        else:
            found.append(law(trunk, point, units=[name], route="gram"))
    if names:
        say("the exact law", len(names), len(names))
    if found:
        import xarray

        keep("law", xarray.concat(found, "unit", combine_attrs="override"))


def device_of(trunk: Trunk, x: Any) -> torch.device:
    """Where the states live."""
    return point_of(trunk, x).entry(trunk.units[0]).device


def _size(J: Operator) -> int:
    return min(J.shape[1:])


def _late(budget: Budget) -> str:
    return f"the budget of {budget.seconds:.0f} s was used up"
