"""Products of commuting weights: sums over eigenvectors against dense weights, and what the theorems leave out."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from skipscope.errors import InputError
from skipscope.papers.c.theory import commuting_product
from tests import seeded


def drawn(size: int, shape: tuple[int, ...], seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """A start, an orthonormal basis, and eigenvalues from -1 to 1."""
    generator = seeded.generator(seed)
    options = {"dtype": torch.float64, "generator": generator, "device": generator.device}
    normal = torch.randn(size, size + 1, **options)  # type: ignore[call-overload]
    values = 2 * torch.rand(*shape, size, **options) - 1  # type: ignore[call-overload]
    return normal[:, -1], torch.linalg.qr(normal[:, :-1])[0], values


def dense(basis: Tensor, eigenvalues: Tensor, skips: bool) -> Tensor:
    """The whole map, from weights that are multiplied first."""
    eye = torch.eye(len(basis), dtype=torch.float64)
    whole = eye
    for layer in eigenvalues.reshape(len(eigenvalues), -1, len(basis)):
        weight = sum(basis @ torch.diag(path) @ basis.T for path in layer)
        whole = (weight + eye if skips else weight) @ whole
    return whole


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 8), st.integers(1, 40), st.integers(1, 3), st.booleans(), st.integers(0, 10**6))
def test_the_sum_over_eigenvectors_is_exact(size: int, layers: int, paths: int, skips: bool, seed: int) -> None:
    start, basis, values = drawn(size, (layers, paths), seed)
    network = commuting_product(start, basis, values + 0.5, skips=skips)
    expected = dense(basis, values + 0.5, skips) @ start
    scale = float(network.growth.abs().max() * start.norm())
    assert (network.last_state - expected).norm() <= 1e-10 * scale
    assert (network.recursion - expected).norm() <= 1e-10 * scale


@pytest.mark.parametrize("skips", [False, True])
def test_condition_of_the_whole_map(skips: bool) -> None:
    start, basis, values = drawn(6, (8,), 3)
    values = 0.3 * values.sign() + 0.3 * values
    network = commuting_product(start, basis, values, skips=skips)
    expected = float(torch.linalg.cond(dense(basis, values, skips)))
    assert network.log10_condition == pytest.approx(math.log10(expected), rel=1e-9)


def test_sixty_layers_collapse_onto_a_common_direction() -> None:
    start, basis, values = drawn(20, (60,))
    values[:, 0], values[:, 1:] = 1.0, 0.8 * values[:, 1:]
    network = commuting_product(start, basis, values)
    assert network.largest_ratio <= 0.8
    assert network.cosine >= 1 - 1e-10
    assert network.approximation_error <= 1e-4
    assert "PlainNet of 60 layers" in str(network)


def test_no_collapse_where_the_leading_direction_alternates() -> None:
    start, basis, _ = drawn(2, (1,))
    values = torch.tensor([[1.0, 0.8], [0.8, 1.0]] * 30, dtype=torch.float64)
    network = commuting_product(start, basis, values)
    alpha = basis.T @ start
    assert network.cosine == pytest.approx(float(alpha[0].abs() / alpha.norm()), abs=1e-12)


def test_a_gap_that_closes_leaves_half_of_the_other_directions() -> None:
    """Strict inequality in every layer, and the product of ratios is (L + 2) / (2 L + 2)."""
    start, basis, _ = drawn(3, (1,))
    for layers in (10, 1000):
        product = Fraction(1)
        for layer in range(1, layers + 1):
            product *= 1 - Fraction(1, (layer + 1) ** 2)
        assert product == Fraction(layers + 2, 2 * layers + 2)
        following = torch.arange(2, layers + 2, dtype=torch.float64)
        values = torch.stack([torch.ones_like(following), *[1 - 1 / following.square()] * 2], 1)
        network = commuting_product(start, basis, values)
        assert network.largest_ratio < 1
        assert float(network.growth[1]) == pytest.approx(float(product), rel=1e-11)
        assert network.cosine < 0.99


def test_the_error_of_approximation_16_in_closed_form() -> None:
    start, basis, values = drawn(7, (30,), 5)
    network = commuting_product(start, basis, 0.2 * values, skips=True)
    alpha, P = basis.T @ start, (1 + 0.2 * values).prod(0)
    expected = (alpha[1:] * (P[1:] - 1)).norm() / (alpha * P).norm()
    assert network.approximation_error == pytest.approx(float(expected), rel=1e-10)
    assert network.bounded_error <= network.approximation_error + 1e-15


@pytest.mark.parametrize(
    ("leading", "others", "low", "high", "collapses"),
    [
        (1.0, 0.5, 0.0, 1e-4, True),
        (0.1, 0.09, 0.5, 1.0, False),
        (-0.5, 0.4, 0.99, 1.01, False),
        (-0.1, -0.08, 1, 1e4, False),
    ],
)
def test_where_approximation_16_fails(leading: float, others: float, low: float, high: float, collapses: bool) -> None:
    """|lambda_1| is the largest throughout: that does not order |1 + lambda|."""
    start, basis, _ = drawn(20, (1,), 1)
    values = torch.full((60, 20), others, dtype=torch.float64)
    values[:, 0] = leading
    network = commuting_product(start, basis, values, skips=True)
    assert network.largest_ratio < 1
    assert network.error <= 1e-10
    assert low <= network.approximation_error <= high
    assert (network.cosine > 0.999) == collapses


def test_approximation_16_holds_where_nothing_happens() -> None:
    start, basis, values = drawn(20, (60,), 2)
    network = commuting_product(start, basis, 1e-4 * values, skips=True)
    assert network.approximation_error < 1e-2
    assert network.cosine < 0.9
    assert network.log10_condition < 1e-2


def test_paths_that_cancel() -> None:
    start, basis, _ = drawn(2, (1,), 4)
    values = torch.tensor([[[1.0, 0.5], [-1.0, 0.5]]] * 20, dtype=torch.float64)
    network = commuting_product(start, basis, values, skips=True)
    assert network.largest_ratio == 0.5  # in every path
    assert network.largest_ratio_of_sums == math.inf
    assert network.error <= 1e-10
    assert network.cosine < 1e-4  # the first direction is the one that is lost
    assert network.approximation_error > 0.99
    assert "ResNeXt" in str(network)


def test_real_normal_weights_need_no_leading_direction() -> None:
    """Rotations commute and are normal; their eigenvalues are complex and alike, and no state ever turns to one."""
    angle = 0.3
    rotation = torch.tensor(
        [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]], dtype=torch.float64
    )
    product = torch.linalg.matrix_power(rotation, 60)
    assert float(torch.linalg.cond(product)) == pytest.approx(1, abs=1e-10)


def test_what_is_wrong_is_named() -> None:
    start, basis, values = drawn(3, (4,))
    with pytest.raises(InputError, match="orthonormal"):
        commuting_product(start, 2 * basis, values)
    with pytest.raises(InputError, match=r"basis \(n, n\)"):
        commuting_product(start[:2], basis, values)
    with pytest.raises(InputError, match=r"\(layers, 3\)"):
        commuting_product(start, basis, values[:, :2])
    with pytest.raises(InputError, match="finite eigenvalues"):
        commuting_product(start, basis, values * math.inf)
    with pytest.raises(InputError, match="orthogonal to v_1"):
        commuting_product(torch.zeros(3), basis, values)
