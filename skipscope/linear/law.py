"""The exact law of a unit's spectrum.

A unit has J = D (S + J_R), m x n, with the skip's Jacobian S. Its tail is pointwise, so that D is a diagonal. Let D be
0 or 1 (ReLU, or no tail) with a active outputs. The branch passes a cut with only r entries whose derivative is not
zero, so J_R = U V^T with r columns. Of the skip one thing is needed: on the active rows

    S S^T = c^2 E,   E a diagonal of e ones and a - e zeros.

The identity has it with c = 1 and e = a. So has a skip that takes every second place and fills up with zero channels:
its rows are different unit vectors, or zero, and e counts the active outputs that it brings something to. A skip that
multiplies by alpha has c = |alpha|; a mean over disjoint windows of k entries has c = 1 / sqrt(k).

Theorem. Whatever the weights, of the min(m, n) singular values
    at least  min(m, n) - min(a, n, e + r)  are 0        (zeros_at_least; m - a for the identity)
    at least  e - 2 r                       are c        (ones_at_least)
    at most   r                             are above c  (above_at_most)
    at most   min(a, n, e + r) - (e - r)    lie between 0 and c, where e >= r  (below_at_most; r for the identity)

Proof. The rows of J that are not active are zero. Let A be the others, and S, U and E from here on their active rows.

    A A^T = c^2 E + N,   N = W M W^T,   W = [U, S V] (a x 2 r),   M = [[V^T V, I], [I, 0]].

M is congruent to [[0, I], [I, 0]] and has r positive and r negative eigenvalues, so N has at most r of each sign
(Sylvester). Eigenvalues in descending order: Weyl's inequalities give lambda_{i+r}(A A^T) <= lambda_i(c^2 E) and
lambda_i(A A^T) >= lambda_{i+r}(c^2 E). The first, with i = 1, leaves at most r eigenvalues above c^2, and with
i = e + 1 leaves none but zeros from the e + r + 1st on: rank A <= e + r, and rank A <= min(a, n). The second makes
the first e - r eigenvalues c^2 or more. Those of them that are not above c^2 are c^2: e - 2 r at least. What lies
between is the rank less those e - r.

Where 2 r < e (`generic`) the number of values c is e - 2 r for almost all U and V: the vectors x that vanish off the e
rows and have U^T x = V^T S^T x = 0 are as many. Those of a convolution are not any U and V but local: where an inner
entry reaches inactive outputs only, or the skip takes nothing of what it sees to an active one, its column of U or of
S V is zero; and where several meet the same few outputs, their columns are dependent. Then there are more values c. It
is rare for the identity and common for a padded skip with a stride, which takes one place out of each window.

With small singular values of J_R in place of zeros: if r' of them are above epsilon, at least e - 2 r' singular values
of J are within epsilon of c, since J_R is within epsilon of a matrix of rank r' and singular values move no further
than the matrix (Weyl).

For the identity, with W = Q R, the 2 r values other than 0 and 1 are the square roots of 1 + eig(R M R^T): an
eigenproblem of size 2 r instead of n.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from math import prod

import torch
from torch import Tensor, fx

from skipscope.linear.derivative import by_sample
from skipscope.linear.jacobian import Jacobian
from skipscope.linear.known_spectrum import PROBES, KnownSpectrum
from skipscope.linear.operator import DENSE_BLOCK, Operator
from skipscope.numerics import measuring, normal, random_numbers
from skipscope.trace import operations
from skipscope.trace.flow import Cut, cuts_of
from skipscope.trace.graph_point import GraphPoint
from skipscope.trace.graph_trunk import GraphUnit
from skipscope.trace.piece import Piece
from skipscope.trace.trunk import Point, Span

SAME_FACTOR = 1e-9  # relative: what is less than this off a diagonal, or different along it, is rounding


@dataclass(frozen=True)
class Law:
    """What is proved of a unit's spectrum at a point, per sample."""

    unit: GraphUnit
    point: GraphPoint
    tail: Tensor  # (B, m): the diagonal of D
    passes: list[Tensor]  # per term of the branch, (B, size of the cut): the derivative at its best cut
    cuts: list[Cut]
    entries: int  # n
    carries: Tensor  # (B, m): active outputs that the skip brings something to, the diagonal of E
    factor: Tensor  # (B,): c, in float64

    @property
    def active(self) -> Tensor:
        """(B,) outputs whose derivative is not zero: a."""
        return (self.tail != 0).sum(1)

    @property
    def inactive(self) -> Tensor:
        """(B,) outputs that the tail shuts off: z."""
        return self.tail.shape[1] - self.active

    @property
    def carried(self) -> Tensor:
        """(B,) active outputs that the skip brings something to: e."""
        return self.carries.sum(1)

    @property
    def size(self) -> int:
        """The number of singular values, min(m, n)."""
        return min(self.tail.shape[1], self.entries)

    @property
    def rank(self) -> Tensor:
        """(B,) a bound on the rank of the branch's Jacobian: r."""
        return torch.stack([(d != 0).sum(1) for d in self.passes]).sum(0).clamp_max(self.size)

    @property
    def binary(self) -> Tensor:
        """(B,) does the tail pass either nothing or all of an entry?"""
        return ((self.tail == 0) | (self.tail == 1)).all(1)

    @property
    def rank_at_most(self) -> Tensor:
        """(B,) of the unit's own Jacobian."""
        return torch.minimum(self.active, self.carried + self.rank).clamp_max(self.entries)

    @property
    def zeros_at_least(self) -> Tensor:
        """(B,) also with a tail that passes other shares than 0 and 1: a diagonal changes no rank."""
        return self.size - self.rank_at_most

    @property
    def ones_at_least(self) -> Tensor:
        """(B,) singular values that are c whatever the weights; needs a tail that passes 0 or 1 of an entry."""
        return torch.where(self.binary, (self.carried - 2 * self.rank).clamp_min(0), 0)

    @property
    def above_at_most(self) -> Tensor:
        """(B,) singular values above c; needs a tail that passes 0 or 1 of an entry."""
        return torch.where(self.binary, torch.minimum(self.rank, self.rank_at_most), self.rank_at_most)

    @property
    def below_at_most(self) -> Tensor:
        """(B,) singular values between 0 and c; needs a tail that passes 0 or 1 of an entry."""
        certain = torch.where(self.binary, (self.carried - self.rank).clamp_min(0), 0)
        return self.rank_at_most - certain

    @property
    def generic(self) -> Tensor:
        """(B,) does the law predict a plateau: 2 r < e? There it is, for almost all factors, as wide as predicted."""
        return self.ones_at_least > 0

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

    def known_spectrum(self) -> KnownSpectrum:
        """What a solver can use, of a unit with an identity skip."""
        return KnownSpectrum(self.zeros_at_least, self.ones_at_least, self.tail, self.rank, self.factors)


