"""The exact law of a unit's spectrum.

A unit with an identity skip and a pointwise tail has J = D (I + J_R) with a diagonal D. Its branch passes a cut with
only r entries whose derivative is not zero, so J_R = U V^T with r columns. Let a be the active outputs (D not zero) and
D be 0 or 1 (ReLU, or no tail). On the active rows

    J J^T - I = W M W^T,   W = [U_a V_a],  M = [[V^T V, I], [I, 0]],

which has rank 2 r at most: at least n - a singular values are 0 and at least a - 2 r are exactly 1, whatever the
weights.
With W = Q R the others are the square roots of 1 + eig(R M R^T), an eigenproblem of size 2 r instead of n.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, fx

from skipscope.linear.jacobian import Jacobian
from skipscope.linear.operator import DENSE_BLOCK, Operator
from skipscope.numerics import load_forward_mode, measuring
from skipscope.trace import operations
from skipscope.trace.cuts import Cut, cuts_of
from skipscope.trace.graph_point import GraphPoint
from skipscope.trace.graph_trunk import GraphUnit
from skipscope.trace.trunk import Point, Span


@dataclass(frozen=True)
class Law:
    """What is proved of a unit's spectrum at a point, per sample."""

    unit: GraphUnit
    point: GraphPoint
    tail: Tensor  # (B, n): the diagonal of D
    passes: list[Tensor]  # per term of the branch, (B, size of the cut): the derivative at its best cut
    cuts: list[Cut]

    @property
    def active(self) -> Tensor:
        """(B,) outputs whose derivative is not zero."""
        return (self.tail != 0).sum(1)

    @property
    def rank(self) -> Tensor:
        """(B,) a bound on the rank of the branch's Jacobian: r."""
        return torch.stack([(d != 0).sum(1) for d in self.passes]).sum(0).clamp_max(self.tail.shape[1])

    @property
    def binary(self) -> Tensor:
        """(B,) does the tail pass either nothing or all of an entry?"""
        return ((self.tail == 0) | (self.tail == 1)).all(1)

    @property
    def zeros_at_least(self) -> Tensor:
        return self.tail.shape[1] - self.active

    @property
    def ones_at_least(self) -> Tensor:
        """(B,) singular values that are 1 whatever the weights; needs a tail that passes 0 or 1 of an entry."""
        return torch.where(self.binary, (self.active - 2 * self.rank).clamp_min(0), 0)

    def factors(self, sample: int) -> tuple[Tensor, Tensor]:
        """U and V (n, r) of one sample with J_R = U V^T, in float64."""
        point = self.point.take([sample])
        assert point is not None, "there is no law for a graph with a fixed batch"
        lefts, rights = [], []
        for cut, passes in zip(self.cuts, self.passes, strict=True):
            active = (passes[sample] != 0).nonzero().flatten()
            lefts.append(_columns(_after(self.unit, point, cut), active) * passes[sample, active])
            rights.append(_columns(_before(self.unit, point, cut).T, active))
        return _balanced(torch.cat(lefts, 1), torch.cat(rights, 1))


def _balanced(U: Tensor, V: Tensor) -> tuple[Tensor, Tensor]:
    """The same product with columns of equal length, up to powers of two, which round nothing."""
    ratio = V.norm(dim=0) / U.norm(dim=0)
    usable = torch.isfinite(ratio) & (ratio > 0)
    scale = torch.where(usable, torch.exp2((ratio.where(usable, torch.ones_like(ratio)).log2() / 2).round()), 1.0)
    return U * scale, V / scale


