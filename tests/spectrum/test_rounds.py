"""The trial: it is the iteration of what was not found, and finds what the search before it could not see."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

import skipscope as ss
from skipscope.linear.operator import Operator
from skipscope.spectrum import krylov, rounds
from skipscope.spectrum.orthonormal import random_block
from tests.seeded import generator

SIZE, HIDDEN, TOLERANCE = 200, 2, 1e-4


class Diagonal(Operator):
    """Entries of vectors that are zero stay exactly zero in an iteration with it."""

    def __init__(self, values: Tensor) -> None:
        self.values = values
        self.shape, self.dtype, self.device = (*values.shape, values.shape[1]), values.dtype, values.device

    def _matmat(self, V: Tensor) -> Tensor:
        return self.values[:, :, None] * V

    def _rmatmat(self, U: Tensor) -> Tensor:
        return self._matmat(U)

    def take(self, samples: Sequence[int]) -> Diagonal:
        return Diagonal(self.values[list(samples)])


@pytest.fixture
def blind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The block that a search begins with, the first of an iteration with no vectors given, has no part along the first
    HIDDEN unit vectors."""
    begin = krylov.Krylov.begin

    def without(*arguments: Any) -> Tensor:
        block = random_block(*arguments).clone()
        block[..., :HIDDEN] = 0
        return block

    def blinded(self: krylov.Krylov, samples: Sequence[int], values: Tensor, *others: Any) -> None:
        with pytest.MonkeyPatch.context() as patch:
            if not values.shape[1]:
                patch.setattr(krylov, "random_block", without)
            begin(self, samples, values, *others)

    monkeypatch.setattr(krylov.Krylov, "begin", blinded)


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[int], list[int], Tensor]]:
    """Of every trial: the samples, those that it did not settle, and the values that it began with."""
    calls = []
    trial = rounds.Rounds.trial

    def recorded(self: rounds.Rounds, samples: Sequence[int]) -> list[int]:
        before = self.values.clone()
        again = trial(self, samples)
        calls.append((list(samples), again, before))
        return again

    monkeypatch.setattr(rounds.Rounds, "trial", recorded)
    return calls


def _spectra(far: float) -> Tensor:
    """(3, SIZE): the first HIDDEN values are as large as the others' largest, or by `far` of that larger; one sample
    has many copies, one falls off, one is flat. They are far apart in scale."""
    copies = torch.tensor([1.0, 0.8, 0.6]).repeat_interleave(3).tolist()
    others = torch.stack(
        [
            torch.cat([torch.tensor(copies), torch.linspace(0.5, 0, SIZE - HIDDEN - 9)]),
            0.93 ** torch.arange(SIZE - HIDDEN),
            torch.linspace(1, 0.5, SIZE - HIDDEN),
        ]
    )
    scales = torch.tensor([[1.0], [1e-6], [1e5]])
    return scales * torch.cat([torch.full((3, HIDDEN), 1 + far), others], 1)


@pytest.mark.parametrize(("far", "dtype"), [(0.0, torch.float64), (0.01, torch.float32), (1.0, torch.float64)])
@pytest.mark.parametrize("which", ["singular", "largest", "smallest", "magnitude"])
def test_values_that_the_search_could_not_see_are_found(
    which: Any, dtype: torch.dtype, far: float, blind: None, tried: list[tuple[list[int], list[int], Tensor]]
) -> None:
    values = _spectra(far).to(dtype)
    if which == "singular":
        triplets = ss.svd(Diagonal(values), 4, tol=TOLERANCE, route="iterative")
        found, converged = triplets.S, triplets.converged
    else:
        signs = torch.where(torch.arange(SIZE) % 2 == 0, 1, -1) if which == "magnitude" else 1
        values = signs * values * (-1 if which == "smallest" else 1)
        pairs = ss.eigs(Diagonal(values), 4, which=which, tol=TOLERANCE, route="iterative")
        found, converged = pairs.values, pairs.converged
    wanted = values.abs().double().cpu().sort(descending=True).values[:, :4]
    allowed = 2 * TOLERANCE * wanted[:, :1]
    (samples, again, before), *_ = tried
    missed = ((before[:, :4].abs().double() - wanted).abs() > allowed).any(1)
    assert samples == [0, 1, 2]
    assert set(missed.nonzero()[:, 0].tolist()) <= set(again)
    assert missed[1:].all()  # the first has copies enough where none is larger
    assert converged.all()
    assert ((found.abs().double().cpu() - wanted).abs() <= allowed).all()


@pytest.mark.parametrize("symmetric", [False, True])
def test_the_trial_is_the_iteration_of_what_is_left(symmetric: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The projected matrix, the degree of the Krylov space and the coupling, against matrices."""
    A = torch.randn(2, 120, 120 if symmetric else 90, dtype=torch.float64, generator=generator(1))
    A[1] *= torch.linspace(1, 0, 120)[:, None]
    A = A + A.mT if symmetric else A
    compared: list[int] = []

    def trial(self: rounds.Rounds, samples: Sequence[int]) -> list[int]:
        width = self.width
        self._begin(samples, width, width)
        start = self.krylov.next.mT
        for _ in range(4):
            self.krylov.expand()
        U, W = self.left.mT, self.right.mT
        rest = A - U @ (U.mT @ A)
        rest = rest - (rest @ W) @ W.mT
        powers = [start]
        for _ in range(3):
            powers.append(rest @ powers[-1] if symmetric else rest.mT @ (rest @ powers[-1]))
        space = torch.linalg.qr(torch.cat(powers, 2)).Q
        image = rest @ space
        exact = torch.linalg.svdvals(space.mT @ image if symmetric else image)
        torch.testing.assert_close(torch.linalg.svdvals(self.krylov.rest), exact.cpu(), rtol=1e-8, atol=1e-10)
        D, K = (part.to(A) for part in (torch.diag_embed(self.values), self.coupling))
        if not symmetric:
            torch.testing.assert_close(A @ W, U @ D, rtol=0, atol=1e-11)
        back = A.mT @ U - W @ D
        torch.testing.assert_close(back.mT @ back, K.mT @ K, rtol=1e-6, atol=1e-11)
        compared.extend(samples)
        return []

    monkeypatch.setattr(rounds.Rounds, "trial", trial)
    solver = ss.eigs if symmetric else ss.svd
    solver(ss.Dense(A), 3, route="iterative", tol=1e-5)
    assert compared == [0, 1]


@pytest.mark.parametrize("solver", [ss.svd, ss.eigs])
def test_what_is_spent_in_any_round_is_not_called_converged_unless_it_was_tried(solver: Callable[..., Any]) -> None:
    A = torch.randn(2, 60, 60, dtype=torch.float64, generator=generator(2))
    A = A @ A.mT
    A[1] *= 1e-8
    exact = torch.linalg.eigvalsh(A).flip(1)[:, :3]
    for budget in (1, 60, 85, 100, 130, 160, 200, 1000):
        found = solver(ss.Dense(A), 3, route="iterative", tol=1e-6, max_products=budget)
        values = found.S if solver is ss.svd else found.values
        assert not (found.converged & ((values - exact).abs() > 2e-6 * exact[:, :1])).any()
        assert (found.products < budget + 100).all()  # a cycle is not interrupted
    assert found.converged.all()
