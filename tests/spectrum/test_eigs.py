"""Eigenpairs and inertia against closed forms, dense float64 references and SciPy."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.linalg import eigsh
from torch import Tensor

from skipscope.errors import InputError
from skipscope.linear.operator import Dense, Operator
from skipscope.spectrum.lanczos import Eigs, eigs, inertia
from skipscope.spectrum.orthonormal import rotate
from skipscope.spectrum.scale import default_tolerance
from tests.spectrum.operators import SYMMETRIC, orthonormal, principal_sines, random, rotated

DTYPES = [torch.float32, torch.float64]
ROUTES: Any = ["dense", "iterative"]
ENDS: Any = ["largest", "smallest", "magnitude"]


def rounding(H: Operator) -> float:
    return 4 * H.shape[2] * torch.finfo(H.dtype).eps


def chosen(values: Tensor, k: int, which: str) -> Tensor:
    """k of the values (B, n), the wanted end first."""
    if which == "magnitude":
        return values.gather(1, values.abs().argsort(dim=1, descending=True, stable=True))[:, :k]
    return values.sort(dim=1, descending=which == "largest").values[:, :k]


def check_pairs(H: Operator, result: Eigs, largest: Tensor) -> None:
    """What holds for every result: orthonormal vectors, honest residuals, signs, flags."""
    vectors, values = result.vectors.double(), result.values.double()
    gram = vectors.mT @ vectors
    k = values.shape[1]
    assert (gram - torch.eye(k)).abs().max() < 20 * torch.finfo(H.dtype).eps * k**0.5
    honest = torch.linalg.vector_norm(H.dense().double() @ vectors - values[:, None] * vectors, dim=1)
    assert ((honest - result.residuals).abs() <= rounding(H) * largest[:, None]).all()
    assert ((result.residuals <= default_tolerance(H.dtype) * largest[:, None]) == result.converged).all()
    assert (result.vectors.abs().amax(1) * 0.98 <= result.vectors.amax(1)).all()


def compare(found: Tensor, expected: Tensor, which: str, bound: Tensor) -> None:
    """At the end of magnitudes, l and -l may come in either order."""
    if which == "magnitude":
        found, expected = found.abs(), expected.abs()
    assert ((found - expected).abs() <= bound[:, None]).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("which", ENDS)
@pytest.mark.parametrize("name", SYMMETRIC)
def test_closed_forms(name: str, which: Any, route: Any, dtype: torch.dtype) -> None:
    H, expected = SYMMETRIC[name].make(dtype), SYMMETRIC[name].values()
    k = min(5, H.shape[2])
    result = eigs(H, k, which=which, route=route)
    largest = expected.abs().amax(1)
    assert result.route == route
    assert result.values.dtype == result.vectors.dtype == dtype
    check_pairs(H, result, largest)
    assert result.converged.all()
    compare(result.values, chosen(expected, k, which), which, rounding(H) * largest)


@pytest.mark.parametrize("name", ["laplacian", "blur", "negative definite"])
@pytest.mark.parametrize(("which", "theirs"), [("largest", "LA"), ("smallest", "SA"), ("magnitude", "LM")])
def test_agrees_with_scipy(name: str, which: Any, theirs: str) -> None:
    H = SYMMETRIC[name].make(torch.float64)
    values = eigsh(
        H.to_scipy(), k=4, which=theirs, return_eigenvectors=False, v0=random(H.shape[2], seed=1).cpu().numpy()
    )
    expected = chosen(torch.from_numpy(values.copy())[None], 4, which)
    result = eigs(H, 4, which=which, route="iterative")
    compare(result.values.cpu(), expected, which, rounding(H) * expected.abs().amax(1))


def test_the_laplacians_vectors_are_sines() -> None:
    H = SYMMETRIC["laplacian"].make(torch.float64)
    n, k = H.shape[2], 4
    grid = torch.arange(1, n + 1, dtype=torch.float64) * torch.pi / (n + 1)
    sines = (grid[:, None] * torch.arange(n, n - k, -1)).sin() * (2 / (n + 1)) ** 0.5  # n, k
    result = eigs(H, k, route="iterative")
    values = SYMMETRIC["laplacian"].values()[0]
    for j in range(k):
        gap = min(abs(values[j] - values[other]) for other in (j - 1, j + 1) if other >= 0)
        angle = principal_sines(sines[None, :, j : j + 1], result.vectors[:, :, j : j + 1]).item()
        assert angle <= 2 * default_tolerance(H.dtype) * values[0] / gap


def test_repeated_values_give_their_subspace() -> None:
    """All twelve copies, with a block of two; the angle is at most residual / gap (Davis and Kahan)."""
    H = SYMMETRIC["repeated"].make(torch.float64)
    result = eigs(H, 12, block=2, route="iterative")
    assert result.converged.all()
    assert (result.values - 2).abs().max() < rounding(H)
    space = torch.linalg.eigh(H.dense()).eigenvectors[:, :, -12:]
    assert principal_sines(space, result.vectors).item() <= 2 * 12**0.5 * default_tolerance(H.dtype) * 2 / 0.1


@settings(max_examples=50, deadline=None)
@given(
    st.integers(1, 3),
    st.integers(1, 16),
    st.integers(0, 16),
    st.integers(1, 16),
    st.integers(1, 5),
    st.sampled_from(ENDS),
    st.sampled_from(DTYPES),
    st.integers(0, 5),
)
def test_any_size_rank_and_block(
    batch: int, n: int, rank: int, k: int, block: int, which: Any, dtype: torch.dtype, seed: int
) -> None:
    rank, k = min(rank, n), min(k, n)
    factor = random(batch, n, rank, seed=seed)
    matrix = (factor * random(batch, 1, rank, seed=seed + 1)) @ factor.mT
    H = Dense(((matrix + matrix.mT) / 2).to(dtype))
    expected = torch.linalg.eigvalsh(H.dense().double())
    largest = expected.abs().amax(1)
    for route in ROUTES:
        result = eigs(H, k, which=which, block=block, route=route)
        check_pairs(H, result, largest)
        assert result.converged.all()
        compare(result.values, chosen(expected, k, which), which, 4 * rounding(H) * largest)


def test_samples_stop_when_they_have_converged() -> None:
    values = torch.stack([0.5 ** torch.arange(120.0), torch.linspace(1, 0, 120)]).double()
    H = Dense(rotated(values, seed=40))
    result = eigs(H, 4, route="iterative")
    assert result.converged.all()
    assert result.products[0] < result.products[1]
    assert (result.values - values[:, :4]).abs().max() < rounding(H)
    for sample in range(2):
        alone = eigs(H.take([sample]), 4, route="iterative")
        assert alone.products[0] == result.products[sample]
        assert (alone.values[0] - result.values[sample]).abs().max() < rounding(H)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_basis_stays_orthonormal_over_hundreds_of_restarts(dtype: torch.dtype) -> None:
    """Without the correction the errors of 400 rotations add up to more than the bound."""
    basis, rotation = orthonormal(1, 200, 20, seed=44).to(dtype), orthonormal(1, 20, 20, seed=45).to(dtype)
    plain = basis
    bound = 10 * torch.finfo(dtype).eps
    for _ in range(400):
        basis, plain = rotate(basis.mT, rotation).mT, plain @ rotation
    errors = [(Q.double().mT @ Q.double() - torch.eye(20)).abs().max().item() for Q in (basis, plain)]
    assert errors[0] < bound
    assert errors[1] > bound


def test_the_end_of_the_budget_is_told() -> None:
    H = Dense(rotated(torch.linspace(1, 0.9, 200).double()[None], seed=42))
    result = eigs(H, 6, max_products=50, route="iterative")
    assert not result.converged.all()
    check_pairs(H, result, torch.ones(1))
    assert 50 <= result.products.item() < 50 + 34 + 6


@pytest.mark.parametrize("max_products", [20, 40, 60])
def test_values_whose_second_trial_was_cut_off_have_not_converged(max_products: int) -> None:
    values = torch.cat([torch.ones(4), torch.full((4,), 0.8), torch.linspace(0.3, 0, 72)]).double()[None]
    H = Dense(rotated(values, seed=30))
    cut = eigs(H, 4, max_products=max_products, route="iterative")
    right = (cut.values - 1).abs().amax() < 1e-9
    assert right or not cut.converged.any()
    assert eigs(H, 4, route="iterative").converged.all()


def test_the_route_is_the_cheaper_one() -> None:
    assert eigs(Dense(rotated(torch.linspace(-1, 1, 50).double()[None], seed=0)), 3).route == "dense"
    big = random(1, 1500, 3, seed=0)
    assert eigs(Dense(big @ big.mT), 1, tol=1e-2).route == "iterative"


def test_the_callers_random_state_is_left_alone() -> None:
    before = torch.get_rng_state()
    eigs(SYMMETRIC["blur"].make(torch.float32), 3, route="iterative")
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("name", "negative", "zero", "positive"),
    [
        ("reflection", [24], [0], [40]),
        ("laplacian", [0], [0], [64]),
        ("saddle", [1, 28], [67, 0], [2, 42]),
        ("negative definite", [60], [0], [0]),
        ("zero", [0, 0], [40, 40], [0, 0]),
        ("1 x 1", [1], [0], [0]),
    ],
)
def test_inertia(name: str, negative: list[int], zero: list[int], positive: list[int], dtype: torch.dtype) -> None:
    H = SYMMETRIC[name].make(dtype)
    counts = inertia(H, tol=1e-6)
    assert (counts.negative.tolist(), counts.zero.tolist(), counts.positive.tolist()) == (negative, zero, positive)
    largest = SYMMETRIC[name].values().abs().amax(1)
    assert (counts.tolerance - 1e-6 * largest).abs().max() <= 1e-6 * rounding(H) * largest.max()


def test_inertia_counts_no_more_finely_than_the_type_knows() -> None:
    values = torch.tensor([[1.0, 1e-3, 1e-7, -1e-7, -1e-13]]).double()
    single, double = (inertia(Dense(torch.diag_embed(values).to(dtype))) for dtype in DTYPES)
    assert (single.negative.item(), single.zero.item(), single.positive.item()) == (0, 3, 2)
    assert (double.negative.item(), double.zero.item(), double.positive.item()) == (2, 0, 3)


class Huge(Dense):
    def __init__(self) -> None:
        super().__init__(torch.zeros(1, 1))
        self.shape = (1, 10**6, 10**6)


def test_what_is_refused() -> None:
    with pytest.raises(InputError, match="not square"):
        eigs(Dense(torch.ones(3, 4)), 1)
    with pytest.raises(InputError, match="expected k from 1 to 3, got 4"):
        eigs(Dense(torch.eye(3)), 4)
    with pytest.raises(InputError, match="'middle'"):
        eigs(Dense(torch.eye(3)), 1, which="middle")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"needs the matrix itself: 29802.3 GiB"):
        inertia(Huge())
    for route in ROUTES:
        with pytest.raises(InputError, match="not symmetric"):
            eigs(Dense(random(1, 30, 30, seed=0)), 2, route=route)
        with pytest.raises(InputError, match=r"NaN or infinite for samples \[1\]"):
            eigs(Dense(torch.stack([torch.eye(9), torch.full((9, 9), torch.nan)])), 2, route=route)
