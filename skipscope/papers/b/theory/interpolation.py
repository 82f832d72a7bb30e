"""Theorem 1 of Demystifying ResNet: deep networks that interpolate with weights as small as one likes.

m inputs x and m targets y, all unit vectors and at least rho apart, in dimension 3 or more. Column by column is taken
from its x to its y along the path of Lemma 2, in small steps; each step is a unit of Lemma 1. R units on paths of total
length Lambda have steps of about Lambda / R, so that all weights have norms

    sqrt(8 delta)/rho  ->  sqrt(8 Lambda / R) / rho.

With Lambda <= m pi (1 + rho (m - 1)/2) that is at most sqrt(8 pi) sqrt( m/(R rho) ((m - 1)/2 + 1/rho) ).

Where the paper prints something else:
- The n of its bound (6), (7), (20) is the number of units R; the n >= 3 of Assumption 1 is the dimension.
- (6) and (20) have (m + 1/rho) outside of the root, which is true but weaker: `printed_bound`.
- "d >= O(m (rho m + 1))" in the proof is delta = O(m (rho m + 1) / R).
- Labels that are exactly one-hot cannot be rho apart once m exceeds their number: see `unit_labels`.
- Lemma 1 limits no step, so m units already interpolate. The paths are there for the small norms alone.

The network exists, but is unstable to evaluate. Where a column moves, the unit's Jacobian is I + 8/rho^2 (a' - a) a^T.
Along a great circle a(t) of unit speed the component r = <a, error> obeys r'' = (8/rho^2 - 1) r: errors grow by
exp(sqrt(8/rho^2 - 1) length), a factor of e^14 per radian for rho = 0.2. On a circle of radius q it is 1/q^2 in place
of 1, so that detours, of radius rho/2, have 1/sqrt(2) of that rate. In float64 each unit is right to rounding when
given its exact input, and the composition is lost for small rho; with enough digits it reaches Y.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.numerics import normal
from skipscope.papers.b.theory.lemmas import UNIT_TOLERANCE, LemmaOne, SpherePath, expect_unit_columns, lemma1, lemma2

SPARE_DIGITS = 50  # of an exact evaluation, beyond those that the predicted growth of errors uses up


@dataclass(frozen=True)
class NetworkErrors:
    """Largest absolute errors of the network, and the errors' predicted growth."""

    unit_by_unit: float  # each unit on its exact input, in float64
    composed: float  # from X to Y in float64
    exact: float  # from X to Y with `digits` digits
    digits: int
    growth: float  # decades

    def __str__(self) -> str:
        return (
            f"unit by unit {self.unit_by_unit:.1e}; from X to Y {self.composed:.1e} in float64 "
            f"(rounding errors grow by {self.growth:.0f} decades), {self.exact:.1e} with {self.digits} digits"
        )


