"""Lemmas 1 and 2 of Demystifying ResNet, of which theorem 1 is made.

Lemma 1: a residual unit that moves one column of a matrix and leaves the others alone.

The columns of A are unit vectors, at least rho/2 apart. To take column a to the unit vector a', with delta = |a' - a|:

    A' = A + W2 relu(W1 A + b),   W1 = sqrt(8 delta)/rho e_1 a^T,   W2 = sqrt(8/delta)/rho (a' - a) e_1^T,
                                  b = sqrt(8 delta)/rho (rho^2/8 - 1) e_1

Another column c has <a, c> = 1 - |a - c|^2/2 <= 1 - rho^2/8, so that the ReLU shuts it off; a itself passes rho^2/8,
which the two factors bring to 1. Both weights have norm sqrt(8 delta)/rho.

The paper's d in the norm is delta, not a dimension. Its b is one number for all coordinates, which works as well: it is
negative, and the other rows of W1 are zero. Only the distances in A are used; those in A' matter to the next unit.
Rounding errors of the unit are those of its input times 8 delta / rho^2.

Lemma 2: a path on the unit sphere that keeps its distance from given points.

From `start` along the shorter great circle to `end`; where that comes closer than rho/2 to an obstacle, the shorter way
around it, on the small circle at that distance. Points at least rho apart have caps of chord rho/2 that do not meet
(2 arcsin(rho/4) <= arcsin(rho/2)), so each is passed by itself. A detour is at most half of a circle of radius
sin(2 arcsin(rho/4)) <= rho/2, hence with k obstacles

    length <= pi (1 + rho k / 2).

Two ways around need dimension 3 or more: the paper's Assumption 1 writes n >= 3 for it. The joint minimum distance rho
is over all starts and ends together; m different one-hot labels exist only for m <= d_y (see `unit_labels`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from skipscope.errors import InputError

UNIT_TOLERANCE = 1e-9  # how far the length of a unit vector, or a distance relative to its bound, may be off
CLEARANCE = 1e-9  # relative: detours are wider by this, so that rounding brings no point closer than rho/2


@dataclass(frozen=True)
class UnitErrors:
    """Of the moved matrix, largest absolute; of the weights' norms, relative to sqrt(8 delta)/rho."""

    image: float
    norm: float

    def __str__(self) -> str:
        return f"largest error of A' {self.image:.1e}, of the norms {self.norm:.1e}"


@dataclass(frozen=True, eq=False)
class LemmaOne:
    """One unit, and the matrix it was made for."""

    A: Tensor  # d, m
    column: int
    target: Tensor  # d
    rho: float
    W1: Tensor  # d, d
    W2: Tensor  # d, d
    b: Tensor  # d

    @property
    def step(self) -> float:
        """delta"""
        return float((self.target - self.A[:, self.column]).norm())

    @property
    def norm(self) -> float:
        """The norm that both weights have."""
        return math.sqrt(8 * self.step) / self.rho

    def __call__(self, Z: Tensor) -> Tensor:
        """The unit on the columns of Z, (d, anything)."""
        return Z + self.W2 @ torch.relu(self.W1 @ Z + self.b[:, None])

    def check(self) -> UnitErrors:
        """A against the matrix it should become, and the weights' norms against the formula."""
        moved = self.A.clone()
        moved[:, self.column] = self.target
        norms = [abs(float(W.norm()) / self.norm - 1) if self.norm else float(W.norm()) for W in (self.W1, self.W2)]
        return UnitErrors(float((self(self.A) - moved).abs().max()), max(norms))

    def __str__(self) -> str:
        d, m = self.A.shape
        return (
            f"unit that moves column {self.column} of {m} in dimension {d} by {self.step:.4g}; "
            f"rho {self.rho:.4g}, both weights of norm {self.norm:.4g}"
        )


def lemma1(A: Tensor, column: int, target: Tensor, rho: float) -> LemmaOne:
    """The unit that takes a column of A, (d, m), to `target`; columns at least rho/2 from that one stay."""
    A, target = A.to(torch.float64), target.to(torch.float64)
    if A.ndim != 2 or target.shape != A.shape[:1]:
        raise InputError(f"expected A (d, m) and a target (d,), got {tuple(A.shape)} and {tuple(target.shape)}")
    if not 0 <= column < A.shape[1]:
        raise InputError(f"expected a column from 0 to {A.shape[1] - 1}, got {column}")
    expect_unit_columns("A", A)
    expect_unit_columns("target", target[:, None])
    a = A[:, column]
    others = torch.cat([A[:, :column], A[:, column + 1 :]], 1)
    nearest = float((others - a[:, None]).norm(dim=0).amin()) if others.numel() else math.inf
    if not 0 < rho <= 2 * nearest * (1 + UNIT_TOLERANCE):
        raise InputError(
            f"expected rho > 0 and columns at least rho/2 from column {column}, "
            f"got rho={rho} and a distance of {nearest:.6g}"
        )
    delta = float((target - a).norm())
    W1, W2, b = A.new_zeros(len(A), len(A)), A.new_zeros(len(A), len(A)), A.new_zeros(len(A))
    if delta > 0:
        W1[0] = math.sqrt(8 * delta) / rho * a
        W2[:, 0] = math.sqrt(8 / delta) / rho * (target - a)
        b[0] = math.sqrt(8 * delta) / rho * (rho**2 / 8 - 1)
    return LemmaOne(A, column, target, rho, W1, W2, b)


