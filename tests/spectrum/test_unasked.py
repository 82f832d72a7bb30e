"""Steps that ask the device nothing until many are done, as on a GPU: the same iteration."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

import skipscope as ss
from skipscope.spectrum import truncated_svd
from skipscope.spectrum.truncated_svd import GolubKahan
from tests.seeded import generator

HERE = ("cpu", "cuda")


@pytest.fixture
def stretches(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each stretch of such steps went well."""
    found: list[bool] = []
    right = GolubKahan._advance_unasked

    def noted(self: GolubKahan, steps: int) -> bool:
        found.append(right(self, steps))
        return found[-1]

    monkeypatch.setattr(GolubKahan, "_advance_unasked", noted)
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("block", [1, 2, 3])
@pytest.mark.parametrize("which", ["largest", "smallest"])
def test_it_is_the_iteration_that_asks_at_every_step(
    which: str, block: int, dtype: torch.dtype, stretches: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    A = torch.randn(3, 90, 70, generator=generator(0), dtype=dtype)
    A[1] *= 1e-3
    A[2] *= torch.linspace(1, 0.01, 70, dtype=dtype)
    found = []
    for kinds in ((), HERE):
        monkeypatch.setattr(truncated_svd, "UNASKED_ON", kinds)
        found.append(ss.svd(ss.Dense(A), 4, which=which, tol=1e-4, block=block, route="iterative"))  # type: ignore[arg-type]
    asked, unasked = found
    assert stretches
    assert all(stretches)
    assert unasked.converged.all()
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(unasked.S, asked.S, rtol=0, atol=100 * eps * float(asked.S.max()))
    if which == "largest":
        torch.testing.assert_close(unasked.products, asked.products, rtol=0.1, atol=0)
    exact = torch.linalg.svdvals(A.double())
    wanted = exact[:, :4] if which == "largest" else exact[:, -4:].flip(1)
    assert ((unasked.S.double() - wanted).abs() <= 1e-4 * exact[:, :1]).all()


def test_a_stretch_with_dependent_vectors_is_taken_back(stretches: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """A matrix of rank 5: what the third block of two leaves is rounding, and zeros become random vectors."""
    monkeypatch.setattr(truncated_svd, "UNASKED_ON", HERE)
    left, right = (torch.randn(2, 60, 5, generator=generator(seed), dtype=torch.float64) for seed in (1, 2))
    A = left @ right.mT
    found = ss.svd(ss.Dense(A), 7, tol=1e-6, route="iterative")
    assert not all(stretches)
    exact = torch.linalg.svdvals(A)
    assert ((found.S - exact[:, :7]).abs() <= 1e-10 * exact[:, :1]).all()
    assert found.converged.all()
    assert found.rank.tolist() == [5, 5]
    eye = torch.eye(7, dtype=torch.float64)
    for vectors in (found.U[:, :, :5], found.V):
        size = vectors.shape[2]
        assert (vectors.mT @ vectors - eye[:size, :size]).abs().max() < 1e-10


def test_products_that_are_no_numbers_are_refused(stretches: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truncated_svd, "UNASKED_ON", HERE)

    class Breaks(ss.Dense):
        count = 0

        def _matmat(self, V: torch.Tensor) -> torch.Tensor:
            Breaks.count += 1
            return super()._matmat(V) * (float("nan") if Breaks.count > 8 else 1.0)

        def take(self, samples: Sequence[int]) -> Breaks:
            return self

    A = torch.randn(2, 60, 50, generator=generator(3), dtype=torch.float64)
    with pytest.raises(ss.InputError, match="NaN or infinite"):
        ss.svd(Breaks(A), 4, route="iterative")
    assert stretches == [False]
