"""Orthonormal rows: the relation, orthogonality to rounding with few passes, dependent vectors, growing buffers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from skipscope.spectrum import orthonormal
from skipscope.spectrum.orthonormal import Basis, orthonormalise
from tests.seeded import generator
from tests.spectrum.operators import random

DTYPES = [torch.float32, torch.float64]
BATCH, SIZE, HELD = 2, 60, 9


def basis_of(dtype: torch.dtype) -> Tensor:
    return torch.linalg.qr(random(BATCH, SIZE, HELD, seed=1)).Q.mT.to(dtype).contiguous()


def numbers() -> torch.Generator:
    return torch.Generator("cpu").manual_seed(0)


def orthonormalised(
    block: Tensor, basis: Tensor, scale: float = 1.0, expected: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """(Q, C, R), where the block is; what is small comes on the CPU in float64, with the scale."""
    before = torch.full((len(block),), scale, dtype=torch.float64, device="cpu")
    Q, *small = orthonormalise(block, basis, before, numbers(), expected)
    assert all(part.device.type == "cpu" and part.dtype == torch.float64 for part in small)
    lengths = torch.linalg.vector_norm(block, dim=2).amax(1).cpu().double()
    assert torch.equal(small[2], torch.maximum(before, lengths))
    return Q, small[0].to(Q.device), small[1].to(Q.device)


def check(block: Tensor, basis: Tensor, Q: Tensor, C: Tensor, R: Tensor) -> None:
    """block = C^T basis + R^T Q, and all rows orthonormal, in float64."""
    eps = torch.finfo(block.dtype).eps
    together = torch.cat([basis, Q], 1).double()
    off = together @ together.mT - torch.eye(together.shape[1])
    assert off.abs().max() < 40 * eps
    again = C.double().mT @ basis.double() + R.double().mT @ Q.double()
    assert (again - block.double()).abs().max() <= 40 * eps * block.abs().max()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", [1, 2, 5])
def test_the_relation_holds(dtype: torch.dtype, width: int) -> None:
    basis, block = basis_of(dtype), random(BATCH, width, SIZE, seed=2).to(dtype)
    check(block, basis, *orthonormalised(block, basis))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_expected_coefficients_save_a_pass(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block that lies almost in the basis, as the product of a recurrence does."""
    basis = basis_of(dtype)
    known = random(BATCH, 4, 2, seed=3).to(dtype)
    block = 100 * known.mT @ basis[:, -4:] + random(BATCH, 2, SIZE, seed=4).to(dtype)
    passes: list[int] = []
    right = orthonormal._orthonormal_rows

    def counted(*arguments: Tensor) -> tuple[Tensor, Tensor]:
        passes.append(1)
        return right(*arguments)

    monkeypatch.setattr(orthonormal, "_orthonormal_rows", counted)
    check(block, basis, *orthonormalised(block, basis, 100.0, 100 * known))
    assert len(passes) == 1
    check(block, basis, *orthonormalised(block, basis, 100.0))
    assert len(passes) == 3
    # Wrong expectations cost a pass and nothing else.
    check(block, basis, *orthonormalised(block, basis, 100.0, -100 * known))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("distance", [0.0, 1e-12, 1e-5])
def test_nearly_dependent_vectors(dtype: torch.dtype, distance: float) -> None:
    basis = basis_of(dtype)
    one, other = random(BATCH, 1, SIZE, seed=5), random(BATCH, 1, SIZE, seed=6)
    block = torch.cat([one, one + distance * other, basis[:, :1].double()], 1).to(dtype)
    Q, C, R = orthonormalised(block, basis)
    check(block, basis, Q, C, R)
    assert (R[:, 2, 2] == 0).all()  # a vector of the basis leaves nothing, and a random one takes its place


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", [4, 8])
def test_a_chain_of_vectors_of_which_each_is_near_the_next(dtype: torch.dtype, width: int) -> None:
    """Each keeps an eighth of its length beside those before it, and together they are dependent to 8^-width."""
    axes = torch.linalg.qr(random(BATCH, SIZE, width, seed=9)).Q.mT
    block = (axes / 8 + (1 - 1 / 64) ** 0.5 * axes.roll(1, 1)).to(dtype)
    block[:, 0] = axes[:, 0]
    basis = basis_of(dtype)
    check(block, basis, *orthonormalised(block, basis))


def test_zeros_become_random_vectors() -> None:
    basis = basis_of(torch.float64)
    block = torch.zeros(BATCH, 3, SIZE, dtype=torch.float64)
    Q, C, R = orthonormalised(block, basis)
    check(block, basis, Q, C, R)
    assert not R.any()


def test_a_space_that_is_full_gives_fewer_vectors() -> None:
    basis = torch.linalg.qr(random(BATCH, 10, 9, seed=7)).Q.mT.contiguous()
    block = random(BATCH, 3, 10, seed=8)
    Q, C, R = orthonormalised(block, basis)
    assert Q.shape == (BATCH, 1, 10)
    check(block, basis, Q, C, R)


def test_a_basis_grows_beyond_its_room_and_changes_its_samples() -> None:
    rows = torch.randn(3, 2, 7, generator=generator(0))
    basis = Basis(rows, room=3)
    more = torch.randn(3, 2, 7, generator=generator(1))
    basis.append(more)
    assert torch.equal(basis.rows, torch.cat([rows, more], 1))
    basis.become(rows[[0, 2]])
    assert torch.equal(basis.rows, rows[[0, 2]])
    basis.append(more[[0, 2]])
    assert torch.equal(basis.rows, torch.cat([rows, more], 1)[[0, 2]])
