"""Every measurement on one model, as far as the budget goes.

Cheap measurements of all units come first (profile, trajectories, tests of the linearisation, streams where units mix
several, condition numbers), and of models of tokens the use of depth, block coupling and the lens (`language`). Then
full spectra, from the smallest unit to the largest and then of whole stages; the largest singular values of the units
whose full spectrum did not fit the time or the memory; the alignment of the branches, of all units or none; and the
exact law on units with a full spectrum. Each of these has its share of the time and leaves what it does not need to the
next. What was left out is listed with the reason.

Costs are estimated from counts (products, operations) and from rates that are measured on this machine at the start. An
estimate may be off by some factor and is compared with what the last piece of the same work took. So a budget is kept
roughly.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

import skipscope.measure as measure
from skipscope.data.perturbations import fgsm, uniform_like
from skipscope.errors import InputError
from skipscope.inspection.duration import in_words, seconds_in
from skipscope.inspection.language import Language, TokenText, has_tokens
from skipscope.inspection.result import Result
from skipscope.linear import Operator
from skipscope.measure.layers import float_tensors, operations
from skipscope.measure.passed_states import state_shapes
from skipscope.measure.selection import point_of
from skipscope.measure.spectra import joined
from skipscope.memory_limit import Memory, with_memory
from skipscope.progress import Announce, Progress, announced, called, with_progress
from skipscope.spectrum.plan import DENSE_SIDE, counted
from skipscope.spectrum.rates import operations_per_second, product_seconds
from skipscope.trace import Point, Span, Stage, Trunk, Unit, trace
from skipscope.trace.read_weights import is_on_disk

if TYPE_CHECKING:
    import xarray

Keep = Callable[[str, "xarray.Dataset"], object]  # called with every dataset as soon as it is there
Planned = tuple[float, Callable[[], "xarray.Dataset"]]  # an estimate in seconds, and how to do it
LeftOut = Iterator[tuple[str, str]]  # what, and why

# The share of the budget that may be used up when each of them is done.
CONDITIONS, SPECTRA, LEADING, ALIGNMENT = 0.15, 0.6, 0.75, 0.9
SMALL_CHANGE = 0.01  # of the norm of the input, where a perturbation has no size of its own
DRAWN = 32  # samples, at most, whose paths are projected on planes
NOTICED = 0.2  # seconds: shorter pieces of work show nothing about speed
UNKEPT = 30.0  # seconds of work that a kill may cost
LARGEST = 10  # singular values of a unit that is too large for all of them
LEADING_PRODUCTS = 600  # a guess, for the estimate: of a vector with J or its transpose
DRAWS = 8  # random vectors for the chance level of alignment
ALIGNED = 4.0  # cost of an SVD with vectors over that of a spectrum
PARTS = 5  # that are announced: cheap measurements, all singular values, leading ones, alignment, the law
PARTS_OF_TOKENS = 6  # one more
NAMES_SHOWN = 3  # of units, in what was left out
LAW_FACTOR = 2.0  # cost of the law over that of a spectrum: it takes the spectra of J and of the branch


@with_progress
@with_memory
def inspect(
    model: nn.Module,
    x: Any,
    *,
    budget: float | str = "5m",
    units: Sequence[str] | None = None,
    calibrate: bool = False,
    seed: int = 0,
    token_text: Sequence[Sequence[str]] | None = None,
    memory: Memory | None = None,
    progress: Progress | bool | None = None,
) -> Result:
    """Measure a model at a batch, in about `budget` (seconds, or text such as "5m").

    units: names of modules that are residual units, where the model cannot be exported. calibrate: give batch norms
    that have never seen data the statistics of the batch, on a copy of the model. token_text: of a language model the
    text of each token, sample by sample, for the axes of figures. progress: called with how much is done and how much
    there is; True draws a bar.
    """
    seconds = seconds_in(budget)
    trunk = trace(model, x, units=units, calibrate=calibrate)
    parts = PARTS_OF_TOKENS if has_tokens(trunk, x) else PARTS
    announce, finish = announced("inspect", called(progress), parts)
    made: dict[str, xarray.Dataset] = {}
    text = None if token_text is None else TokenText(token_text)
    left_out = dict(steps(trunk, x, seconds, seed=seed, announce=announce, keep=made.__setitem__, text=text))
    finish()
    parameters = {"budget": seconds, "trunk": trunk.to_dict()}
    return Result(made, parameters, left_out, seed=seed, device=str(device_of(trunk, x)))


def steps(
    trunk: Trunk,
    x: Any,
    seconds: float,
    *,
    seed: int,
    announce: Announce,
    keep: Keep,
    there: Mapping[str, xarray.Dataset] | None = None,
    text: TokenText | None = None,
) -> LeftOut:
    """Make all datasets and give them to `keep`; yields what was left out, and why.

    there: what a run that was stopped has made; it is not measured again, and of spectra only what is not in it.
    text: of the tokens, where the batch is text.
    """
    there = there or {}
    require_units(trunk)
    point = trunk.at(x)
    refused = without_derivative(trunk, point)
    for unit_name, why in refused.items():
        yield f"everything linear of {unit_name}", why
    linear = [unit for unit in trunk.units if unit.name not in refused]
    names = [unit.name for unit in linear]
    work = Work(trunk, linear, point, Budget(seconds, device_of(trunk, point)), keep, announce, there)
    cheap: dict[str, Callable[[], xarray.Dataset]] = {
        "profile": lambda: measure.profile(trunk, point, units=names, seed=seed),
        "verification": lambda: measure.verification(trunk, point, units=names),
        "trajectories": lambda: measure.trajectories(trunk, point, projections=point.batch <= DRAWN, seed=seed),
    }
    if float_tensors(x):
        cheap["stability"] = lambda: _stability(trunk, x, names, seed)
    if any(unit.kind == "streams" for unit in trunk.units):
        cheap["streams"] = lambda: measure.streams(trunk, x)
    for done, (name, make) in enumerate(cheap.items()):
        announce("profile, tests, condition numbers", done, len(cheap) + 1)
        if name in there:
            continue
        if not work.budget.left > 0:
            yield name, f"the budget of {seconds:.0f} s was used up"
            continue
        try:
            keep(name, make())
        except InputError as error:
            if name != "streams":  # these alone may not go together: units that mix different numbers of them
                raise
            yield name, str(error)
    announce("profile, tests, condition numbers", len(cheap), len(cheap) + 1)
    work.point = point = trunk.at(x)  # of some trunks only the last point can be used, and perturbations made others
    yield from _conditioning(trunk, x, work.budget, keep, there.get("conditioning"))
    announce("profile, tests, condition numbers", len(cheap) + 1, len(cheap) + 1)

    if has_tokens(trunk, x) and not refused:
        yield from Language(work, x, text, seed).measured()

    units = sorted(linear, key=lambda unit: min(prod(unit.entry_shape), prod(unit.exit_shape)))
    stages = [
        stage
        for stage in trunk.stages
        if len(stage.units) > 1 and not any(unit.name in refused for unit in stage.units)
    ]
    yield from work.through("spectra", "all singular values", [*units, *stages], work.spectrum, SPECTRA)
    full = [unit for unit in units if unit.name in work.done["spectra"]]
    large = [unit for unit in units if unit not in full]
    yield from work.through("leading", "leading singular values", large, lambda s: work.leading(s, seed), LEADING)
    yield from work.alignment(seed)
    speaking, silent = work.where_the_law_speaks(full)
    if silent:
        yield f"the law of {_named(silent)}", "it proves no zero and no one there: a test would show nothing"
    yield from work.through("law", "the law", speaking, work.law, 1.0)


def _named(units: Sequence[Unit]) -> str:
    names = [unit.name for unit in units]
    more = f" and {len(names) - NAMES_SHOWN} more units" if len(names) > NAMES_SHOWN else ""
    return f"{', '.join(names[:NAMES_SHOWN])}{more}"


def without_derivative(trunk: Trunk, point: Point) -> dict[str, str]:
    """Units whose derivative cannot be had or trusted, with the reason; an InputError where that holds of all."""
    reasons = {}
    for unit in trunk.units:
        try:
            unit.jacobian(point)
        except InputError as error:
            reasons[unit.name] = str(error)
            if len(reasons) == len(trunk.units):
                raise
    return reasons


def require_units(trunk: Trunk) -> None:
    if not trunk.units:
        why = f"; left out: {trunk.left_out[0]}" if trunk.left_out else ""
        raise InputError(
            f"{type(trunk.model).__name__} has no residual units to measure{why}; condition numbers (ss.conditioning) "
            "and `skipscope check` need none"
        )


def _stability(trunk: Trunk, x: Any, units: Sequence[str], seed: int) -> xarray.Dataset:
    """Adversarial and random perturbations of a classifier's images, with its own answers as labels; random ones of one
    per cent of the input's norm where it is no classifier or no image can be flipped."""
    if isinstance(x, Tensor) and x.dim() == 4:
        answers = trunk.at(x).output
        if isinstance(answers, Tensor) and answers.dim() == 2 and answers.shape[1] > 1:
            with trunk.runnable(x) as model:
                found = fgsm(model, x, answers.argmax(1))
            if len(found.kept):
                kinds = {"adversarial": found.perturbation, "random": uniform_like(found.perturbation, seed)}
                steps = [float(step) for step in found.eps]
                measured = measure.stability(trunk, found.images, perturbation=kinds, units=units)
                return measured.assign_attrs(step=steps, not_flipped=found.not_flipped)
    change = {"random": uniform_like(SMALL_CHANGE * float_tensors(x)[0], seed)}
    return measure.stability(trunk, x, perturbation=change, units=units)


