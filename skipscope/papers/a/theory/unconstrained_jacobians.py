"""The unconstrained Jacobians model of Residual Alignment (definition 3.2), and theorem 3.3 about its optimum.

    minimise  f(J_1, ..., J_L, w) = loss(z) + lambda/2 (sum |J_i|_F^2 + |w|^2),   z = w^T (I + J_L) ... (I + J_1) Delta

The theorem: there is a global optimum where all J_i are rank one, with one singular value s and with singular vectors
that are all alike. With delta = |Delta| and d = Delta / delta it is J_i = s d d^T, w = omega d, where omega and s
minimise

    loss(omega delta (1 + s)^L) + lambda/2 (L s^2 + omega^2)                                    (the scalar problem)

More is true, by its gradient alone. Write a_i = (I + J_{i+1})^T ... (I + J_L)^T w, b_i = (I + J_{i-1}) ... (I + J_1)
Delta and c = -loss'(z)/lambda > 0. Stationary points have J_i = c a_i b_i^T and w = c b_{L+1}, so that each J_i has
rank one, and

    J_i (I + J_i)^T = c a_i b_{i+1}^T = (I + J_{i+1})^T J_{i+1},        J_L (I + J_L)^T = w w^T.

The last makes J_L = w w^T - J_L J_L^T symmetric, the first makes all others so in turn. Hence at every stationary point
with loss'(z) < 0 there is one s > 0 with

    J_i = s_i d d^T,   s_i = s or -(1 + s),   w = +-omega d,   omega^2 = s (1 + s)               (the invariant)

whatever depth, loss and lambda are. The second kind of unit is `flipped`: it turns the state around, I + J_i being -s
along d. Optima have none of them: s in place of -(1 + s) costs less and gives a larger z. So for a loss with loss' < 0
every global optimum has the structure of the theorem, not one alone. If D = 1 points with flipped units can be local
minima. For D > 1 all that were looked at are saddles (`Solution.curvature`): a flipped unit can be turned around.

A stationary point with w = 0 has J_i = 0, where the gradient along w is loss'(0) Delta. So zero is stationary only if
loss'(0) = 0. Logistic, exponential and hinge losses have loss'(0) < 0 and never stop there, however large lambda is. A
loss that is flat at zero does, and from some lambda on that is its optimum.

Where the paper prints something else:
- The top singular values are averaged over 1 <= i <= L, not up to L + 1: s_{L+1} = |w| delta is no Jacobian's.
- "There exists a global optimum": every one is so, for loss' < 0.
- Equal s_i let states grow like (1 + s)^i, exponentially. That is analogous to RA4, as the paper says, but not its 1/i,
  for which states grow linearly (theorem 3.1).
- The trace inequality is used with a determinant of sign 1; see `trace_inequality`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property

import numpy
import torch
import torch.nn.functional as F
from torch import Tensor

from skipscope.errors import InputError
from skipscope.numerics import load_forward_mode, normal

Loss = Callable[[Tensor], Tensor]

START_SCALE = 0.5  # of random starts: |J_i|_F and |w| are about as large
MOST_ITERATIONS = 20_000  # of L-BFGS
REMEMBERED_STEPS = 50  # by L-BFGS
GRID_POINTS = 300  # for omega, and for s
MOST_NEWTON_STEPS = 10  # that end a scalar solution
SCALAR_STARTS = 6  # of the scalar solver, from the lowest places of the grid
ROOT_GRID_POINTS = 4000  # on which roots in s are separated
SMALLEST_ROOT = 1e-12  # in s that is searched for
SAME_OBJECTIVE = 1e-8  # a difference of objectives that counts as none
ZERO_WEIGHT = 1e-6  # a |w| that counts as 0
CHECKED_LOGITS = 4001  # at which a loss is checked


def logistic(z: Tensor) -> Tensor:
    return F.softplus(-z)


def exponential(z: Tensor) -> Tensor:
    return torch.exp(-z)


def smooth_hinge(z: Tensor) -> Tensor:
    """max(0, 1 - z), with a corner that is rounded off."""
    return F.softplus(4 * (1 - z)) / 4


def flat_at_zero(z: Tensor) -> Tensor:
    """Decreasing, but with slope 0 up to z = 0."""
    return 1 / (1 + F.relu(z) ** 4)


LOSSES: dict[str, Loss] = {
    "logistic": logistic,
    "exponential": exponential,
    "smooth hinge": smooth_hinge,
    "flat at zero": flat_at_zero,
}


@dataclass(frozen=True)
class ScalarOptimum:
    """The solution of the scalar problem."""

    omega: float
    s: float
    objective: float
    gradient: float  # largest entry that is left

    @property
    def zero(self) -> bool:
        return self.omega <= ZERO_WEIGHT

    @property
    def invariant(self) -> float:
        """omega^2 - s (1 + s), which is 0."""
        return self.omega**2 - self.s * (1 + self.s)


@dataclass(frozen=True)
class StationaryPoint:
    """J_i = s d d^T but for `flipped` units with -(1 + s) d d^T; |w|^2 = s (1 + s)."""

    flipped: int
    s: float
    objective: float


@dataclass(frozen=True)
class Structure:
    """How far a solution is from what theorem 3.3 says; NaN where all is zero."""

    variation: float  # standard deviation over mean of the top singular values
    second: float  # largest s_2 / s_1
    left_right: float  # largest 1 - u . v
    direction: float  # largest 1 - |u . d|
    head: float  # 1 - cos(w, Delta)
    invariant: float  # largest | |w|^2 - s_i (1 + s_i) |

    @property
    def worst(self) -> float:
        return max(map(abs, astuple(self)))


@dataclass(frozen=True, eq=False)
class Solution:
    """Where a minimisation ended."""

    problem: UnconstrainedJacobians
    J: Tensor  # L, D, D
    w: Tensor  # D
    objective: float
    gradient: float  # norm that is left
    iterations: int

    @cached_property
    def singular_values(self) -> Tensor:
        """(L, D), descending"""
        return torch.linalg.svdvals(self.J)

    @property
    def zero(self) -> bool:
        return float(self.w.norm()) <= ZERO_WEIGHT

    @property
    def flipped(self) -> int:
        """Units with u . v < 0."""
        return int((self.J.diagonal(dim1=1, dim2=2).sum(1) < -ZERO_WEIGHT).sum())

    @property
    def excess(self) -> float:
        """Objective minus that of the scalar optimum."""
        return self.objective - self.problem.scalar_optimum.objective

    @property
    def optimal(self) -> bool:
        return self.excess <= SAME_OBJECTIVE

    @cached_property
    def structure(self) -> Structure:
        if self.zero:
            return Structure(*[math.nan] * 6)
        U, S, Vh = torch.linalg.svd(self.J)
        u, v, s = U[:, :, 0], Vh[:, 0], S[:, 0]
        d = self.problem.delta / self.problem.delta.norm()
        second = float((S[:, 1] / s).max()) if S.shape[1] > 1 else 0.0
        return Structure(
            float(s.std(correction=0) / s.mean()),
            second,
            float((1 - (u * v).sum(1)).max()),
            float((1 - (u @ d).abs()).max()),
            float(1 - self.w @ d / self.w.norm()),
            float((self.w.square().sum() - s * (1 + s)).abs().max()),
        )

    @property
    def growth(self) -> Tensor:
        """(L + 1,): lengths of Delta on its way through the units, over its own: (1 + s)^i at the optimum."""
        lengths, state = [1.0], self.problem.delta
        for J in self.J:
            state = state + J @ state
            lengths.append(float(state.norm() / self.problem.delta.norm()))
        return torch.tensor(lengths, dtype=torch.float64, device="cpu")

    @cached_property
    def curvature(self) -> float:
        """The lowest eigenvalue of the Hessian of f here: negative at a saddle."""
        L, D, _ = self.J.shape

        def objective(parameters: Tensor) -> Tensor:
            return self.problem.objective(parameters[:-D].reshape(L, D, D), parameters[-D:])

        load_forward_mode()
        here = torch.cat([self.J.flatten(), self.w])
        return float(torch.linalg.eigvalsh(torch.func.hessian(objective)(here))[0])

    def __str__(self) -> str:
        kind = "the optimum" if self.optimal else f"a stationary point, {self.excess:.3e} above the optimum"
        lines = [f"objective {self.objective:.12g}, {kind}; gradient {self.gradient:.1e}, {self.flipped} flipped units"]
        if self.zero:
            lines.append("  all Jacobians and w are zero")
        else:
            found = self.structure
            lines.append(f"  s_i {float(self.singular_values[:, 0].mean()):.6g} with variation {found.variation:.1e}")
            lines.append(
                f"  s_2/s_1 {found.second:.1e}, 1 - u.v {found.left_right:.1e}, 1 - |u.d| {found.direction:.1e}"
            )
            lines.append(f"  1 - cos(w, Delta) {found.head:.1e}, |w|^2 - s(1 + s) {found.invariant:.1e}")
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class UnconstrainedJacobians:
    """The model for one Delta and the label 1; the label -1 is that of -Delta."""

    delta: Tensor  # D: Delta
    depth: int  # L
    weight: float  # lambda
    loss: Loss = logistic

    def __post_init__(self) -> None:
        object.__setattr__(self, "delta", torch.as_tensor(self.delta).detach().to("cpu", torch.float64))
        if self.delta.ndim != 1 or not bool(self.delta.isfinite().all()) or not bool(self.delta.any()):
            raise InputError(f"expected a finite Delta of shape (D) that is not 0, got shape {tuple(self.delta.shape)}")
        if self.depth < 1 or not self.weight > 0:
            raise InputError(f"expected depth >= 1 and weight > 0, got depth={self.depth} and weight={self.weight}")
        places = torch.linspace(-5, 5, CHECKED_LOGITS, dtype=torch.float64, device="cpu")
        values = self.loss(places)
        if values.shape != places.shape or not bool((values >= 0).all()) or bool((values.diff() > 0).any()):
            raise InputError(
                "expected a loss of one logit that never rises and is at least 0, entry by entry of a tensor"
            )

    def objective(self, J: Tensor, w: Tensor) -> Tensor:
        """f for J (L, D, D) and w (D)."""
        state = self.delta
        for matrix in J:
            state = state + matrix @ state
        return self.loss(w @ state) + self.weight / 2 * (J.square().sum() + w.square().sum())

    # -- the scalar problem

    @cached_property
    def scalar_optimum(self) -> ScalarOptimum:
        """By Newton's method in a trust region, from the lowest places of a grid over all that can be optimal."""
        from scipy.optimize import minimize

        def objective(pair: numpy.ndarray) -> float:
            return float(self._scalar(torch.from_numpy(pair)))

        def gradient(pair: numpy.ndarray) -> numpy.ndarray:
            return torch.func.grad(self._scalar)(torch.from_numpy(pair)).numpy()

        def hessian(pair: numpy.ndarray) -> numpy.ndarray:
            return torch.func.hessian(self._scalar)(torch.from_numpy(pair)).numpy()

        load_forward_mode()
        ends = [
            minimize(objective, pair, jac=gradient, hess=hessian, method="trust-exact").x
            for pair in self._lowest_on_grid()
        ]
        best = min([*ends, numpy.zeros(2)], key=objective)
        for _ in range(MOST_NEWTON_STEPS):  # values of the objective cannot tell apart what its gradient can
            step = numpy.linalg.lstsq(hessian(best), gradient(best), rcond=None)[0]
            if abs(gradient(best - step)).max() >= abs(gradient(best)).max():
                break
            best = best - step
        omega, s = (abs(float(value)) for value in best)
        return ScalarOptimum(omega, s, objective(best), float(abs(gradient(best)).max()))

    def _scalar(self, pair: Tensor) -> Tensor:
        """The scalar problem at (..., 2): omega and s."""
        omega, s = pair.unbind(-1)
        z = omega * self.delta.norm() * (1 + s) ** self.depth
        return self.loss(z) + self.weight / 2 * (self.depth * s**2 + omega**2)

    @property
    def largest(self) -> tuple[float, float]:
        """omega and s beyond which the penalty alone is more than f at zero."""
        at_zero = float(self.loss(self.delta.new_zeros(1)))
        return math.sqrt(2 * at_zero / self.weight), math.sqrt(2 * at_zero / (self.weight * self.depth))

    def _lowest_on_grid(self) -> list[numpy.ndarray]:
        squares = torch.linspace(0, 1, GRID_POINTS, dtype=torch.float64, device="cpu").square()
        omega, s = self.largest
        pairs = torch.stack(torch.meshgrid(omega * squares, s * squares, indexing="ij"), -1)
        values = self._scalar(pairs)
        lowest = values == -F.max_pool2d(-values[None, None], 3, stride=1, padding=1)[0, 0]
        order = values[lowest].argsort()[:SCALAR_STARTS]
        return list(pairs[lowest][order].numpy())

    # -- all stationary points

    @cached_property
    def stationary_points(self) -> tuple[StationaryPoint, ...]:
        """All with loss' < 0, by the number of flipped units, as roots of one equation in s; the lowest first.

        lambda omega + loss'(z) delta (1 + s)^(L - m) s^m = 0 for m flipped units, omega^2 = s (1 + s).
        """
        from scipy.optimize import brentq

        found = []
        grid = numpy.geomspace(SMALLEST_ROOT, max(self.largest), ROOT_GRID_POINTS)
        for flipped in range(self.depth + 1):

            def equation(s: float, flipped: int = flipped) -> float:
                return float(self._equation(numpy.array([s]), flipped)[0])

            values = self._equation(grid, flipped)
            for place in numpy.flatnonzero(values[1:] * values[:-1] < 0):
                s = brentq(equation, grid[place], grid[place + 1], xtol=1e-300, rtol=1e-15)
                found.append(self._stationary_point(s, flipped))
        return tuple(sorted(found, key=lambda point: point.objective))

    def _equation(self, s: numpy.ndarray, flipped: int) -> numpy.ndarray:
        omega = numpy.sqrt(s * (1 + s))
        factor = float(self.delta.norm()) * (1 + s) ** (self.depth - flipped) * s**flipped
        return self.weight * omega + self._values_and_slopes(omega * factor)[1] * factor

    def _stationary_point(self, s: float, flipped: int) -> StationaryPoint:
        omega = math.sqrt(s * (1 + s))
        z = omega * float(self.delta.norm()) * (1 + s) ** (self.depth - flipped) * s**flipped
        squares = (self.depth - flipped) * s**2 + flipped * (1 + s) ** 2 + omega**2
        value = float(self._values_and_slopes(numpy.array(z))[0]) + self.weight / 2 * squares
        return StationaryPoint(flipped, s, value)

    def at(self, point: StationaryPoint) -> Solution:
        """The Jacobians and w of a stationary point, its first units flipped."""
        d = self.delta / self.delta.norm()
        values = torch.full((self.depth,), point.s, dtype=torch.float64, device="cpu")
        values[: point.flipped] = -(1 + point.s)
        w = (-1) ** point.flipped * math.sqrt(point.s * (1 + point.s)) * d
        return self._solution(torch.cat([(values[:, None, None] * torch.outer(d, d)).flatten(), w]).numpy(), 0)

    def _values_and_slopes(self, z: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
        """The loss and its derivative at logits."""
        logits = torch.from_numpy(z).requires_grad_()
        values = self.loss(logits)
        return values.detach().numpy(), torch.autograd.grad(values.sum(), logits)[0].numpy()

    # -- the full problem

    def minimise(self, seed: int = 0, scale: float = START_SCALE) -> Solution:
        """L-BFGS from random Jacobians and a random w."""
        D = len(self.delta)
        drawn = normal((self.depth * D * D + D,), torch.Generator("cpu").manual_seed(seed))
        drawn[:-D] *= scale / D
        drawn[-D:] *= scale / math.sqrt(D)
        return self.minimise_from(drawn[:-D].reshape(self.depth, D, D), drawn[-D:])

    def minimise_from(self, J: Tensor, w: Tensor) -> Solution:
        from scipy.optimize import minimize

        D = len(self.delta)
        if J.shape != (self.depth, D, D) or w.shape != (D,):
            raise InputError(
                f"expected J of shape {(self.depth, D, D)} and w of shape {(D,)}, got {tuple(J.shape)} and "
                f"{tuple(w.shape)}"
            )
        start = torch.cat([J.flatten(), w]).to("cpu", torch.float64).numpy()
        most = {"maxiter": MOST_ITERATIONS, "maxfun": 2 * MOST_ITERATIONS}
        options = {**most, "maxcor": REMEMBERED_STEPS, "ftol": 0.0, "gtol": 1e-13}
        found = minimize(self._value_and_gradient, start, jac=True, method="L-BFGS-B", options=options)
        return self._solution(found.x, int(found.nit))

    def _solution(self, parameters: numpy.ndarray, iterations: int) -> Solution:
        D, end = len(self.delta), torch.from_numpy(parameters)
        value, gradient = self._value_and_gradient(parameters)
        left = float(numpy.linalg.norm(gradient))
        return Solution(self, end[:-D].reshape(self.depth, D, D), end[-D:], value, left, iterations)

    def solve(self, starts: int = 4, seed: int = 0) -> list[Solution]:
        """From several random starts; the lowest first."""
        if starts < 1:
            raise InputError(f"expected a start or more, got {starts}")
        return sorted((self.minimise(seed + start) for start in range(starts)), key=lambda one: one.objective)

    def _value_and_gradient(self, parameters: numpy.ndarray) -> tuple[float, numpy.ndarray]:
        """f and its gradient, lambda J_i + loss'(z) a_i b_i^T and lambda w + loss'(z) b_{L+1}."""
        D = len(self.delta)
        J, w = parameters[:-D].reshape(self.depth, D, D), parameters[-D:]
        forward = [self.delta.numpy()]  # b_1, ..., b_{L+1}
        for matrix in J:
            forward.append(forward[-1] + matrix @ forward[-1])
        value, slope = self._values_and_slopes(numpy.array(w @ forward[-1]))
        backward = [w]  # a_L, ..., a_1
        for matrix in J[:0:-1]:
            backward.append(backward[-1] + matrix.T @ backward[-1])
        gradient = self.weight * parameters
        outer = numpy.array(backward[::-1])[:, :, None] * numpy.array(forward[:-1])[:, None, :]
        gradient[:-D] += slope * outer.ravel()
        gradient[-D:] += slope * forward[-1]
        return float(value + self.weight / 2 * parameters @ parameters), gradient


def theorem33(
    delta: Tensor | Sequence[float], *, depth: int, weight: float, loss: Loss = logistic
) -> UnconstrainedJacobians:
    """The model for Delta, of `depth` Jacobians; weight: lambda; loss: of the logit, decreasing."""
    return UnconstrainedJacobians(torch.as_tensor(delta, dtype=torch.float64), depth, weight, loss)