def _balanced(U: Tensor, V: Tensor) -> tuple[Tensor, Tensor]:
    """The same product with columns of equal length, up to powers of two, which round nothing."""
    ratio = V.norm(dim=0) / U.norm(dim=0)
    usable = torch.isfinite(ratio) & (ratio > 0)
    scale = torch.where(usable, torch.exp2((ratio.where(usable, torch.ones_like(ratio)).log2() / 2).round()), 1.0)
    return U * scale, V / scale


def known_spectrum(span: Span, point: Point) -> KnownSpectrum | None:
    """Of the Jacobian of a unit with an identity skip; None for any other span, or where the law does not apply."""
    law = law_of(span, point)
    return None if law is None else law.known_spectrum()


def law_of(span: Span, point: Point) -> Law | None:
    """The law of a unit with an identity skip, which solvers use; None for any other span, or where there is none."""
    if not isinstance(span, GraphUnit) or span.kind != "identity" or span.entry_shape != span.exit_shape:
        return None
    law = law_or_reason(span, point)
    return law if isinstance(law, Law) else None


def law_or_reason(span: Span, point: Point) -> Law | str:
    """The law of a unit at a point, or why it does not apply, in words.

    That S S^T is c^2 E is known of the identity; of other skips it is found with random vectors: a product with four
    Gaussian vectors shows an entry off the diagonal with probability one. It costs four products each way.
    """
    if not isinstance(span, GraphUnit) or not isinstance(point, GraphPoint):
        return "no unit of an exported graph"
    if span.trunk.program.batch_symbol is None:
        return "the graph holds for one batch size only"
    value = cache(partial(_value, span, point))  # cuts ask for the same ones again and again
    sums = value(span.end)
    if not all(_keeps_places(node) for node in span.tail.nodes) or point.exit(span).shape != sums.shape:
        return f"the tail ({' '.join(span.tail.operations)}) is not pointwise"
    tail = _along_ones(span.tail.piece, point, sums)
    if span.kind == "identity" and span.entry_shape == span.exit_shape:
        carries, factor = tail != 0, torch.ones(len(tail), dtype=torch.float64, device=tail.device)
    else:
        skip = _plateau(span, point, tail != 0)
        if isinstance(skip, str):
            return skip
        carries, factor = skip
    passes, chosen = [], []
    for cuts in cuts_of(span.trunk.structure.flow, span.part.region):
        usable = [cut for cut in cuts if _usable(span, value, cut)]
        if not usable:
            return "no value inside the branch is finite and has a batch axis, to bound its rank"
        derivatives = [_passed_on(span, point, value, cut) for cut in usable]
        best = min(range(len(usable)), key=lambda i: int((derivatives[i] != 0).sum()))
        passes.append(derivatives[best])
        chosen.append(usable[best])
    return Law(span, point, tail, passes, chosen, prod(span.entry_shape), carries, factor)