class Budget:
    """Time that may be spent, and what things will cost."""

    def __init__(self, seconds: float, device: torch.device) -> None:
        self.seconds = seconds
        self._start = time.monotonic()
        self._rate = operations_per_second(device)

    @property
    def left(self) -> float:
        return self.seconds - (time.monotonic() - self._start)

    def for_operations(self, operations: float) -> float:
        """Estimated seconds of dense linear algebra."""
        return operations / self._rate

    def for_products(self, J: Operator, count: int) -> float:
        """Estimated seconds of `count` products with a vector, for all samples at once."""
        return product_seconds(J) * (count + (J.shape[1] if J.pushes_take_rows else 0))

    def for_spectrum(self, J: Operator) -> float:
        """Estimated seconds of all singular values of every sample."""
        cost = counted(J)
        return self.for_operations(cost.operations) + product_seconds(J) * cost.products / J.shape[0]


class Work:
    """One span after another, each if its estimate fits what is left; whatever ends it, what was made is kept."""

    def __init__(
        self,
        trunk: Trunk,
        linear: Sequence[Unit],
        point: Point,
        budget: Budget,
        keep: Keep,
        announce: Announce,
        there: Mapping[str, xarray.Dataset] | None = None,
    ) -> None:
        """linear: the units that have a derivative. there: what was made before."""
        self.trunk, self.linear, self.point = trunk, linear, point
        self.budget, self.keep, self.announce = budget, keep, announce
        self.there = there or {}
        self.done: dict[str, list[str]] = {}

    def through(
        self,
        name: str,
        what: str,
        spans: Sequence[Span],
        plan_of: Callable[[Span], Planned | str],
        share: float,
    ) -> LeftOut:
        """plan_of: of a span an estimate in seconds and how to do it, or why it cannot be done."""
        found: list[xarray.Dataset] = [self.there[name]] if name in self.there else []
        self.done[name] = [str(unit) for before in found for unit in before["unit"].values]
        slowness = 1.0  # how much longer the last piece took than it was estimated to
        kept = time.monotonic()
        try:
            for number, span in enumerate(spans):
                self.announce(what, number, len(spans))
                if span.name in self.done[name]:
                    continue
                planned = plan_of(span)
                if isinstance(planned, str):
                    yield f"{what} of {span.name}", planned
                    continue
                seconds, compute = planned
                if too_long := self.too_long(slowness * seconds, share):
                    yield f"{what} of {span.name}", too_long
                    continue
                start = time.monotonic()
                found.append(compute())
                self.done[name].append(span.name)
                took = time.monotonic() - start
                if took > NOTICED:
                    slowness = took / seconds
                if time.monotonic() - kept > UNKEPT:
                    self._kept(name, found)
                    kept = time.monotonic()
        finally:
            if spans:
                self.announce(what, len(spans), len(spans))
            if len(found) > (name in self.there):
                self._kept(name, found)

    def _kept(self, name: str, found: Sequence[xarray.Dataset]) -> None:
        self.keep(name, joined(found, [span.name for span in (*self.trunk.units, *self.trunk.stages)]))

    def spectrum(self, span: Span) -> Planned | str:
        J = span.jacobian(self.point)
        cost = counted(J)
        if not cost.fits:
            return f"it needs {cost.bytes / 2**30:.1f} GiB, {cost.free / 2**30:.1f} GiB are free"
        if isinstance(span, Stage):
            chosen: dict[str, Any] = {"units": [], "stages": [span.index]}
        else:
            chosen = {"units": [span.name], "stages": False}
        return self.budget.for_spectrum(J), lambda: measure.spectra(self.trunk, self.point, **chosen)

    def leading(self, span: Span, seed: int) -> Planned:
        estimate = self.budget.for_products(span.jacobian(self.point), LEADING_PRODUCTS)
        return estimate, lambda: measure.leading(self.trunk, self.point, units=[span.name], k=LARGEST, seed=seed)

    def alignment(self, seed: int) -> LeftOut:
        """Of all units together: their Jacobians are compared with one another."""
        if "alignment" in self.there:
            return
        self.announce("alignment", 0, 1)
        estimate = sum(self._aligned(unit) for unit in self.linear)
        if too_long := self.too_long(estimate, ALIGNMENT):
            yield "alignment", too_long
        else:
            names = [unit.name for unit in self.linear]
            found = measure.alignment(self.trunk, self.point, k=LARGEST, units=names, chance=DRAWS, seed=seed)
            self.keep("alignment", found)
        self.announce("alignment", 1, 1)

    def too_long(self, estimate: float, share: float) -> str:
        """The reason, where the estimate is above what is left when `share` of the budget may be used up."""
        left = self.budget.left - (1 - share) * self.budget.seconds
        return f"about {in_words(estimate)}, of which {in_words(max(left, 0))} were left" if estimate > left else ""

    def _aligned(self, unit: Unit) -> float:
        """Estimated seconds: the leading vectors of a unit, and products with those of all others."""
        J = unit.jacobian(self.point)
        small = min(J.shape[1:]) <= DENSE_SIDE
        vectors = ALIGNED * self.budget.for_spectrum(J) if small else self.budget.for_products(J, LEADING_PRODUCTS)
        return vectors + self.budget.for_products(J, LARGEST * (2 * len(self.linear) + DRAWS))

    def where_the_law_speaks(self, units: Sequence[Unit]) -> tuple[list[Unit], list[Unit]]:
        """Units of which the law proves a zero or a one at some sample, by counts of activations alone, and the others.

        Of a smooth network these are all: to test the law there takes long and shows nothing.
        """
        if not units:
            return [], []
        counts = measure.law(self.trunk, self.point, units=[unit.name for unit in units], count_only=True)
        proved = (counts["zeros_at_least"].fillna(0) + counts["ones_at_least"].fillna(0)).sum("sample").values > 0
        pairs = list(zip(units, proved.tolist(), strict=True))
        return [unit for unit, speaks in pairs if speaks], [unit for unit, speaks in pairs if not speaks]

    def law(self, span: Span) -> Planned:
        estimate = LAW_FACTOR * self.budget.for_spectrum(span.jacobian(self.point))
        return estimate, lambda: measure.law(self.trunk, self.point, units=[span.name], route="gram")


