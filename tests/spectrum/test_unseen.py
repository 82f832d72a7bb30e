"""Bounds of what random vectors have not seen: against how often they fail, and against dense values."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import skipscope as ss
from skipscope.spectrum import rounds
from skipscope.spectrum.unseen import (
    FAILURE,
    angle,
    eigenvalue_bounds,
    ends_bound,
    norm_bound,
    singular_value_bounds,
    steps_for_end,
    steps_for_norm,
)
from tests.seeded import generator

SIZE, DRAWS = 400, 150
OFTEN = 0.2  # a failure that is often enough to be counted


def _krylov(values: Tensor, start: Tensor, steps: int) -> Tensor:
    """An orthonormal basis (n, b q) of the Krylov space of a diagonal matrix."""
    basis = block = torch.linalg.qr(start).Q
    for _ in range(steps - 1):
        block = values[:, None] * block
        for _ in range(2):
            block = block - basis @ (basis.mT @ block)
        block = torch.linalg.qr(block).Q
        basis = torch.cat([basis, block], 1)
    return basis


def _hard_for(steps: int, above: float) -> Tensor:
    """Squares that a polynomial of that many steps hardly tells from one value above: the extrema of Chebyshev's."""
    nodes = torch.cos(torch.arange(SIZE - 1) % (2 * steps) * math.pi / (4 * steps)) ** 2
    return torch.cat([torch.tensor([above**2]), nodes])


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("steps", [3, 6])
def test_the_norm_is_above_its_bound_no_more_often_than_stated(width: int, steps: int) -> None:
    reach = angle(SIZE, width, OFTEN)
    squares = _hard_for(steps, norm_bound(torch.tensor(1.001), reach, steps).item()).double()
    numbers = generator(width + 10 * steps)
    failures, largest = 0, squares.max().sqrt()
    for _ in range(DRAWS):
        basis = _krylov(squares, torch.randn(SIZE, width, dtype=torch.float64, generator=numbers), steps)
        seen = torch.linalg.eigvalsh(basis.mT @ (squares[:, None] * basis))[-1].sqrt()
        assert seen <= largest * (1 + 1e-12)
        failures += int(norm_bound(seen, reach, steps) < largest)
    # Three standard deviations above what is allowed; the bound is worst-case, so that it fails less often.
    assert failures <= DRAWS * OFTEN + 3 * math.sqrt(DRAWS * OFTEN)


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("steps", [4, 8])
def test_ends_are_outside_of_their_bounds_no_more_often_than_stated(width: int, steps: int) -> None:
    reach = angle(SIZE, width, OFTEN)
    above = ends_bound(torch.tensor(-1.0), torch.tensor(1.001), reach, steps)[1].item()
    inner = torch.cos(torch.arange(SIZE - 1) % (2 * steps) * math.pi / (2 * steps))
    values = torch.cat([torch.tensor([above]), inner]).double()
    numbers = generator(width + 10 * steps)
    failures = 0
    for _ in range(DRAWS):
        basis = _krylov(values, torch.randn(SIZE, width, dtype=torch.float64, generator=numbers), steps)
        seen = torch.linalg.eigvalsh(basis.mT @ (values[:, None] * basis))
        low, high = ends_bound(seen[0], seen[-1], reach, steps)
        failures += int(high < values.max() or low > values.min())
    assert failures <= 2 * (DRAWS * OFTEN + 3 * math.sqrt(DRAWS * OFTEN))


def test_a_start_without_the_largest_vector_is_the_failure_that_is_counted() -> None:
    """The bound speaks of random starts: one that is orthogonal to the largest vector sees nothing of it."""
    values = torch.cat([torch.tensor([2.0]), torch.linspace(1, 0, SIZE - 1)]).double() ** 2
    start = torch.randn(SIZE, 2, dtype=torch.float64, generator=generator(0))
    blind = torch.cat([torch.zeros(1, 2, dtype=torch.float64), start[1:]])
    reach = angle(SIZE, 2)
    for begin, right in ((start, True), (blind, False)):
        basis = _krylov(values, begin, 10)  # more, and rounding would bring it up
        seen = torch.linalg.eigvalsh(basis.mT @ (values[:, None] * basis))[-1].sqrt()
        assert (norm_bound(seen, reach, 10) >= 2) == right


def test_the_steps_that_are_needed_are_those_of_the_bound() -> None:
    reach = angle(10_000, 2)
    seen, target = torch.tensor([0.9, 0.99, 1.0, 0.0]), torch.ones(4)
    needed = steps_for_norm(seen, reach, target)
    assert needed[2] == torch.inf
    for place in range(2):
        steps = needed[place].item()
        assert (
            norm_bound(seen[place], reach, math.ceil(steps)) <= 1 < norm_bound(seen[place], reach, math.ceil(steps) - 1)
        )
    needed = steps_for_end(-torch.ones(3), torch.tensor([0.5, 0.9, 1.0]), reach, torch.ones(3))
    assert needed[2] == torch.inf
    for place, highest in enumerate((0.5, 0.9)):
        steps = math.ceil(needed[place].item())
        ends = [ends_bound(torch.tensor(-1.0), torch.tensor(highest), reach, count)[1] for count in (steps, steps - 1)]
        assert ends[0] <= 1 < ends[1]


