"""Random matrices: singular or not against rational arithmetic, condition numbers of long products beyond float64."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy
import pytest
import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.papers.c.theory import (
    gaussian_exponents,
    matrix_product,
    random_matrices,
    random_product,
    residual_isometry,
    singular,
    small_branch_exponents,
)

Rational = list[list[Fraction]]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator("cpu").manual_seed(seed)


# -- proposition 1


@pytest.mark.parametrize("entries", ["normal", "uniform"])
def test_no_draw_of_continuous_entries_is_singular(entries: str) -> None:
    drawn = random_matrices(entries, 1000, 20, generator())  # type: ignore[arg-type]
    assert not singular(drawn).any()
    assert torch.linalg.svdvals(drawn)[:, -1].min() > 0


def test_half_of_all_sign_matrices_of_size_two_are_singular() -> None:
    every = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=4)), dtype=torch.float64).reshape(-1, 2, 2)
    found = singular(every)
    assert int(found.sum()) == 8
    assert torch.equal(found, every[:, 0, 0] * every[:, 1, 1] == every[:, 0, 1] * every[:, 1, 0])
    drawn = random_matrices("signs", 1000, 2, generator())
    assert set(drawn.unique().tolist()) == {-1.0, 1.0}
    assert float(singular(drawn).double().mean()) == pytest.approx(0.5, abs=0.06)


def test_singular_is_exact() -> None:
    """Where rounding would say the opposite: tiny entries, and a determinant that is one unit in the last place."""
    matrices = torch.eye(3, dtype=torch.float64).repeat(5, 1, 1)
    matrices[0] *= 1e-200
    matrices[1, 2, 2] = 0
    matrices[2] = torch.tensor([[0.1, 0.2, 0.3], [0.1, 0.2, 0.3 + 2**-53], [1.0, 1.0, 0.0]], dtype=torch.float64)
    matrices[3] = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]], dtype=torch.float64)
    matrices[4, 0, 0] = 2**31 - 1  # the prime itself: 0 modulo it, and not 0
    assert singular(matrices).tolist() == [False, True, bool(matrices[2, 0, 2] == matrices[2, 1, 2]), True, False]
    with pytest.raises(InputError, match=r"\(draws, n, n\)"):
        singular(torch.ones(2, 3))
    with pytest.raises(InputError, match="NaN or infinite"):
        singular(torch.full((1, 2, 2), math.nan))
    with pytest.raises(InputError, match="entries"):
        random_matrices("cauchy", 1, 2, generator())  # type: ignore[arg-type]
    with pytest.raises(InputError, match="a draw"):
        random_matrices("normal", 0, 2, generator())


# -- products


def times(left: Rational, right: Rational) -> Rational:
    columns = list(zip(*right, strict=True))
    return [[sum((a * b for a, b in zip(row, column, strict=True)), Fraction()) for column in columns] for row in left]


def inverse(matrix: Rational) -> Rational:
    n = len(matrix)
    rows = [[*row, *(Fraction(int(i == j)) for j in range(n))] for i, row in enumerate(matrix)]
    for column in range(n):
        pivot = next(place for place in range(column, n) if rows[place][column])
        rows[column], rows[pivot] = rows[pivot], rows[column]
        rows[column] = [value / rows[column][column] for value in rows[column]]
        for place in range(n):
            if place != column:
                factor = rows[place][column]
                rows[place] = [a - factor * b for a, b in zip(rows[place], rows[column], strict=True)]
    return [row[n:] for row in rows]


def log10_norm(matrix: Rational) -> float:
    largest = max(abs(value) for row in matrix for value in row)
    scaled = numpy.array([[float(value / largest) for value in row] for row in matrix])
    exponent = math.log10(largest.numerator) - math.log10(largest.denominator)
    return exponent + math.log10(numpy.linalg.norm(scaled, 2))


@pytest.mark.parametrize(("skips", "scale"), [(False, 1.0), (True, 1.0), (True, 0.1)])
def test_condition_of_long_products_is_that_of_rational_arithmetic(skips: bool, scale: float) -> None:
    product = random_product(3, 48, seed=5, skips=skips, scale=scale)
    exact = [[Fraction(int(i == j)) for j in range(3)] for i in range(3)]
    for depth, factor in enumerate(product.factors, 1):
        exact = times([[Fraction(value) for value in row] for row in factor.tolist()], exact)
        if depth in (1, 8, 48):
            expected = log10_norm(exact) + log10_norm(inverse(exact))
            assert float(product.log10_condition[depth - 1]) == pytest.approx(expected, abs=1e-9)
    if not skips:
        assert expected > 25  # float64 would not have shown it
        assert math.log10(product.in_float64().value) < 22


@pytest.mark.parametrize("scale", [0.05, 0.3])
def test_short_products_have_the_condition_of_their_svd(scale: float) -> None:
    product = random_product(12, 10, seed=2, scale=scale)
    whole = torch.linalg.multi_dot([*product.factors.flip(0)])
    values = torch.linalg.svdvals(whole)
    assert float(product.log10_condition[-1]) == pytest.approx(float((values[0] / values[-1]).log10()), rel=1e-9)
    assert math.log10(product.in_float64().value) == pytest.approx(float(product.log10_condition[-1]), rel=1e-9)
    torch.testing.assert_close(product.squared_singular_values(), values.square())
    assert product.in_float64(1).value == pytest.approx(float(torch.linalg.cond(product.factors[0])), rel=1e-9)


def test_skips_condition_a_product_only_if_branches_are_small() -> None:
    infinity = random_product(20, 1, seed=0).numerical_infinity
    assert infinity == pytest.approx(14.35, abs=0.01)
    plain, he, tenth = (
        random_product(20, 110, seed=1, skips=skips, scale=scale)
        for skips, scale in ((False, 1.0), (True, 1.0), (True, 0.1))
    )
    assert float(plain.log10_condition[-1]) > 100
    assert float(he.log10_condition[-1]) > 50
    assert he.in_float64().status == "numerically infinite"
    assert math.log10(he.in_float64().value) < 22
    assert float(tenth.log10_condition[-1]) < 4
    assert "numerically infinite" in str(he)


def test_exponents_of_gaussian_products_are_newmans() -> None:
    product = random_product(6, 4000, seed=3, skips=False, weights=1)
    expected = gaussian_exponents(6, 2 / 6)
    assert (product.exponents - expected).abs().max() < 0.05
    growth = float(product.log10_condition[-1]) * math.log(10) / 4000
    assert growth == pytest.approx(float(expected[0] - expected[-1]), rel=0.02)


def test_exponents_of_small_branches() -> None:
    scale, size = 0.1, 6
    product = random_product(size, 6000, seed=4, scale=scale)
    expected = small_branch_exponents(size, 4 * scale**2 / size)
    assert (product.exponents - expected).abs().max() < 0.15 * float(expected[0] - expected[-1])
    assert float(expected.sum()) == pytest.approx(-size * 4 * scale**2 / size / 2)  # of the determinant: -v n / 2


def test_conditions_of_short_products_follow_the_semicircle() -> None:
    scale, units = 0.005, 50
    found = random_product(150, units, seed=0, scale=scale).log10_condition[-1]
    assert float(found) * math.log(10) == pytest.approx(2 * math.sqrt(2 * 4 * scale**2 * units), rel=0.1)


@pytest.mark.parametrize("c", [0.25, 1.0])
def test_moments_at_fixed_variance(c: float) -> None:
    units = 100
    values = random_product(150, units, seed=1, scale=math.sqrt(c / (4 * units))).squared_singular_values()
    limit = residual_isometry(c)
    assert float(values.mean()) == pytest.approx(limit.moment(1), rel=0.03)
    assert float(values.square().mean()) == pytest.approx(limit.moment(2), rel=0.1)


def diagonal(*values: float) -> Tensor:
    return torch.diag(torch.tensor(values, dtype=torch.float64))


def test_nothing_overflows() -> None:
    product = matrix_product(torch.stack([diagonal(1e3, 1e-3)] * 300))
    assert float(product.log10_condition[-1]) == pytest.approx(1800, rel=1e-12)
    assert float(product.log10_largest[-1]) == pytest.approx(900, rel=1e-12)
    torch.testing.assert_close(product.exponents, torch.tensor([math.log(1e3), -math.log(1e3)], dtype=torch.float64))


def test_what_is_wrong_is_named() -> None:
    with pytest.raises(InputError, match=r"\(L, n, n\)"):
        matrix_product(torch.ones(2, 2))
    with pytest.raises(InputError, match="NaN or infinite"):
        matrix_product(torch.full((1, 2, 2), math.inf))
    with pytest.raises(InputError, match="can invert"):
        matrix_product(diagonal(1.0, 0.0)[None])
    with pytest.raises(InputError, match="depth"):
        random_product(3, 2, seed=0).in_float64(3)
    for options in ({"units": 0}, {"scale": 0.0}, {"weights": 0}, {"scale": math.inf}):
        with pytest.raises(InputError, match="scale above 0"):
            random_product(**{"size": 3, "units": 2, "seed": 0, **options})  # type: ignore[arg-type]
    for exponents in (gaussian_exponents, small_branch_exponents):
        with pytest.raises(InputError, match="variance above 0"):
            exponents(3, 0.0)
