"""Values that have converged are the ones that were asked for: an iteration that stops early must not miss a copy of a
value that repeats, or one of a cluster."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

import skipscope as ss
from skipscope.linear.operator import Operator
from tests.seeded import generator

SIZE, K, BATCH = 260, 10, 6


def descending(kind: str, seed: int) -> Tensor:
    """BATCH, SIZE"""
    numbers = torch.Generator("cpu").manual_seed(seed)
    rows = []
    for _ in range(BATCH):
        values = torch.linspace(0.9, 0.01, SIZE, dtype=torch.float64, device="cpu")
        if kind == "repeated":
            copies, first = (
                int(torch.randint(low, high, (1,), generator=numbers, device="cpu")) for low, high in ((3, 7), (0, 6))
            )
            values[:K] = torch.linspace(2, 1, K, dtype=torch.float64, device="cpu")
            values[first : first + copies] = values[first].clone()
        elif kind == "repeated across the last":
            values[: K - 1] = torch.linspace(2, 1.2, K - 1, dtype=torch.float64, device="cpu")
            values[K - 1 : K + 4] = 1.0
        elif kind == "flat":
            values = torch.linspace(1, 0.8, SIZE, dtype=torch.float64, device="cpu")
        elif kind == "cluster":
            values[:16] = 1 + 1e-3 * torch.rand(16, dtype=torch.float64, generator=numbers, device="cpu")
        elif kind == "falling":
            values = 10 ** (-torch.arange(SIZE, dtype=torch.float64, device="cpu") / 8)
        elif kind == "three far above":
            values[:4] = torch.tensor([100.0, 100.0, 100.0, 1.0], dtype=torch.float64, device="cpu")
        rows.append(values.sort(descending=True).values)
    return torch.stack(rows).to(torch.get_default_device())


KINDS = ("repeated", "repeated across the last", "flat", "cluster", "falling", "three far above")


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 20))])
@pytest.mark.parametrize("tolerance", [1e-4, 1e-7])
@pytest.mark.parametrize("kind", KINDS)
def test_none_is_missed(kind: str, tolerance: float, seed: int) -> None:
    values = descending(kind, seed)
    numbers = generator(seed)
    U, V = (torch.linalg.qr(torch.randn(BATCH, SIZE, SIZE, dtype=torch.float64, generator=numbers)).Q for _ in range(2))
    allowed = 2 * tolerance * values[:, :1]
    found = ss.svd(ss.Dense((U * values[:, None]) @ V.mT), K, tol=tolerance, route="iterative", seed=seed)
    assert found.converged.all()
    assert ((found.S - values[:, :K]).abs() <= allowed).all()
    signs = torch.sign(torch.arange(SIZE) % 3 - 0.5)
    symmetric = (U * (values * signs)[:, None]) @ U.mT
    pairs = ss.eigs(ss.Dense(symmetric), K, which="magnitude", tol=tolerance, route="iterative", seed=seed)
    assert pairs.converged.all()
    assert ((pairs.values.abs() - values[:, :K]).abs() <= allowed).all()


class Diagonal(Operator):
    """A large one that takes no memory."""

    def __init__(self, values: Tensor) -> None:
        self.values = values
        self.shape, self.dtype, self.device = (1, len(values), len(values)), values.dtype, values.device

    def _matmat(self, V: Tensor) -> Tensor:
        return self.values[:, None] * V

    def _rmatmat(self, U: Tensor) -> Tensor:
        return self._matmat(U)

    def take(self, samples: Sequence[int]) -> Diagonal:
        return self


@pytest.mark.parametrize("tolerance", [1e-4, 1e-9])
@pytest.mark.parametrize("seed", range(3))
def test_a_copy_that_comes_up_late_is_not_missed(seed: int, tolerance: float) -> None:
    """Four ones far from the bulk: of 30,000 entries a fresh block has so little of a missed copy that a test which is
    over after a few steps does not see it."""
    above = torch.cat([torch.linspace(2, 1.4, 7), torch.ones(4), torch.tensor([0.95])])
    A = Diagonal(torch.cat([above, torch.linspace(0.9, 0, 30_000)]).double())
    pairs = ss.eigs(A, K, tol=tolerance, route="iterative", seed=seed)
    assert pairs.converged.all()
    assert ((pairs.values[0] - above[:K]).abs() <= 4 * tolerance).all()
    found = ss.svd(A, K, tol=tolerance, route="iterative", seed=seed)
    assert found.converged.all()
    assert ((found.S[0] - above[:K]).abs() <= 4 * tolerance).all()


@pytest.mark.parametrize("seed", [0, 5])
def test_a_copy_is_not_missed_where_the_next_value_is_near(seed: int) -> None:
    """The third 1 is 0.015 above the next value: a test that only asks whether that one could be larger misses it."""
    above = torch.cat([torch.linspace(2, 1.1, 7), torch.ones(3), torch.tensor([0.985])])
    A = Diagonal(torch.cat([above, torch.linspace(0.97, 0, 100_000)]).double())
    pairs = ss.eigs(A, K, tol=1e-3, route="iterative", seed=seed)
    assert pairs.converged.all()
    assert ((pairs.values[0] - above[:K]).abs() <= 4e-3).all()


@pytest.mark.parametrize("seed", range(2))
def test_a_copy_is_not_missed_where_the_next_value_has_the_other_sign(seed: int) -> None:
    """What is put in order by its magnitude is near the next value though their difference is large."""
    above = torch.cat([torch.linspace(2, 1.1, 7), torch.ones(3), torch.tensor([-0.975])])
    signs = 1 - 2 * (torch.arange(30_000) % 2)
    A = Diagonal(torch.cat([above, signs * torch.linspace(0.95, 0, 30_000)]).double())
    pairs = ss.eigs(A, K, which="magnitude", tol=1e-3, route="iterative", seed=seed)
    assert pairs.converged.all()
    assert ((pairs.values[0].abs() - above[:K]).abs() <= 4e-3).all()
