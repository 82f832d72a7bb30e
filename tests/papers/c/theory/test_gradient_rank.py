"""Ranks of products and of gradients: counter-examples of the lemmas, and back-propagation against autograd."""

from __future__ import annotations

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from skipscope.errors import InputError
from skipscope.papers.c.theory import linear_gradients, rank_of_product
from tests import seeded


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = seeded.generator(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator, device=generator.device)


@settings(max_examples=30, deadline=None)
@given(*[st.integers(1, 6)] * 5, st.integers(0, 10**6))
@example(2, 3, 2, 1, 1, 2799)  # nearly orthogonal: the product is small
def test_sylvester(m: int, n: int, p: int, r: int, s: int, seed: int) -> None:
    left = normal(m, r, seed=seed) @ normal(r, n, seed=seed + 1)
    right = normal(n, s, seed=seed + 2) @ normal(s, p, seed=seed + 3)
    found = rank_of_product(left, right)
    assert (found.left, found.right) == (min(m, n, r), min(n, p, s))
    low, high = found.bounds
    assert low <= found.product <= high


def test_lemma_2_needs_dependent_columns() -> None:
    rows = rank_of_product(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0], [1.0]]))
    assert rows.product == 1  # dependent rows of V, and the product is the number 1
    rank_one = rank_of_product(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
    assert rank_one.full == (True, False, True)
    columns = rank_of_product(normal(4, 3), normal(3, 1, seed=1) @ torch.ones(1, 2, dtype=torch.float64))
    assert columns.full == (True, False, False)


def test_lemma_3_is_false_for_rectangles() -> None:
    found = rank_of_product(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0], [1.0]]))
    assert found.full == (True, True, False)
    assert str(found) == "ranks 1 and 1, product 0, within (0, 1)"
    square = rank_of_product(normal(4, 4), normal(4, 4, seed=1))
    assert square.full == (True, True, True)


@pytest.mark.parametrize("skips", [False, True])
@pytest.mark.parametrize(("layers", "batch"), [(1, 4), (3, 9), (12, 2)])
def test_gradients_are_those_of_autograd(skips: bool, layers: int, batch: int) -> None:
    found = linear_gradients(normal(layers, 4, 4) / 2, normal(4, batch, seed=1), normal(4, batch, seed=2), skips=skips)
    assert found.error <= 1e-12
    assert found.bounded
    assert "by layer: 1: " in str(found)


@pytest.mark.parametrize("skips", [False, True])
def test_ranks_of_gradients(skips: bool) -> None:
    """Inputs of rank 2 leave gradients of rank 2, with skips as without; full ranks stay full at any depth."""
    weights, targets = normal(6, 5, 5) / 5**0.5, normal(5, 8, seed=2)
    thin = normal(5, 2, seed=3) @ normal(2, 8, seed=4)
    found = linear_gradients(weights, thin, targets, skips=skips)
    assert found.ranks[:, 1].tolist() == [2] * 6
    assert found.ranks[:, 2].tolist() == [2] * 6
    assert found.bounded
    full = linear_gradients(weights, normal(5, 8, seed=5), targets, skips=skips)
    assert full.ranks.unique().tolist() == [5]


def test_equation_23_is_not_back_propagation() -> None:
    found = linear_gradients(normal(3, 4, 4), normal(4, 4, seed=1), normal(4, 4, seed=2))
    assert found.printed_errors.shape == (2, 4, 4)
    assert (found.printed_errors - found.errors[:-1]).norm() > 0.5 * found.errors[:-1].norm()
    with pytest.raises(InputError, match="N = n = 4, got N = 7"):
        _ = linear_gradients(normal(3, 4, 4), normal(4, 7), normal(4, 7)).printed_errors


def test_what_is_wrong_is_named() -> None:
    with pytest.raises(InputError, match=r"\(n, p\)"):
        rank_of_product(normal(2, 3), normal(2, 3))
    with pytest.raises(InputError, match=r"weights \(L, n, n\)"):
        linear_gradients(normal(2, 3), normal(3, 3), normal(3, 3))
    with pytest.raises(InputError, match="targets"):
        linear_gradients(normal(1, 3, 3), normal(3, 3), normal(3, 4))
    with pytest.raises(InputError, match="NaN or infinite"):
        linear_gradients(normal(1, 3, 3) * torch.nan, normal(3, 3), normal(3, 3))
