"""Proposition 3: against problems that are solved again by another solver, and the changes that attain the bound."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from skipscope.errors import InputError
from skipscope.papers.c.theory import proposition3, worst_change
from tests import seeded


def drawn(condition: float, n: int = 5, N: int = 12, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs of this condition number, weights, and something of the inputs' shape."""
    generator = seeded.generator(seed)
    left, right, W, other = (
        torch.randn(*shape, dtype=torch.float64, generator=generator, device=generator.device)
        for shape in ((n, n), (N, N), (n, n), (n, N))
    )
    values = torch.logspace(0, -math.log10(condition), n, dtype=torch.float64)
    return torch.linalg.qr(left)[0] @ torch.diag(values) @ torch.linalg.qr(right)[0][:n], W, other


@settings(max_examples=30, deadline=None)
@given(st.floats(1.5, 1e5), st.floats(1e-6, 0.5), st.integers(0, 10**6))
def test_random_changes_stay_below_the_bound(condition: float, share: float, seed: int) -> None:
    X, W, change = drawn(condition, seed=seed)
    change = change * share / condition / torch.linalg.matrix_norm(change, 2)
    case = proposition3(X, W @ X, change)
    assert case.condition == pytest.approx(condition, rel=1e-6)
    assert case.first_order_ratio <= 1 + 1e-8
    assert case.ratio <= case.largest_ratio * (1 + 1e-8)
    assert case.ratio <= 1 + 10 * share


@pytest.mark.parametrize("condition", [10.0, 1e3, 1e5])
@pytest.mark.parametrize("fits", [True, False])
def test_the_changed_problem_by_another_solver(condition: float, fits: bool) -> None:
    X, W, change = drawn(condition)
    Y = W @ X if fits else W @ X + 0.1 * drawn(10.0, seed=8)[2]
    change = change * 0.1 / condition / torch.linalg.matrix_norm(change, 2)
    case = proposition3(X, Y, change)
    before, after = (torch.linalg.lstsq(inputs.T, Y.T, driver="gelsd").solution.T for inputs in (X, X + change))
    scale = float(before.abs().max())
    assert (case.weights - before).abs().max() <= 1e-9 * scale
    assert (case.solved_again - (after - before)).abs().max() <= 1e-8 * scale


@pytest.mark.parametrize("fits", [True, False])
def test_first_order_is_a_derivative(fits: bool) -> None:
    X, W, change = drawn(20.0)
    Y = W @ X if fits else W @ X + 0.1 * drawn(10.0, seed=8)[2]
    whole = proposition3(X, Y, 1e-3 * change)
    steps = [proposition3(X, Y, sign * 1e-6 * change).solved_again for sign in (1, -1)]
    assert ((steps[0] - steps[1]) / 2e-6 - whole.first_order / 1e-3).norm() <= 1e-5 * whole.first_order.norm() / 1e-3


@pytest.mark.parametrize("condition", [10.0, 1e3, 1e5])
def test_the_worst_changes_attain_the_bounds(condition: float) -> None:
    X, W, _ = drawn(condition, seed=3)
    left = torch.linalg.svd(X)[0]
    for share in (1e-3, 0.1, 0.5):
        case = proposition3(X, W @ X, worst_change(X, W, share / condition))
        assert case.size == pytest.approx(share / condition, rel=1e-9)
        assert case.first_order_ratio == pytest.approx(1, rel=1e-7)
        assert case.ratio <= case.largest_ratio * (1 + 1e-7)
        aligned = torch.diag(torch.tensor([1.0, 1.0, 1.0, 1.0, 2.0], dtype=torch.float64)) @ left.T
        worst = proposition3(X, aligned @ X, worst_change(X, aligned, share / condition))
        assert worst.ratio == pytest.approx(1 / (1 - share), rel=1e-6)
        assert "1 / " not in str(worst)


def test_a_residual_breaks_the_bound() -> None:
    X, W, _ = drawn(1e3)
    right = torch.linalg.svd(X)[2]
    left = torch.linalg.svd(X)[0]
    Y = W @ X + torch.linalg.matrix_norm(W, 2) * torch.outer(left[:, 0], right[-1])
    case = proposition3(X, Y, 1e-7 * torch.outer(left[:, -1], right[-1]))
    assert case.relative_residual == pytest.approx(1, rel=1e-6)
    assert case.ratio == pytest.approx(case.condition, rel=1e-2)  # kappa |R| / (|W| |X|)


def test_large_changes_are_not_bounded() -> None:
    X, W, change = drawn(10.0)
    case = proposition3(X, W @ X, change)
    assert case.largest_ratio == math.inf


def test_what_is_wrong_is_named() -> None:
    X, W, change = drawn(10.0)
    with pytest.raises(InputError, match="N of at least n"):
        proposition3(X[:, :3], (W @ X)[:, :3], change[:, :3])
    with pytest.raises(InputError, match=r"a change \(n, N\)"):
        proposition3(X, W @ X, change[:2])
    with pytest.raises(InputError, match="inputs of full row rank 5, got rank 4"):
        proposition3(torch.cat([X[:4], X[:1]]), W @ X, change)
    with pytest.raises(InputError, match="changed inputs"):
        proposition3(X, W @ X, torch.cat([0 * X[:4], X[:1] - X[4:]]))
    with pytest.raises(InputError, match="not 0"):
        proposition3(X, W @ X, 0 * X)
    with pytest.raises(InputError, match="NaN or infinite"):
        proposition3(X, W @ X, math.nan * X)
    with pytest.raises(InputError, match="size above 0"):
        worst_change(X, W, 0.0)