def expect_unit_columns(name: str, A: Tensor) -> None:
    worst = float((A.norm(dim=0) - 1).abs().amax())
    if not worst <= UNIT_TOLERANCE:  # also NaN
        raise InputError(
            f"expected unit vectors as columns of {name}, got lengths up to {worst:.3g} from 1: normalise them"
        )


# -- lemma 2


@dataclass(frozen=True, eq=False)
class Arc:
    """centre + radius (cos t a + sin t b) for t from `first` to `last`; a, b and centre are orthogonal."""

    centre: Tensor
    radius: float
    a: Tensor
    b: Tensor
    first: float
    last: float

    @property
    def length(self) -> float:
        return self.radius * (self.last - self.first)

    def at(self, t: Tensor) -> Tensor:
        """Points at angles t (k,): k, d."""
        return self.centre + self.radius * (t.cos()[:, None] * self.a + t.sin()[:, None] * self.b)

    def distance(self, points: Tensor) -> Tensor:
        """The smallest distance of the whole arc from each column of `points` (d, k): k."""
        x, y = self.a @ points, self.b @ points
        closest = torch.atan2(y, x)
        closest = torch.where(closest < self.first, closest + 2 * math.pi, closest)
        ends = [torch.full_like(x, angle) for angle in (self.first, self.last)]
        inside = torch.where(closest <= self.last, closest, ends[0])
        inner = [self.radius * (t.cos() * x + t.sin() * y) for t in (inside, *ends)]
        product = self.centre @ points + torch.stack(inner).amax(0)
        return (2 - 2 * product).clamp_min(0).sqrt()


@dataclass(frozen=True)
class PathCheck:
    """The path against what Lemma 2 says of it."""

    distance: float  # the smallest from an obstacle, over all of the path
    distance_at_least: float
    length: float
    length_at_most: float

    @property
    def holds(self) -> bool:
        return self.distance >= self.distance_at_least * (1 - UNIT_TOLERANCE) and self.length <= self.length_at_most

    def __str__(self) -> str:
        return (
            f"smallest distance {self.distance:.6g} (at least {self.distance_at_least:.6g}), "
            f"length {self.length:.4g} (at most {self.length_at_most:.4g})"
        )


@dataclass(frozen=True, eq=False)
class SpherePath:
    """A path from one unit vector to another, as arcs."""

    start: Tensor  # d
    end: Tensor  # d
    obstacles: Tensor  # d, k
    rho: float
    arcs: tuple[Arc, ...]

    @property
    def length(self) -> float:
        return sum(arc.length for arc in self.arcs)

    @property
    def length_at_most(self) -> float:
        """Lemma 2's bound."""
        return math.pi * (1 + self.rho * self.obstacles.shape[1] / 2)

    @property
    def detours(self) -> int:
        """Around how many obstacles it goes."""
        return len(self.arcs) // 2

    def stops(self, steps: int) -> Tensor:
        """Unit vectors from start to end that cut the path into pieces of equal length: steps + 1, d."""
        if steps < 1:
            raise InputError(f"expected at least one step, got {steps}")
        lengths = torch.tensor([arc.length for arc in self.arcs], dtype=torch.float64, device="cpu")
        ends = lengths.cumsum(0)
        along = torch.arange(1, steps, dtype=torch.float64, device="cpu") * (ends[-1] / steps)
        which = torch.searchsorted(ends, along).clamp_max(len(self.arcs) - 1)
        inner = []
        for k, arc in enumerate(self.arcs):
            angles = arc.first + (along[which == k] - (ends[k] - lengths[k])) / arc.radius
            inner.append(arc.at(angles.to(self.start.device)))
        points = torch.cat(inner)
        return torch.cat([self.start[None], points / points.norm(dim=1, keepdim=True), self.end[None]])

    def check(self) -> PathCheck:
        distances = [arc.distance(self.obstacles) for arc in self.arcs]
        smallest = float(torch.stack(distances).amin()) if self.obstacles.numel() else math.inf
        return PathCheck(smallest, self.rho / 2, self.length, self.length_at_most)

    def __str__(self) -> str:
        return (
            f"path of length {self.length:.4g} on the sphere in dimension {len(self.start)}, "
            f"around {self.detours} of {self.obstacles.shape[1]} obstacles: {self.check()}"
        )


