"""`trunk.contract()`: which module's output is the branch of which unit, asserted with real hooks.

    exit = tail(skip + branch)

The graph says where to look (`chains`), hooks on the user's model give the tensors (`hooked`), and the equation is
computed from these alone: the module's output, through the norms and times the factors, plus the skip, through the
tail, must be the state that the model goes on with, to rounding. A unit for which it is not gets words and no map.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from skipscope.errors import InputError, TraceError
from skipscope.trace.contract.chains import Chain, Chains, Unclear
from skipscope.trace.contract.hooked import Hooked, Request
from skipscope.trace.contract.places import Contract, HookStep, Summand, UnitContract
from skipscope.trace.graph_point import GraphPoint
from skipscope.trace.graph_trunk import GraphTrunk, GraphUnit
from skipscope.trace.inputs import Inputs
from skipscope.trace.model_output import relative_error
from skipscope.trace.region import coefficient
from skipscope.trace.trunk import Trunk
from skipscope.trace.undisturbed import undisturbed

ROUNDING_UNITS = 100  # of the state's type: how far two ways of computing one sum may be apart


def contract_of(trunk: Trunk, x: Any = None) -> Contract:
    """x: a batch of model inputs, or a point; the trunk's last one where it is None."""
    if not isinstance(trunk, GraphTrunk):
        raise TraceError(
            "a contract needs the graph of the whole model, and this trunk was made of named modules; trace it without "
            "units="
        )
    point = trunk.point if x is None else x if isinstance(x, GraphPoint) else trunk.at(x)
    if point is None:
        raise InputError("this trunk was traced without values; pass a batch: trunk.contract(x)")
    return Contract(type(trunk.model).__name__, _Asserting(trunk, point).units(), trunk.model)


@dataclass(frozen=True)
class _Term:
    """A term of a sum before the hooks: where the graph says that it starts, and the same of the finished term."""

    chain: Chain
    coefficient: float
    start: Request
    exact: Request | None
    naive: str | None


@dataclass(frozen=True)
class _Draft:
    unit: GraphUnit
    entry: Request
    exit: Request
    skip: _Term
    branches: tuple[_Term, ...]
    tail: tuple[HookStep, ...]

    @property
    def terms(self) -> tuple[_Term, ...]:
        return (self.skip, *self.branches)


