"""The spectrum of residual products: its moments, edges and density against one another and against free products."""

from __future__ import annotations

import math

import pytest
import torch

from skipscope.errors import InputError
from skipscope.papers.c.theory.residual_isometry import residual_isometry

VARIANCES = (0.01, 0.25, 1.0, 4.0)


@pytest.mark.parametrize("c", VARIANCES)
def test_moments_in_closed_form(c: float) -> None:
    found = residual_isometry(c)
    assert found.moment(1) == pytest.approx(math.exp(c), rel=1e-14)
    assert found.moment(2) == pytest.approx(math.exp(2 * c) * (1 + 2 * c), rel=1e-14)
    assert found.moment(3) == pytest.approx(math.exp(3 * c) * (1 + 6 * c + 6 * c**2), rel=1e-14)


@pytest.mark.parametrize("c", VARIANCES)
def test_the_density_has_these_moments_and_edges(c: float) -> None:
    """The parametric curve and Lagrange's formula are two ways from the S-transform."""
    found = residual_isometry(c)
    logs, density = found.log_density(20001)
    assert float(torch.trapezoid(density, logs)) == pytest.approx(1, abs=1e-8)
    for order in (1, 2, 3, 4):
        integral = float(torch.trapezoid(density * (2 * order * logs).exp(), logs))
        assert integral == pytest.approx(found.moment(order), rel=1e-7)
    assert [float(logs[0].exp()), float(logs[-1].exp())] == pytest.approx([found.smallest, found.largest], rel=1e-12)
    assert found.condition_number == pytest.approx(found.largest / found.smallest)
    torch.testing.assert_close(logs, -logs.flip(0), atol=1e-15, rtol=0)
    assert bool((logs.diff() > 0).all())


def test_the_moments_are_the_limit_of_free_products() -> None:
    """(I + W)(I + W)^T with entries of variance s / n has mean 1 + s and variance 2 s + s^2; of free factors means
    multiply and relative variances add."""
    for c in VARIANCES:
        errors = []
        for units in (10**4, 10**5):
            s = c / units
            mean = math.exp(units * math.log1p(s))
            second = mean**2 * (1 + units * (2 * s + s**2) / (1 + s) ** 2)
            found = residual_isometry(c)
            errors.append([abs(mean / found.moment(1) - 1), abs(second / found.moment(2) - 1)])
        assert errors[1] == pytest.approx([error / 10 for error in errors[0]], rel=0.01)  # of the order 1 / L


def test_edges_are_those_of_a_random_product() -> None:
    generator, n, units, c = torch.Generator("cpu").manual_seed(0), 200, 100, 0.5
    J = torch.eye(n, dtype=torch.float64, device="cpu")
    for _ in range(units):
        W = torch.randn(n, n, generator=generator, dtype=torch.float64, device="cpu")
        J = J + (c / (units * n)) ** 0.5 * W @ J
    values = torch.linalg.svdvals(J)
    found = residual_isometry(c)
    assert float(values[0]) == pytest.approx(found.largest, rel=0.05)
    assert float(values[-1]) == pytest.approx(found.smallest, rel=0.05)
    assert str(found).endswith("mean square 1.649, mean fourth power 5.437")


@pytest.mark.parametrize("variance", [0, -1.0, math.inf, math.nan])
def test_a_wrong_variance_is_refused(variance: float) -> None:
    with pytest.raises(InputError, match="expected a finite number above 0"):
        residual_isometry(variance)


def test_wrong_orders_and_points_are_refused() -> None:
    found = residual_isometry(1)
    for order in (0, 1.5, True):
        with pytest.raises(InputError, match="expected a whole number from 1 on"):
            found.moment(order)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="expected at least 2"):
        found.log_density(1)
