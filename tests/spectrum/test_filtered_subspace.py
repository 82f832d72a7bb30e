"""Leading triplets by filtered subspace iteration, against matrices made of known triplets and torch's own SVD."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from skipscope.linear.operator import Dense
from skipscope.spectrum import truncated_svd
from skipscope.spectrum.filtered_subspace import leading_triplets
from skipscope.spectrum.truncated_svd import svd
from tests.seeded import generator

SIZE, K = 240, 6
TOLERANCE = 4e-11


def turned(values: Tensor, rows: int = SIZE) -> tuple[Tensor, Tensor, Tensor]:
    """A matrix with these singular values, and its vectors."""
    numbers = generator(3)
    U, V = (
        torch.linalg.qr(torch.randn(side, len(values), generator=numbers, dtype=torch.float64)).Q
        for side in (rows, len(values))
    )
    return U * values @ V.T, U, V


def spectrum(name: str) -> Tensor:
    steps = torch.arange(SIZE, dtype=torch.float64)
    return {
        "even": 1 - 0.9 * steps / SIZE,  # close to one another everywhere
        "falling": 10 ** (-steps / 12),
        "one far above": torch.cat([torch.tensor([1e6], dtype=torch.float64), 1 - 0.5 * steps[1:] / SIZE]),
        "repeated": torch.where(steps < 20, 2.0, 1.0 / (1 + steps)),
        "few": torch.where(steps < 3, 3 - steps, 0.0),
        "all equal": torch.ones_like(steps),
        "zero": torch.zeros_like(steps),
    }[name]


@pytest.mark.parametrize("name", ["even", "falling", "one far above", "repeated", "few", "all equal", "zero"])
def test_known_triplets(name: str) -> None:
    values = spectrum(name)
    A, _, _ = turned(values)
    found = leading_triplets(A[None], K, TOLERANCE)
    assert found is not None
    U, S, V = found.U[0], found.S[0], found.V[0]
    largest = float(values[0])
    assert (S - values[:K]).abs().max() <= 1e-12 * largest
    assert found.settled.all()
    for vectors in (U, V):
        assert (vectors.T @ vectors - torch.eye(K)).abs().max() < 1e-12
    assert torch.linalg.vector_norm(A @ V - U * S, dim=0).max() <= TOLERANCE * largest
    assert torch.linalg.vector_norm(A.T @ U - V * S, dim=0).max() <= TOLERANCE * largest


def test_vectors_span_the_known_space() -> None:
    values = spectrum("falling")
    A, U, V = turned(values, rows=300)
    found = leading_triplets(A[None], K, TOLERANCE)
    assert found is not None
    for mine, known in ((found.U[0], U), (found.V[0], V)):
        left = mine - known[:, :K] @ (known[:, :K].T @ mine)
        assert left.norm() < 1e-9


def test_several_samples_and_random_matrices_against_a_whole_decomposition() -> None:
    A = torch.randn(2, 260, SIZE, generator=generator(0), dtype=torch.float64)
    found = leading_triplets(A, K, TOLERANCE)
    assert found is not None
    torch.testing.assert_close(found.S, torch.linalg.svdvals(A)[:, :K], rtol=1e-12, atol=0.0)


@pytest.mark.parametrize("shape", [(90, 110), (110, 90)])
@pytest.mark.parametrize("scale", [1.0, 1e-90])
def test_the_solver_takes_it_for_large_matrices(
    shape: tuple[int, int], scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(truncated_svd, "DENSE_SIDE", 32)
    monkeypatch.setattr(truncated_svd, "WIDEST_BLOCK", 2)
    A = Dense(scale * torch.randn(1, *shape, generator=generator(0), dtype=torch.float64))
    found, whole = svd(A, K), svd(A, K, route="dense")
    assert found.route == "iterative"
    assert found.converged.all()
    torch.testing.assert_close(found.S, whole.S, rtol=1e-11, atol=0.0)
    assert found.square_norm is not None
    assert whole.square_norm is not None
    torch.testing.assert_close(found.square_norm, whole.square_norm, rtol=1e-11, atol=0.0)
    assert (found.V * whole.V).sum(1).abs().min() > 1 - 1e-9


def test_a_budget_of_products_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Filters come in large pieces: where products are counted, the other iteration is taken."""
    monkeypatch.setattr(truncated_svd, "DENSE_SIDE", 32)
    monkeypatch.setattr(truncated_svd, "WIDEST_BLOCK", 2)
    monkeypatch.setattr(truncated_svd, "leading_triplets", None)
    A = Dense(torch.randn(1, 90, 110, generator=generator(0), dtype=torch.float64))
    assert svd(A, 2, max_products=40, route="auto").converged.shape == (1, 2)
    assert svd(A, 2, block=1, route="auto").converged.all()