def lemma2(start: Tensor, end: Tensor, obstacles: Tensor, rho: float) -> SpherePath:
    """The path from start (d,) to end (d,), rho/2 or more from the columns of obstacles (d, k).

    Start and end must be at least rho/2 from the obstacles, and these at least rho from one another.
    """
    start, end, obstacles = (x.to(torch.float64) for x in (start, end, obstacles))
    if start.ndim != 1 or start.shape != end.shape or obstacles.ndim != 2 or len(obstacles) != len(start):
        raise InputError(
            "expected a start (d,), an end (d,) and obstacles (d, k), got shapes "
            f"{tuple(start.shape)}, {tuple(end.shape)} and {tuple(obstacles.shape)}"
        )
    if len(start) < 3:
        raise InputError(f"expected dimension 3 or more, where there is a way around a point; got {len(start)}")
    expect_unit_columns("start and end", torch.stack([start, end], 1))
    if not 0 < rho <= 2:
        raise InputError(f"expected a distance 0 < rho <= 2 on the unit sphere, got {rho}")
    if obstacles.numel():
        expect_unit_columns("obstacles", obstacles)
        _expect_apart("start or end and an obstacle", torch.cdist(torch.stack([start, end]), obstacles.T), rho / 2)
        _expect_apart("two obstacles", torch.pdist(obstacles.T), rho)
    main = _arc(torch.zeros_like(start), 1.0, start, end)
    theta = 2 * math.asin(rho * (1 + CLEARANCE) / 4)
    arcs, reached = [], 0.0
    for entry, exit, obstacle in sorted(_crossings(main, obstacles, theta), key=lambda crossing: crossing[:2]):
        before = Arc(main.centre, 1.0, main.a, main.b, reached, entry)
        centre, radius = math.cos(theta) * obstacles[:, obstacle], math.sin(theta)
        gate = main.at(torch.tensor([entry, exit], dtype=torch.float64, device=start.device))
        arcs += [before, _arc(centre, radius, *((gate - centre) / radius))]
        reached = exit
    arcs.append(Arc(main.centre, 1.0, main.a, main.b, reached, main.last))
    return SpherePath(start, end, obstacles, rho, tuple(arcs))


def _crossings(main: Arc, obstacles: Tensor, theta: float) -> list[tuple[float, float, int]]:
    """Where a great circle is closer than the angle theta to an obstacle: from, to, which."""
    x, y = main.a @ obstacles, main.b @ obstacles
    reach, middle = torch.hypot(x, y), torch.atan2(y, x)
    found = []
    for k in range(obstacles.shape[1]):
        if float(reach[k]) > math.cos(theta) and 0 < float(middle[k]) < main.last:
            half = math.acos(min(1.0, math.cos(theta) / float(reach[k])))
            found.append((float(middle[k]) - half, float(middle[k]) + half, k))
    return found


def _arc(centre: Tensor, radius: float, a: Tensor, b: Tensor) -> Arc:
    """The shorter arc from centre + radius a to centre + radius b; any one of them where the two are opposite."""
    a, b = a / a.norm(), b / b.norm()
    angle = 2 * math.atan2(float((a - b).norm()), float((a + b).norm()))
    candidates = [b, *torch.eye(len(a), dtype=a.dtype, device=a.device)]
    axes = [a] if radius == 1 else [a, centre / centre.norm()]
    sideways = [_orthogonal(v, axes) for v in candidates]
    best = (
        sideways[0] if float(sideways[0].norm()) > UNIT_TOLERANCE else max(sideways[1:], key=lambda v: float(v.norm()))
    )
    return Arc(centre, radius, a, _orthogonal(best / best.norm(), axes), 0.0, angle)


def _orthogonal(v: Tensor, axes: list[Tensor]) -> Tensor:
    for axis in (*axes, *axes):  # twice: the second time for what rounding left
        v = v - (axis @ v) * axis
    return v


def _expect_apart(what: str, distances: Tensor, least: float) -> None:
    if distances.numel() and not float(distances.amin()) >= least * (1 - UNIT_TOLERANCE):
        raise InputError(f"expected {what} at least {least:.6g} apart, got a distance of {float(distances.amin()):.6g}")