def law_of(span: Span, point: Point) -> Law | None:
    """The law of a unit at a point; None where it does not apply: another skip than the identity, a tail that is not
    pointwise, a span that is no unit of a graph."""
    if not isinstance(span, GraphUnit) or not isinstance(point, GraphPoint) or span.kind != "identity":
        return None
    if span.trunk.program.batch_symbol is None:
        return None
    if span.entry_shape != span.exit_shape or not all(_keeps_places(node) for node in span.tail.nodes):
        return None
    sums = _value(span, point, span.end)
    tail = _along_ones(span.tail.bound(point), sums, _axis(span, span.end))
    passes, chosen = [], []
    for cuts in cuts_of(span.trunk.structure.flow, span.part.region):
        usable = [cut for cut in cuts if span.trunk.program.batch_axis(cut.before) is not None]
        if not usable:
            return None
        derivatives = [_passed_on(span, point, cut) for cut in usable]
        best = min(range(len(usable)), key=lambda i: int((derivatives[i] != 0).sum()))
        passes.append(derivatives[best])
        chosen.append(usable[best])
    return Law(span, point, tail, passes, chosen)


def _keeps_places(node: fx.Node) -> bool:
    """Pointwise: a batch norm in evaluation mode is; a layer norm is not."""
    return operations.kind(node) == "pointwise" or operations.display(node) in ("batch_norm", "getitem")


def _value(unit: GraphUnit, point: GraphPoint, node: fx.Node) -> Tensor:
    """A value inside the unit, computed in float64 from its entry: the activation pattern of the float64 Jacobian."""
    piece = unit.trunk.piece(f"inside of {unit.name}", unit.entry, node)
    with torch.no_grad():
        return piece(point.entry(unit).double(), point)


def _passed_on(unit: GraphUnit, point: GraphPoint, cut: Cut) -> Tensor:
    """The derivative at a cut, (B, size)."""
    before = _value(unit, point, cut.before)
    if not cut.is_pointwise:
        return torch.ones_like(before.movedim(_axis(unit, cut.before), 0).flatten(1))
    piece = unit.trunk.piece(f"cut of {unit.name}", cut.before, cut.after)
    return _along_ones(piece.bound(point), before, _axis(unit, cut.before))


def _before(unit: GraphUnit, point: GraphPoint, cut: Cut) -> Jacobian:
    piece = unit.trunk.piece(f"{unit.name} before its cut", unit.entry, cut.before)
    return Jacobian(piece.bound(point), point.entry(unit).double(), unit.batch_axis, name=piece.name)


def _after(unit: GraphUnit, point: GraphPoint, cut: Cut) -> Jacobian:
    """From the cut to the sum, through its own term alone."""
    others = {term for term in unit.part.region.terms if term is not cut.term}
    zero = {node: frozenset(others & set(node.all_input_nodes)) for node in unit.part.region.sums}
    piece = unit.trunk.piece(f"{unit.name} after its cut", cut.after, unit.end, zero)
    return Jacobian(piece.bound(point), _value(unit, point, cut.after), _axis(unit, cut.after), name=piece.name)


def _axis(unit: GraphUnit, node: fx.Node) -> int:
    axis = unit.trunk.program.batch_axis(node)
    assert axis is not None, "cuts without a batch axis are not used"
    return axis


def _along_ones(function: Callable[[Tensor], Tensor], state: Tensor, axis: int) -> Tensor:
    """The diagonal of a pointwise function's Jacobian: its derivative along the vector of ones. (B, n)"""
    load_forward_mode()
    with torch.no_grad(), measuring():
        derivative = torch.func.jvp(function, (state,), (torch.ones_like(state),))[1]
    return derivative.movedim(axis, 0).flatten(1)


def _columns(operator: Operator, chosen: Tensor) -> Tensor:
    """Some columns of a single sample's matrix: (m, len(chosen))."""
    _, m, n = operator.shape
    result = torch.empty(m, len(chosen), dtype=torch.float64, device=operator.device)
    for start in range(0, len(chosen), DENSE_BLOCK):
        some = chosen[start : start + DENSE_BLOCK]
        units = torch.zeros(1, n, len(some), dtype=torch.float64, device=operator.device)
        units[0, some, range(len(some))] = 1
        result[:, start : start + len(some)] = operator.matmat(units)[0]
    return result
