"""Theorem 3.1 of Residual Alignment: formulas against the recursion, growth against Gamma functions and rationals."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from skipscope.errors import InputError
from skipscope.papers.a.theory import gamma_growth, inverse_affine, theorem31
from tests import seeded


def drawn(size: int, count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = seeded.generator(seed)
    normal = torch.randn(size, count + 1, dtype=torch.float64, generator=generator, device=generator.device)
    return normal[:, -1], torch.linalg.qr(normal[:, :-1])[0]


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 8), st.integers(1, 40), st.integers(0, 10**6))
def test_states_are_on_a_line_equally_spaced(size: int, units: int, seed: int) -> None:
    start, U = drawn(size, 1, seed)
    way = theorem31(start, U[:, 0], inverse_affine(units))
    errors = way.check()
    assert errors.corrected <= 1e-12
    assert errors.steps <= 1e-12
    u = U[:, 0]
    for k, state in enumerate(way.recursion, 1):
        expected = start + (k - 1) * (u @ start) * u
        assert (state - expected).abs().max() <= 1e-12


def test_the_printed_formula_needs_a_start_along_u() -> None:
    start, U = drawn(6, 1)
    assert theorem31(start, U, inverse_affine(16)).check().printed > 0.1
    assert theorem31(3 * U[:, 0], U, inverse_affine(16)).check().printed <= 1e-12


def test_the_product_telescopes() -> None:
    start, U = drawn(4, 1)
    growth = theorem31(start, U, inverse_affine(1000)).growth[:, 0]
    k = torch.arange(1, 1002, dtype=torch.float64)
    assert (growth / k - 1).abs().max() <= 1e-12
    shifted = theorem31(start, U, inverse_affine(1000, 3.0)).growth[:, 0]
    assert (shifted / ((k + 3) / 4) - 1).abs().max() <= 1e-12


@pytest.mark.parametrize(("offset", "slope"), [(0, Fraction(1, 2)), (3, Fraction(2)), (-1, Fraction(5, 4)), (7, 1)])
def test_growth_by_gamma_functions_is_that_of_rational_arithmetic(offset: int, slope: Fraction) -> None:
    product, exact = Fraction(1), [1.0]
    for i in range(1, 61):
        product *= 1 + 1 / (offset + slope * i)
        exact.append(float(product))
    found = gamma_growth(60, float(offset), float(slope))
    assert (found / torch.tensor(exact, dtype=torch.float64) - 1).abs().max() <= 1e-12


@pytest.mark.parametrize(("slope", "exponent", "variation"), [(0.5, 2.0, 0.57), (2.0, 0.5, 0.75), (1.0, 1.0, 0.0)])
def test_other_slopes_grow_otherwise(slope: float, exponent: float, variation: float) -> None:
    start, U = drawn(5, 1)
    long = theorem31(start, U, inverse_affine(3000, 0.0, slope))
    assert long.exponent == pytest.approx(exponent, abs=2e-3)
    assert long.line_shape_score == pytest.approx(1, abs=1e-9)
    if slope == 1:
        assert long.step_variation <= 1e-12
    else:
        assert long.step_variation > variation - 0.1


def test_steps_are_equal_for_slope_one_alone() -> None:
    start, U = drawn(5, 1)
    for offset in (0.0, -0.5, 2.5):
        assert theorem31(start, U, inverse_affine(30, offset)).step_variation <= 1e-13
        for slope in (0.9, 1.1):
            assert theorem31(start, U, inverse_affine(30, offset, slope)).step_variation > 1e-2
    bent = inverse_affine(30)
    bent[17] *= 1.001
    assert theorem31(start, U, bent).step_variation > 1e-5


def test_several_directions_bend_unless_all_slopes_are_one() -> None:
    start, U = drawn(12, 4)
    offsets = (0.0, 1.0, 2.5, 7.0)
    straight = theorem31(start, U, torch.stack([inverse_affine(20, a) for a in offsets], 1))
    assert straight.check().from_line <= 1e-13
    assert straight.step_variation <= 1e-13
    bent = theorem31(start, U, torch.stack([inverse_affine(20, a, 2.0) for a in offsets], 1))
    assert bent.check().corrected <= 1e-13
    assert bent.check().from_line > 1e-3
    assert bent.line_shape_score > 1 + 1e-5
    assert "4 aligned directions" in str(bent)


def test_what_is_wrong_is_named() -> None:
    start, U = drawn(4, 2)
    with pytest.raises(InputError, match="orthonormal"):
        theorem31(start, 2 * U, inverse_affine(3))
    with pytest.raises(InputError, match=r"directions \(d, C\)"):
        theorem31(start[:3], U, inverse_affine(3))
    with pytest.raises(InputError, match="positive singular values"):
        theorem31(start, U, -inverse_affine(3))
    with pytest.raises(InputError, match=r"\(units, 2\)"):
        theorem31(start, U, torch.ones(3, 3))
    with pytest.raises(InputError, match="orthogonal to all"):
        theorem31(torch.zeros(4), U, inverse_affine(3))
    for options in (
        {"units": 0},
        {"units": 3, "slope": 0.0},
        {"units": 3, "offset": -1.0},
        {"units": 1, "slope": math.nan},
    ):
        with pytest.raises(InputError, match="slope above 0"):
            inverse_affine(**options)  # type: ignore[arg-type]