@dataclass(frozen=True, eq=False)
class SmallNormNetwork:
    """Units x -> x + W2 relu(W1 x + b) that take X to Y, as the stops of every column's path."""

    X: Tensor  # d, m
    Y: Tensor  # d, m
    rho: float
    paths: tuple[SpherePath, ...]
    stops: tuple[Tensor, ...]  # per column, steps + 1, d

    def __len__(self) -> int:
        """The number of units, R."""
        return sum(len(points) - 1 for points in self.stops)

    def __iter__(self) -> Iterator[LemmaOne]:
        """The units with dense weights, one after another."""
        for column, points in enumerate(self.stops):
            A = self._before(column)
            for here, there in pairwise(points):
                A = A.clone()
                A[:, column] = here
                yield lemma1(A, column, there, self.rho)

    def __call__(self, Z: Tensor) -> Tensor:
        """The network in float64 on the columns of Z (d, anything)."""
        Z = Z.to(torch.float64).clone()
        threshold = self.rho**2 / 8 - 1
        for points in self.stops:
            moves = points[1:] - points[:-1]
            inner = self._norms(moves)  # the factor of W1, and its norm
            outer = inner / moves.norm(dim=1)
            for here, move, w1, w2 in zip(points, moves, inner, outer, strict=False):
                Z += torch.outer(w2 * move, torch.relu(w1 * (here @ Z) + w1 * threshold))
        return Z

    def _before(self, column: int) -> Tensor:
        """The matrix when the path of a column begins."""
        return torch.cat([self.Y[:, :column], self.X[:, column:]], 1)

    def _norms(self, moves: Tensor) -> Tensor:
        return (8 * moves.norm(dim=1)).sqrt() / self.rho

    @cached_property
    def norms(self) -> Tensor:
        """(R,) of both weights of every unit."""
        return torch.cat([self._norms(points[1:] - points[:-1]) for points in self.stops])

    @property
    def largest_norm(self) -> float:
        return float(self.norms.max())

    @property
    def length(self) -> float:
        """Lambda, of all paths together."""
        return sum(path.length for path in self.paths)

    @property
    def constant(self) -> float:
        """What largest_norm sqrt(R) tends to: sqrt(8 Lambda) / rho."""
        return math.sqrt(8 * self.length) / self.rho

    @property
    def bound(self) -> float:
        """On the norms, from Lemma 2: sqrt(8 pi m/(R rho) ((m-1)/2 + 1/rho)), R rounded down to a multiple of m."""
        m = self.X.shape[1]
        return math.sqrt(8 * math.pi * ((m - 1) / 2 + 1 / self.rho) / (self.rho * (len(self) // m)))

    @property
    def printed_bound(self) -> float:
        """The paper's form, sqrt(m/(R rho)) (m + 1/rho), with the constant sqrt(8 pi) that it leaves open."""
        m = self.X.shape[1]
        return math.sqrt(8 * math.pi * m / (len(self) * self.rho)) * (m + 1 / self.rho)

    @property
    def growth_rate(self) -> float:
        """Of errors, per unit of length on a great circle: sqrt(8/rho^2 - 1)."""
        return math.sqrt(8 / self.rho**2 - 1)

    @property
    def growth(self) -> float:
        """Decades by which errors grow along the path where they grow most; the limit of small steps."""
        return max(self.growth_along(path) for path in self.paths)

    def growth_along(self, path: SpherePath) -> float:
        """Decades: sqrt(8/rho^2 - 1/radius^2) length, summed over the arcs of a path."""
        return sum(math.sqrt(8 / self.rho**2 - 1 / arc.radius**2) * arc.length for arc in path.arcs) / math.log(10)

    def measured_growth(self, column: int) -> float:
        """Decades: log10 of the norm of the product of the Jacobians at the stops of a column."""
        points = self.stops[column]
        product, decades = torch.eye(points.shape[1], dtype=points.dtype, device=points.device), 0.0
        for here, there in pairwise(points):
            product = product + torch.outer(8 / self.rho**2 * (there - here), here @ product)
            scale = float(product.norm())
            product, decades = product / scale, decades + math.log10(scale)
        return decades + math.log10(float(torch.linalg.matrix_norm(product, 2)))

    @property
    def distance(self) -> float:
        """The smallest between columns, at any time on the way; at least rho/2."""
        apart = float(torch.pdist(self.X.T).min()) if self.X.shape[1] > 1 else math.inf
        return min(apart, *(path.check().distance for path in self.paths))

    def unit_error(self) -> float:
        """The largest error of any unit on its exact input, in float64."""
        worst = 0.0
        for column, points in enumerate(self.stops):
            here, there = points[:-1], points[1:]
            inner = self._norms(there - here)[:, None]
            outer = inner / (there - here).norm(dim=1, keepdim=True) * (there - here)  # k, d
            before = self._before(column).expand(len(here), *self.X.shape).clone()  # k, d, m
            before[:, :, column] = here
            passed = torch.relu(inner * torch.einsum("kd,kdm->km", here, before) + inner * (self.rho**2 / 8 - 1))
            after = before + outer[:, :, None] * passed[:, None, :]
            before[:, :, column] = there
            worst = max(worst, float((after - before).abs().max()))
        return worst

    def composed_error(self) -> float:
        """The largest error of Y when X runs through all units in float64: small only where `growth` is."""
        return float((self(self.X) - self.Y).abs().nan_to_num(math.inf).max())

    @property
    def digits(self) -> int:
        """Enough to evaluate the network exactly."""
        return SPARE_DIGITS + math.ceil(self.growth)

    def exact_error(self, digits: int | None = None) -> float:
        """The largest error of Y when X runs through all units in `digits` digits.

        The stops, as given in float64, are brought to length 1 with all digits first: they make the network's weights,
        and the first and last of them are X and Y. A unit is a rank-one step, d m products.
        """
        from mpmath import fdot, mp, mpf, sqrt

        def vectors(points: Tensor) -> list[list[mpf]]:
            """The rows of `points`, of length 1."""
            rows = [[mpf(value) for value in row] for row in points.tolist()]
            lengths = [sqrt(fdot(row, row)) for row in rows]
            return [[value / length for value in row] for row, length in zip(rows, lengths, strict=True)]

        with mp.workdps(self.digits if digits is None else digits):
            rho = mpf(self.rho)
            threshold = rho**2 / 8 - 1
            states = vectors(self.X.T)
            for points in map(vectors, self.stops):
                for here, there in pairwise(points):
                    move = [b - a for a, b in zip(here, there, strict=True)]
                    delta = sqrt(fdot(move, move))
                    inner, outer = sqrt(8 * delta) / rho, sqrt(8 / delta) / rho
                    for k, state in enumerate(states):
                        passed = inner * fdot(here, state) + inner * threshold
                        if passed > 0:
                            states[k] = [z + outer * passed * v for z, v in zip(state, move, strict=True)]
            wanted = vectors(self.Y.T)
            pairs = zip(states, wanted, strict=True)
            return float(max(abs(a - b) for state, y in pairs for a, b in zip(state, y, strict=True)))

    def check(self, digits: int | None = None) -> NetworkErrors:
        """Unit by unit, composed in float64, and composed in `digits` digits (enough of them by default)."""
        digits = self.digits if digits is None else digits
        return NetworkErrors(self.unit_error(), self.composed_error(), self.exact_error(digits), digits, self.growth)

    def __str__(self) -> str:
        d, m = self.X.shape
        detours = sum(path.detours for path in self.paths)
        return "\n".join(
            [
                f"network of {len(self)} units from {m} unit vectors in dimension {d} to {m} others; rho {self.rho:g}",
                f"  paths of length {self.length:.4g} with {detours} detours, never closer than {self.distance:.6g}",
                f"  largest norm {self.largest_norm:.4g}; bound {self.bound:.4g}, as printed {self.printed_bound:.4g}",
                f"  times sqrt(R): {self.largest_norm * math.sqrt(len(self)):.4g}, towards {self.constant:.4g}",
                f"  errors grow by {self.growth:.3g} decades: a float64 has 16",
            ]
        )


def theorem1(X: Tensor, Y: Tensor, *, units: int, rho: float | None = None) -> SmallNormNetwork:
    """The network of `units` units that takes X to Y, both (d, m) with unit columns.

    rho: at most the smallest distance between any two of the 2 m columns, which it is by default.
    """
    X, Y = X.to(torch.float64), Y.to(torch.float64)
    if X.ndim != 2 or X.shape != Y.shape or len(X) < 3 or X.shape[1] < 1:
        raise InputError(
            f"expected X and Y of one shape (d, m) with d >= 3, got {tuple(X.shape)} and {tuple(Y.shape)}: "
            "a smaller one may be filled up with zeros"
        )
    expect_unit_columns("X", X)
    expect_unit_columns("Y", Y)
    m = X.shape[1]
    if units < m:
        raise InputError(f"units: expected at least one for each of the {m} columns, got {units}")
    nearest = float(torch.pdist(torch.cat([X, Y], 1).T).min())
    if nearest <= 0:
        raise InputError(
            "expected no two of the columns of X and Y alike, got a distance of 0: jitter them (unit_labels)"
        )
    rho = nearest if rho is None else rho
    if not 0 < rho <= nearest * (1 + UNIT_TOLERANCE):
        raise InputError(f"expected 0 < rho <= {nearest:.6g}, the smallest distance between the columns; got {rho}")
    paths = []
    for column in range(m):
        others = torch.cat([Y[:, :column], X[:, column + 1 :]], 1)
        paths.append(lemma2(X[:, column], Y[:, column], others, rho))
    steps = _shared([path.length for path in paths], units)
    stops = tuple(path.stops(k) for path, k in zip(paths, steps, strict=True))
    return SmallNormNetwork(X, Y, rho, tuple(paths), stops)


def _shared(lengths: list[float], units: int) -> list[int]:
    """How many steps each path gets, so that the longest step of all is as short as can be."""
    steps = [1] * len(lengths)
    longest = [(-length, k) for k, length in enumerate(lengths)]
    heapq.heapify(longest)
    for _ in range(units - len(lengths)):
        k = longest[0][1]
        steps[k] += 1
        heapq.heapreplace(longest, (-lengths[k] / steps[k], k))
    return steps


def unit_labels(classes: Tensor, size: int, jitter: float = 0.1, seed: int = 0) -> Tensor:
    """One-hot columns (size, m) for classes (m,), jittered by Gaussian noise and brought back to length 1.

    Without jitter two samples of a class have the same label, and the theorem's distance rho is 0.
    """
    classes = torch.as_tensor(classes)
    if classes.ndim != 1 or classes.is_floating_point() or not classes.numel():
        raise InputError(
            f"expected classes as integers of shape (m,), got {classes.dtype} of shape {tuple(classes.shape)}"
        )
    if int(classes.min()) < 0 or int(classes.max()) >= size:
        raise InputError(f"expected classes from 0 to {size - 1}, got {int(classes.min())} to {int(classes.max())}")
    if not jitter >= 0:
        raise InputError(f"expected jitter >= 0, got {jitter}")
    noise = normal((size, len(classes)), torch.Generator("cpu").manual_seed(seed), device=classes.device)
    Y = torch.nn.functional.one_hot(classes.long(), size).T + jitter * noise
    return Y / Y.norm(dim=0)