@pytest.mark.parametrize("seed", range(5))
def test_bounds_of_all_singular_values_hold(seed: int) -> None:
    """With the true norm of the rest the bounds are certain; they are also not far off."""
    numbers = generator(seed)
    A = torch.randn(3, 40, 30, dtype=torch.float64, generator=numbers)
    W, U, values, coupling = _partial(A, 8, numbers)
    rest = A - U @ (U.mT @ A) - A @ W @ W.mT + U @ (U.mT @ A @ W) @ W.mT
    norm = torch.linalg.matrix_norm(rest, 2)
    bounds = singular_value_bounds(values, coupling, norm)
    true = torch.linalg.svdvals(A)[:, : bounds.shape[1]]
    assert (true <= bounds * (1 + 1e-12)).all()
    assert (values <= true[:, :8] * (1 + 1e-12)).all()
    assert (bounds[:, 0] <= 1.5 * true[:, 0]).all()


def _partial(A: Tensor, width: int, numbers: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """W, U, D and K with A W = U D and A^T U = W D + N K: Ritz triplets of a random space."""
    space = torch.linalg.qr(torch.randn(len(A), A.shape[2], width, dtype=A.dtype, generator=numbers)).Q
    U, values, yt = torch.linalg.svd(A @ space, full_matrices=False)
    W = space @ yt.mT
    K = torch.linalg.qr(A.mT @ U - W * values[:, None]).R
    return W, U, values, K


@pytest.mark.parametrize("seed", range(5))
def test_bounds_of_all_eigenvalues_hold(seed: int) -> None:
    numbers = generator(seed)
    H = torch.randn(3, 30, 30, dtype=torch.float64, generator=numbers)
    H = H + H.mT
    space = torch.linalg.qr(torch.randn(3, 30, 7, dtype=H.dtype, generator=numbers)).Q
    values, vectors = torch.linalg.eigh(space.mT @ H @ space)
    W = space @ vectors
    K = torch.linalg.qr(H @ W - W * values[:, None]).R
    left = torch.eye(30, dtype=H.dtype) - W @ W.mT
    outside = torch.linalg.eigvalsh(left @ H @ left)
    true = torch.linalg.eigvalsh(H)
    above = eigenvalue_bounds(values, K, outside[:, -1])
    below = eigenvalue_bounds(-values, K, -outside[:, 0])
    count = above.shape[1]
    assert (true.flip(1)[:, :count] <= above + 1e-12).all()
    assert (-true[:, :count] <= below + 1e-12).all()


def test_most_values_are_settled_by_the_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last round, which proves nothing, is for spectra without a gap."""
    confirmed: list[int] = []
    search = rounds.Rounds.search

    def counted(self: rounds.Rounds, samples: list[int], *, confirm: bool = False) -> list[int]:
        if confirm:
            confirmed.extend(samples)
        return search(self, samples, confirm=confirm)

    monkeypatch.setattr(rounds.Rounds, "search", counted)
    A = ss.Dense(torch.randn(4, 500, 300, dtype=torch.float64, generator=generator(0)))
    found = ss.svd(A, 5, route="iterative", tol=1e-6)
    H = ss.Dense(A.matrix.mT @ A.matrix)
    pairs = ss.eigs(H, 5, route="iterative", tol=1e-6)
    assert found.converged.all()
    assert pairs.converged.all()
    assert not confirmed
    assert (found.missed_at_most == FAILURE).all()
    assert (pairs.missed_at_most == FAILURE).all()
    copies = ss.Dense(torch.eye(300, dtype=torch.float64)[None])
    among = ss.svd(copies, 5, route="iterative", tol=1e-6)
    assert among.converged.all()
    assert confirmed == [0]
    assert among.missed_at_most.isnan().all()  # any five of them are right; that is not known of others
    assert (ss.svd(copies, 5, route="dense").missed_at_most == 0).all()


@pytest.mark.parametrize("size", [40, 41, 50])
def test_what_is_left_of_a_small_space_is_taken_as_a_whole(size: int) -> None:
    """Rather than confirmed, which costs more and proves nothing."""
    found = ss.svd(ss.Dense(torch.eye(size, dtype=torch.float64)[None]), 5, route="iterative", tol=1e-6)
    assert found.converged.all()
    assert found.missed_at_most.tolist() == [0.0]