def _plateau(unit: GraphUnit, point: GraphPoint, active: Tensor) -> tuple[Tensor, Tensor] | str:
    """The diagonal of E (B, m) and c (B,), or why S S^T is not c^2 E on the active rows."""
    S = unit.jacobian(point, of="skip", dtype=torch.float64)
    vectors = normal((*active.shape, PROBES), random_numbers("probes", 0), device=active.device)
    vectors = vectors * active[:, :, None]  # B, m, PROBES
    products = S.matmat(S.rmatmat(vectors)) * active[:, :, None]
    squares = vectors.square().sum(2)
    diagonal = torch.where(active, (products * vectors).sum(2) / squares, 0)  # B, m
    largest = diagonal.amax(1)
    off_diagonal = (products - diagonal[:, :, None] * vectors).abs().amax((1, 2))
    if (off_diagonal > SAME_FACTOR * products.abs().amax((1, 2))).any():
        return f"the {unit.kind} skip has rows that are not orthogonal"
    carries = diagonal != 0
    smallest = torch.where(carries, diagonal, float("inf")).amin(1).minimum(largest)
    if (largest - smallest > SAME_FACTOR * largest).any():
        return f"the {unit.kind} skip brings entries with different factors"
    return carries, torch.where(carries.any(1), largest.sqrt(), 1)


def _keeps_places(node: fx.Node) -> bool:
    """Pointwise: a batch norm in evaluation mode is; a layer norm is not."""
    return operations.kind(node) == "pointwise" or operations.display(node) in ("batch_norm", "getitem")


def _value(unit: GraphUnit, point: GraphPoint, node: fx.Node) -> Tensor:
    """A value inside the unit, computed in float64 from its entry: the activation pattern of the float64 Jacobian."""
    piece = unit.trunk.piece(f"inside of {unit.name}", unit.entry, node)
    with torch.no_grad():
        return piece(point.entry(unit).double(), point)


def _usable(unit: GraphUnit, value: Callable[[fx.Node], Tensor], cut: Cut) -> bool:
    """A mask of minus infinities before a softmax is no place to differentiate at."""
    if unit.trunk.program.batch_axis(cut.before) is None:
        return False
    return all(bool(value(node).isfinite().all()) for node in {cut.before, cut.after})


def _passed_on(unit: GraphUnit, point: GraphPoint, value: Callable[[fx.Node], Tensor], cut: Cut) -> Tensor:
    """The derivative at a cut, (B, size)."""
    before = value(cut.before)
    if not cut.is_pointwise:
        return torch.ones_like(before.movedim(_axis(unit, cut.before), 0).flatten(1))
    piece = unit.trunk.piece(f"cut of {unit.name}", cut.before, cut.after)
    return _along_ones(piece, point, before)


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


def _along_ones(piece: Piece, point: GraphPoint, state: Tensor) -> Tensor:
    """The diagonal of a pointwise piece's Jacobian, (B, n): its transposed product with the vector of ones."""
    axis = piece.axis
    assert axis is not None, "sums and cuts have a batch axis"
    function = piece.bound(point)
    with torch.enable_grad(), measuring():
        state = state.detach().requires_grad_()
        output = function(state)
    if not output.isfinite().all():  # a Jacobian says where
        Jacobian(function, state, axis, name=piece.name, first_not_finite=point.first_not_finite, exit_axis=axis)
    if not output.requires_grad:
        return by_sample(torch.zeros_like(state), axis)
    with measuring():
        (diagonal,) = torch.autograd.grad(output, state, torch.ones_like(output), materialize_grads=True)
    return by_sample(diagonal, axis)


def _columns(operator: Operator, chosen: Tensor) -> Tensor:
    """Some columns of a single sample's matrix: (m, len(chosen))."""
    _, m, n = operator.shape
    result = torch.empty(len(chosen), m, dtype=torch.float64, device=operator.device)  # as products lie in memory
    for start in range(0, len(chosen), DENSE_BLOCK):
        some = chosen[start : start + DENSE_BLOCK]
        units = torch.zeros(len(some), 1, n, dtype=torch.float64, device=operator.device)
        units[range(len(some)), 0, some] = 1
        result[start : start + len(some)] = operator.matmat(units.permute(1, 2, 0))[0].mT
    return result.mT
