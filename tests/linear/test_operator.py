"""Operators against the matrices they stand for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from skipscope import Dense, InputError, Operator
from tests import seeded

A, B, C = (
    torch.randn(2, *size, dtype=torch.float64, generator=seeded.generator(i))
    for i, size in enumerate([(3, 5), (3, 5), (5, 4)])
)

DERIVED: dict[str, tuple[Callable[[], Operator], Tensor]] = {
    "dense": (lambda: Dense(A), A),
    "transposed": (lambda: Dense(A).T, A.mT),
    "twice transposed": (lambda: Dense(A).T.T, A),
    "sum": (lambda: Dense(A) + Dense(B), A + B),
    "difference": (lambda: Dense(A) - Dense(B), A - B),
    "scaled": (lambda: 2.5 * Dense(A), 2.5 * A),
    "product": (lambda: Dense(A) @ Dense(C), A @ C),
    "transposed product": (lambda: (Dense(A) @ Dense(C)).T, (A @ C).mT),
    "restricted": (lambda: Dense(A).restrict([2, 0], [1, 3]), A[:, [2, 0]][:, :, [1, 3]]),
    "restricted, an index twice": (lambda: Dense(A).restrict([2, 2], [1, 3, 1]), A[:, [2, 2]][:, :, [1, 3, 1]]),
    "rows only": (lambda: Dense(A).restrict(rows=[1]), A[:, [1]]),
    "taken": (lambda: (Dense(A) @ Dense(C)).take([1]), (A @ C)[[1]]),
}


@pytest.mark.parametrize("name", DERIVED)
def test_products_are_those_of_the_matrix(name: str) -> None:
    make, matrix = DERIVED[name]
    operator = make()
    assert operator.shape == tuple(matrix.shape)
    batch, m, n = matrix.shape
    V, U = torch.randn(batch, n, 3, dtype=torch.float64), torch.randn(batch, m, 2, dtype=torch.float64)
    torch.testing.assert_close(operator.matmat(V), matrix @ V)
    torch.testing.assert_close(operator.rmatmat(U), matrix.mT @ U)
    torch.testing.assert_close(operator.dense(), matrix)
    torch.testing.assert_close(Operator.dense(operator, block=2), matrix)  # from products, in blocks


def test_as_a_scipy_operator() -> None:
    operator = (Dense(A) @ Dense(C)).to_scipy(sample=1)
    matrix = (A @ C)[1].cpu().numpy()
    np.testing.assert_allclose(operator @ np.eye(4), matrix)
    np.testing.assert_allclose(operator.T @ np.ones(3), matrix.T @ np.ones(3))
    np.testing.assert_allclose(operator @ np.ones(4), matrix @ np.ones(4))


@given(st.integers(1, 4), st.integers(1, 7), st.integers(1, 7), st.integers(1, 5))
@settings(deadline=None, max_examples=25)
def test_any_shape_assembles(batch: int, m: int, n: int, block: int) -> None:
    matrix = torch.randn(batch, m, n, dtype=torch.float64)
    assert torch.equal(Operator.dense(Dense(matrix), block=block), matrix)


def test_in_double_an_operator_without_float64_keeps_its_own_precision() -> None:
    class Single(Dense):
        double = Operator.double

    operator = Single(A.float()).double()
    assert operator.dtype == torch.float64
    assert operator.eps == torch.finfo(torch.float32).eps
    assert Dense(A.float()).double().eps == torch.finfo(torch.float64).eps


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: Dense(A).matmat(torch.zeros(2, 4, 1)),
            r"expected a block of vectors of shape \(2, 5, k\), got \(2, 4, 1\)",
        ),
        (
            lambda: Dense(A).matmat(torch.zeros(2, 5, 1)),
            "the operator is torch.float64 and the vectors are torch.float32",
        ),
        (lambda: Dense(A) + Dense(C), "cannot be added"),
        (lambda: Dense(C) @ Dense(A), "cannot be multiplied"),
        (lambda: Dense(A).restrict(rows=[3]), "indices from 0 to 2"),
        (lambda: Dense(torch.zeros(3)), r"got shape \(3,\)"),
        (lambda: Dense(A) + Dense(B.float()), "differ in their type"),
    ],
)
def test_what_does_not_fit_is_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()


def test_a_matrix_says_how_exact_the_arithmetic_was_that_it_comes_from() -> None:
    entries = torch.randn(2, 3, 3, dtype=torch.float64)
    assert Dense(entries).eps == torch.finfo(torch.float64).eps
    coarse = Dense(entries, eps=1e-7)
    assert coarse.eps == coarse.take([1]).eps == coarse.double().eps == 1e-7