def _conditioning(trunk: Trunk, x: Any, budget: Budget, keep: Keep, there: xarray.Dataset | None = None) -> LeftOut:
    """Condition numbers of weights and of states, from the smallest on, as long as their share of the time lasts."""
    model, inputs = trunk.model, trunk.inputs(x)
    weights = {name: tuple(weight.shape) for name, weight in model.named_parameters() if weight.dim() >= 2}
    states = {}
    if is_on_disk(model) and any(program.reading is not None for program in trunk.programs()):
        yield "condition numbers of states", "they need the model in memory, and its weights are on disk"
    else:
        with trunk.runnable(x):
            states = state_shapes(model, inputs)
    left = {"weights": 0.5 * CONDITIONS * budget.seconds, "states": 0.5 * CONDITIONS * budget.seconds}
    chosen: dict[str, list[str]] = {"weights": [], "states": []}
    for kind, shapes in (("weights", weights), ("states", states)):
        for name, shape in sorted(shapes.items(), key=lambda named: operations(named[1])):
            seconds = budget.for_operations(operations(shape))
            if seconds > left[kind]:
                where = f"condition numbers of {kind} had {in_words(left[kind])} of the time left"
                yield f"condition number of {name}", f"about {in_words(seconds)}, and {where}"
            else:
                left[kind] -= seconds
                chosen[kind].append(name)
    if there is not None:
        return
    measured = partial(measure.conditioning, model, inputs, batch_axis=inputs.axis)
    found = [
        measured(layers=names, weights=kind == "weights", states=kind == "states")
        for kind, names in chosen.items()
        if names
    ]
    if found:
        import xarray

        together = xarray.merge(found, combine_attrs="drop_conflicts", join="outer", compat="no_conflicts")
        left_out = "; ".join(filter(None, (data.attrs["left_out"] for data in found)))
        units = "; ".join(unit.name for unit in trunk.units)
        notes = "; ".join(trunk.notes)
        keep("conditioning", together.assign_attrs(left_out=left_out, units=units, notes=notes))


def device_of(trunk: Trunk, x: Any) -> torch.device:
    """Where the states live."""
    return point_of(trunk, x).entry(trunk.units[0]).device
