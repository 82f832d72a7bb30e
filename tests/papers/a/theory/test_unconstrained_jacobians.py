"""Theorem 3.3 of Residual Alignment: runs from random starts, the scalar problem, all stationary points."""

from __future__ import annotations

import math

import numpy
import pytest
import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.papers.a.theory import LOSSES, UnconstrainedJacobians, theorem33
from skipscope.papers.a.theory.unconstrained_jacobians import flat_at_zero, logistic
from tests import seeded

STEEP = [name for name in LOSSES if name != "flat at zero"]


def delta(size: int, length: float = 1.0, seed: int = 0) -> Tensor:
    generator = seeded.generator(seed)
    normal = torch.randn(size, dtype=torch.float64, generator=generator, device=generator.device).cpu()
    return length * normal / normal.norm()


@pytest.mark.parametrize("name", STEEP)
@pytest.mark.parametrize(
    ("size", "depth", "weight"), [(6, 2, 0.01), (3, 5, 0.1), (6, 10, 2.0), (1, 3, 0.1), (2, 1, 0.1)]
)
def test_every_run_ends_at_the_scalar_optimum(name: str, size: int, depth: int, weight: float) -> None:
    problem = theorem33(delta(size, 1.5), depth=depth, weight=weight, loss=LOSSES[name])
    scalar = problem.scalar_optimum
    assert scalar.gradient <= 1e-12
    assert abs(scalar.invariant) <= 1e-12
    for solution in problem.solve(2):
        assert solution.gradient <= 1e-6
        assert abs(solution.excess) <= 1e-10
        assert solution.optimal
        assert not solution.zero
        assert solution.structure.worst <= 1e-6
        assert float(solution.w.norm()) == pytest.approx(scalar.omega, abs=1e-6)
        assert float(solution.singular_values[0, 0]) == pytest.approx(scalar.s, abs=1e-6)


def test_states_grow_exponentially() -> None:
    solution = theorem33(delta(4), depth=10, weight=0.01).minimise()
    s = solution.problem.scalar_optimum.s
    expected = (1 + s) ** torch.arange(11, dtype=torch.float64)
    assert (solution.growth / expected - 1).abs().max() <= 1e-6


@pytest.mark.parametrize("name", LOSSES)
def test_the_gradient_is_that_of_automatic_differentiation(name: str) -> None:
    problem = theorem33(delta(3), depth=4, weight=0.3, loss=LOSSES[name])
    generator = seeded.generator(1)
    parameters = torch.randn(4 * 9 + 3, dtype=torch.float64, generator=generator, device=generator.device).cpu()
    parameters.requires_grad_()
    value = problem.objective(parameters[:-3].reshape(4, 3, 3), parameters[-3:])
    (expected,) = torch.autograd.grad(value, parameters)
    found, gradient = problem._value_and_gradient(parameters.detach().numpy())
    assert found == pytest.approx(float(value.detach()), rel=1e-14)
    numpy.testing.assert_allclose(gradient, expected.numpy(), atol=1e-13)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("weight", [0.01, 2.0])
def test_the_scalar_optimum_is_no_worse_than_a_fine_grid(name: str, weight: float) -> None:
    problem = theorem33(delta(2, 1.3), depth=4, weight=weight, loss=LOSSES[name])
    scalar = problem.scalar_optimum
    omega, s = problem.largest
    pairs = torch.cartesian_prod(
        torch.linspace(0, omega, 1500, dtype=torch.float64), torch.linspace(0, s, 1500, dtype=torch.float64)
    )
    z = pairs[:, 0] * 1.3 * (1 + pairs[:, 1]) ** 4
    values = LOSSES[name](z) + weight / 2 * (4 * pairs[:, 1].square() + pairs[:, 0].square())
    lowest = float(values.min())
    assert scalar.objective <= lowest + 1e-12
    assert lowest - scalar.objective <= 1e-3