class _Asserting:
    def __init__(self, trunk: GraphTrunk, point: GraphPoint) -> None:
        self.trunk, self.point = trunk, point
        self.chains = Chains(trunk)

    def units(self) -> list[UnitContract]:
        drafts = [self._draft(unit) for unit in self.trunk.units]
        clear = [draft for draft in drafts if isinstance(draft, _Draft)]
        naive = [term.naive for draft in clear for term in draft.branches if term.naive is not None]
        hooked = Hooked(self.point, _requests(clear), naive)
        inputs = self._inputs()
        with self.trunk.runnable(inputs) as model, undisturbed(model):
            hooked.run(model, inputs)
            return [self._asserted(draft, hooked) if isinstance(draft, _Draft) else draft for draft in drafts]

    def _inputs(self) -> Inputs:
        """The batch of the point, as the model takes it."""
        program = self.trunk.program
        leaves = [self.point.values([node])[node] for node in program.inputs]
        args, kwargs = pytree.tree_unflatten(leaves, program.in_spec)
        return Inputs.of(self.trunk.model, Inputs(tuple(args), dict(kwargs), self.trunk._axis, self.point.batch))

    # -- what the graph says

    def _draft(self, unit: GraphUnit) -> _Draft | UnitContract:
        region = unit.part.region
        try:
            terms = {term: self._term(unit, term) for term in dict.fromkeys(region.terms)}
        except Unclear as why:
            return self._without(unit, str(why))
        skip = terms.pop(region.skip)
        entry = Request(unit.entry, self.chains.homes(unit, unit.entry, "input"))
        exit = Request(unit.exit, self.chains.homes(unit, unit.exit, "output"))
        ordered = sorted(terms.values(), key=lambda term: self.chains.flow.position[term.chain.source])  # as they run
        branches = tuple(self._with_naive(unit, term, len(terms) > 1) for term in ordered)
        return _Draft(unit, entry, exit, skip, branches, self._tail(unit))

    def _term(self, unit: GraphUnit, term: Any) -> _Term:
        try:
            chain = self.chains.term(unit, term)
        except Unclear as why:
            what = "skip" if term is unit.part.region.skip else "branch"
            raise Unclear(f"no module's output is the {what}: {why}") from None
        region = unit.part.region
        if chain.module is None:
            start = Request(unit.entry, self.chains.homes(unit, unit.entry, "input"))
        else:
            start = Request(chain.source, ((chain.module, "output"),))
        exact = None
        if chain.exact is not None and chain.steps:
            exact = Request(term, ((chain.exact, "output"),))
        return _Term(chain, coefficient(region.end, term, region.sums), start, exact, None)

    def _with_naive(self, unit: GraphUnit, term: _Term, parallel: bool) -> _Term:
        """With the module whose output is usually taken for the branch: the one that the unit is named after."""
        named = self._named(unit)
        adds = named is not None and self._adds_residual(unit, named)
        return replace(term, naive=named if adds and not parallel else term.chain.module)

    def _tail(self, unit: GraphUnit) -> tuple[HookStep, ...]:
        try:
            return self.chains.tail(unit)
        except Unclear:  # written by hand, out of several operations
            return (HookStep("operation", " ".join(unit.tail.operations), None, None, unit.end, unit.exit),)

    def _named(self, unit: GraphUnit) -> str | None:
        path = unit.name.split("#")[0]
        return path if path in self.chains.calls.modules else None

    def _adds_residual(self, unit: GraphUnit, path: str) -> bool:
        return path in [around for _, around in self.chains.calls.stack(unit.end)]

    def _without(self, unit: GraphUnit, problem: str) -> UnitContract:
        named = self._named(unit)
        return UnitContract(
            unit.index, unit.name, named, named is not None and self._adds_residual(unit, named), problem=problem
        )

    # -- what the hooks say

    def _asserted(self, draft: _Draft, hooked: Hooked) -> UnitContract:
        empty = self._without(draft.unit, "")
        places = {"entry": hooked.place(draft.entry), "exit": hooked.place(draft.exit)}
        for what, place in places.items():
            if place is None:
                return replace(empty, problem=f"no module takes or returns its {what} state, so that no hook finds it")
        summands, total = [], None
        for term in draft.terms:
            if hooked.place(term.start) is None:
                return replace(
                    empty,
                    problem=f"{term.chain.module} returns no tensor that is what the graph has at its end: a hook on "
                    "it does not give the branch",
                )
            try:
                summand, value = self._summand(term, hooked)
            except Unclear as why:
                return replace(empty, problem=str(why))
            summands.append(summand)
            total = value if total is None else total + value
        found = self._through(draft.tail, total)
        state = hooked.value(draft.exit)
        error = relative_error(found, state)
        found_contract = replace(
            empty,
            entry=places["entry"],
            exit=places["exit"],
            skip=summands[0],
            branches=tuple(summands[1:]),
            tail=draft.tail,
            error=error,
        )
        if error <= ROUNDING_UNITS * torch.finfo(state.dtype).eps:
            return found_contract
        sizes = f"a relative error of {error:.1e}" if math.isfinite(error) else "another shape or infinite entries"
        return replace(
            empty,
            error=error,
            problem=f"the hooked outputs do not add up to the hooked state: {found_contract.branches[0]} plus the skip "
            f"gives {places['exit']} with {sizes}",
        )

    def _summand(self, term: _Term, hooked: Hooked) -> tuple[Summand, Tensor]:
        """Of a term that is also some module's finished output, both ways to it must agree."""
        place = hooked.place(term.start)
        assert place is not None
        value = self._through(term.chain.steps, hooked.value(term.start))
        exact = None if term.exact is None else hooked.place(term.exact)
        if exact is not None and term.exact is not None:
            finished = hooked.value(term.exact)
            error = relative_error(value, finished)
            if not error <= ROUNDING_UNITS * torch.finfo(finished.dtype).eps:
                raise Unclear(f"{term.chain.exact} does more to its input than its own call repeats (by {error:.1e})")
            value = finished
        elif term.chain.module is not None and not term.chain.steps:
            exact = place
        naive_error = None
        if term.naive is not None and (output := hooked.first(term.naive, place.call)) is not None:
            off = relative_error(output, value * term.coefficient)
            naive_error = off if math.isfinite(off) else None  # None: of another shape
        summand = Summand(place, term.chain.steps, term.coefficient, exact, term.naive, naive_error)
        return summand, value * term.coefficient if term.coefficient != 1 else value

    def _through(self, steps: Sequence[HookStep], value: Any) -> Tensor:
        """A value after the steps: modules are the user's own, and run again."""
        for step in steps:
            if step.value is not None:
                value = value * step.value
            elif step.module is not None:
                value = self._called(step.module, value)
            else:
                assert step.before is not None
                assert step.after is not None
                value = self.trunk.piece(step.what, step.before, step.after)(value, self.point)
        return value

    def _called(self, path: str, value: Tensor) -> Tensor:
        try:
            output = self.trunk.model.get_submodule(path)(value.clone())  # it may work in place
        except (torch.OutOfMemoryError, MemoryError):
            raise
        except Exception as error:  # whatever the user's module says to one argument
            raise Unclear(
                f"{path} cannot be called with its input alone: {str(error).splitlines()[0] if str(error) else error!r}"
            ) from error
        return next(leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, Tensor))


def _requests(drafts: Sequence[_Draft]) -> Iterator[Request]:
    for draft in drafts:
        yield draft.entry
        yield draft.exit
        for term in draft.terms:
            yield term.start
            if term.exact is not None:
                yield term.exact