def test_all_stationary_points_are_stationary_and_lie_on_the_invariant() -> None:
    for size in (1, 4):
        problem = theorem33(delta(size), depth=3, weight=0.1)
        points = problem.stationary_points
        assert [point.flipped for point in points][:3] == [0, 1, 2]
        assert points[0].objective == pytest.approx(problem.scalar_optimum.objective, abs=1e-14)
        for point in points:
            there = problem.at(point)
            assert there.gradient <= 1e-13
            assert there.objective == pytest.approx(point.objective, abs=1e-14)
            assert there.flipped == point.flipped
            assert float(there.w.square().sum()) == pytest.approx(point.s * (1 + point.s), rel=1e-12)


def test_flipped_units_are_minima_in_one_dimension_and_saddles_in_more() -> None:
    line = theorem33(delta(1), depth=3, weight=0.1)
    lowest_flipped = next(point for point in line.stationary_points if point.flipped)
    stuck = line.at(lowest_flipped)
    assert stuck.curvature > 0
    again = line.minimise_from(1.01 * stuck.J, 1.01 * stuck.w)
    assert not again.optimal
    assert again.flipped == 1
    assert again.objective == pytest.approx(lowest_flipped.objective, abs=1e-10)
    assert "above the optimum" in str(again)

    space = theorem33(delta(3), depth=3, weight=0.1)
    for point in space.stationary_points:
        assert (space.at(point).curvature < 0) == (point.flipped > 0)
    saddle = space.at(next(point for point in space.stationary_points if point.flipped))
    generator = seeded.generator(0)
    noise = 1e-3 * torch.randn(3, 3, 3, dtype=torch.float64, generator=generator, device=generator.device).cpu()
    assert space.minimise_from(saddle.J + noise, saddle.w).optimal


def test_no_penalty_makes_zero_optimal_unless_the_loss_is_flat_there() -> None:
    for weight in (2.0, 50.0):
        problem = theorem33(delta(3), depth=2, weight=weight)
        assert not problem.scalar_optimum.zero
        assert not problem.minimise().zero
        start = torch.zeros(2, 3, 3), torch.zeros(3)
        assert problem.minimise_from(*start).optimal
    flat = theorem33(delta(3), depth=2, weight=2.0, loss=flat_at_zero)
    assert flat.scalar_optimum.zero
    assert flat.scalar_optimum.objective == 1
    solution = flat.minimise()
    assert solution.zero
    assert solution.optimal
    assert math.isnan(solution.structure.worst)
    assert "all Jacobians and w are zero" in str(solution)
    small = theorem33(delta(3), depth=2, weight=0.1, loss=flat_at_zero)
    stuck = small.minimise_from(torch.zeros(2, 3, 3), torch.zeros(3))
    assert stuck.zero
    assert not stuck.optimal
    assert small.scalar_optimum.objective < 0.2


def test_a_run_can_be_read() -> None:
    text = str(theorem33(delta(3), depth=2, weight=0.1).minimise())
    assert "the optimum" in text
    assert "0 flipped units" in text


def test_what_is_wrong_is_named() -> None:
    with pytest.raises(InputError, match="not 0"):
        theorem33([0.0, 0.0], depth=2, weight=0.1)
    with pytest.raises(InputError, match="depth >= 1"):
        theorem33([1.0], depth=0, weight=0.1)
    with pytest.raises(InputError, match="weight > 0"):
        theorem33([1.0], depth=1, weight=0.0)
    with pytest.raises(InputError, match="never rises"):
        UnconstrainedJacobians(delta(2), 2, 0.1, lambda z: logistic(-z))
    with pytest.raises(InputError, match="at least 0"):
        UnconstrainedJacobians(delta(2), 2, 0.1, lambda z: -z)
    problem = theorem33([1.0, 2.0], depth=2, weight=0.1)
    with pytest.raises(InputError, match="a start or more"):
        problem.solve(0)
    with pytest.raises(InputError, match="expected J of shape"):
        problem.minimise_from(torch.zeros(2, 2, 3), torch.zeros(2))
