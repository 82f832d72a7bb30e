"""Singular triplets against closed forms, dense float64 references and SciPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.linalg import svds
from torch import Tensor

from skipscope.errors import InputError
from skipscope.linear.jacobian import Among
from skipscope.linear.operator import Dense, Operator
from skipscope.spectrum.scale import default_tolerance
from skipscope.spectrum.truncated_svd import SVD, svd
from tests.spectrum.operators import SINGULAR, from_values, principal_sines, random

DTYPES = [torch.float32, torch.float64]
ROUTES: Any = ["dense", "iterative"]


def rounding(A: Operator) -> float:
    """Relative to the largest value: the matrix itself is known to about n eps, products and bases add their own."""
    return 4 * max(A.shape[1:]) * torch.finfo(A.dtype).eps


def check_triplets(A: Operator, result: SVD, largest: Tensor) -> None:
    """What holds for every result: orthonormal vectors, honest residuals, signs, flags."""
    eps = torch.finfo(A.dtype).eps
    k = result.S.shape[1]
    for vectors in (result.U, result.V):
        gram = vectors.double().mT @ vectors.double()
        assert (gram - torch.eye(k)).abs().max() < 20 * eps * k**0.5
    U, S, V = result.U.double(), result.S.double(), result.V.double()
    matrix = A.dense().double()
    forward = torch.linalg.vector_norm(matrix @ V - S[:, None] * U, dim=1)
    backward = torch.linalg.vector_norm(matrix.mT @ U - S[:, None] * V, dim=1)
    honest = torch.maximum(forward, backward)
    assert ((honest - result.residuals).abs() <= rounding(A) * largest[:, None]).all()
    assert ((result.residuals <= default_tolerance(A.dtype) * largest[:, None]) == result.converged).all()
    assert (result.S >= 0).all()
    assert (result.V.abs().amax(1) * 0.98 <= result.V.amax(1)).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("which", ["largest", "smallest"])
@pytest.mark.parametrize("name", SINGULAR)
def test_closed_forms(name: str, which: Any, route: Any, dtype: torch.dtype) -> None:
    A, expected = SINGULAR[name].make(dtype), SINGULAR[name].values()
    k = min(6, *A.shape[1:])
    result = svd(A, k, which=which, route=route)
    assert result.route == route
    assert result.S.dtype == result.U.dtype == dtype
    wanted = expected[:, :k] if which == "largest" else expected[:, -k:].flip(1)
    largest = expected[:, 0]
    check_triplets(A, result, largest)
    assert result.converged.all()
    assert ((result.S - wanted).abs() <= rounding(A) * largest[:, None]).all()


@pytest.mark.parametrize("name", ["convolution", "wide of rank 12", "decaying", "easy beside hard"])
def test_agrees_with_scipy(name: str) -> None:
    A = SINGULAR[name].make(torch.float64)
    result = svd(A, 5, route="iterative")
    for sample in range(A.shape[0]):
        _, values, _ = svds(A.to_scipy(sample), k=5, rng=0)
        expected = torch.from_numpy(values.copy()).sort(descending=True).values
        assert (result.S[sample].cpu() - expected).abs().max() < rounding(A) * expected[0]


@pytest.mark.parametrize(
    ("name", "first", "last"), [("repeated", 0, 1), ("repeated", 1, 21), ("clustered", 0, 5), ("decaying", 0, 8)]
)
def test_vectors_span_the_singular_subspaces(name: str, first: int, last: int) -> None:
    """Where values repeat only the subspace is defined: its angle is at most residual / gap (Wedin)."""
    A, values = SINGULAR[name].make(torch.float64), SINGULAR[name].values()[0]
    result = svd(A, last, route="iterative")
    U, _, Vt = torch.linalg.svd(A.dense(), full_matrices=False)
    gap = min([values[last - 1] - values[last]] + ([values[first - 1] - values[first]] if first else []))
    bound = 2 * last**0.5 * default_tolerance(A.dtype) * values[0] / gap
    assert principal_sines(U[:, :, first:last], result.U[:, :, first:last]).item() <= bound
    assert principal_sines(Vt[:, first:last].mT, result.V[:, :, first:last]).item() <= bound


@settings(max_examples=60, deadline=None)
@given(
    st.tuples(st.integers(1, 3), st.integers(1, 14), st.integers(1, 14)),
    st.integers(0, 14),
    st.integers(1, 14),
    st.integers(1, 5),
    st.sampled_from(["largest", "smallest"]),
    st.sampled_from(DTYPES),
    st.integers(0, 5),
)
def test_any_shape_rank_and_block(
    shape: tuple[int, int, int], rank: int, k: int, block: int, which: Any, dtype: torch.dtype, seed: int
) -> None:
    batch, m, n = shape
    rank, k = min(rank, m, n), min(k, m, n)
    matrix = random(batch, m, rank, seed=seed) @ random(batch, rank, n, seed=seed + 1)
    A = Dense(matrix.to(dtype))
    expected = torch.linalg.svdvals(A.dense().double())
    wanted = expected[:, :k] if which == "largest" else expected[:, -k:].flip(1)
    for route in ROUTES:
        result = svd(A, k, which=which, block=block, route=route)
        check_triplets(A, result, expected[:, 0])
        assert result.converged.all()
        assert ((result.S - wanted).abs() <= 4 * rounding(A) * expected[:, :1]).all()


def test_more_copies_than_the_block_is_wide() -> None:
    """200 ones over a continuum that begins just below: a Krylov space of block 2 holds two of them."""
    values = torch.cat([torch.tensor([3.0, 2.0]), torch.ones(60), torch.linspace(0.97, 0, 88)]).double()[None]
    A = Dense(from_values(values, 150, 150, seed=30))
    for block in (1, 2, 3):
        result = svd(A, 8, block=block, route="iterative")
        assert result.converged.all()
        assert (result.S - values[:, :8]).abs().max() < rounding(A) * 3


def test_samples_stop_when_they_have_converged() -> None:
    A = SINGULAR["easy beside hard"].make(torch.float64)
    taken: list[list[int]] = []

    class Counted(Dense):
        def take(self, samples: Sequence[int]) -> Dense:
            taken.append(list(samples))
            return super().take(samples)

    result = svd(Counted(A.dense()), 4, route="iterative")
    assert result.products[0] < result.products[1]
    assert [1] in taken
    for sample in range(2):
        alone = svd(A.take([sample]), 4, route="iterative")
        assert alone.products[0] == result.products[sample]
        assert principal_sines(alone.V[:1, :, :1], result.V[sample : sample + 1, :, :1]).max() < 1e-9
        assert (alone.S[0] - result.S[sample]).abs().max() < rounding(A)


@pytest.mark.parametrize("transposed", [False, True])
def test_samples_that_go_on_in_the_company_of_others_find_the_same(transposed: bool) -> None:
    """As on a GPU, where products of all samples are captured already."""
    A = SINGULAR["easy beside hard"].make(torch.float64)
    gone_on: list[list[int]] = []

    class InCompany(Dense):
        def go_on_with(self, samples: Sequence[int]) -> Operator:
            gone_on.append(list(samples))
            return Among(self, samples) if len(samples) < self.shape[0] else self

    together = InCompany(A.dense())
    alone, found = (svd(B.T if transposed else B, 4, route="iterative") for B in (A, together))
    assert [1] in gone_on
    assert found.converged.all()
    torch.testing.assert_close(found.S, alone.S, rtol=1e-12, atol=0)
    assert torch.equal(found.products, alone.products)
    pairs = Among(Among(together, [1, 0]), [0])
    torch.testing.assert_close(pairs.go_on_with([0]).dense(), A.take([1]).dense(), rtol=0, atol=0)


def test_small_values_are_not_squared_away() -> None:
    """In float32 the square of 1e-5 is below eps; the value itself is not."""
    values = torch.tensor([[1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5]]).double()
    A = Dense(from_values(values, 100, 90, seed=32).float())
    result = svd(A, 6, route="iterative")
    exact = torch.linalg.svdvals(A.dense().double())[:, :6]
    assert (result.S - exact).abs().max() < 4 * torch.finfo(torch.float32).eps
    assert abs(result.S[0, 5].item() - 1e-5) < 0.05e-5


@pytest.mark.parametrize("factor", [1e-32, 1e32])
@pytest.mark.parametrize("route", ROUTES)
def test_scale_does_not_matter(factor: float, route: Any) -> None:
    """The squares of these entries do not exist in float32."""
    A = SINGULAR["decaying"].make(torch.float32)
    scaled = Dense(A.dense() * factor)
    result, plain = svd(scaled, 5, route=route), svd(A, 5, route=route)
    assert result.converged.all()
    assert (result.S.double() / factor - plain.S).abs().max() < rounding(A)


def test_the_end_of_the_budget_is_told() -> None:
    A = Dense(from_values(torch.linspace(1, 0.9, 200).double()[None], 200, 200, seed=34))
    result = svd(A, 10, max_products=100, route="iterative")
    assert not result.converged.all()
    check_triplets(A, result, torch.ones(1))
    assert 100 <= result.products.item() < 100 + 2 * 38 + 20
    assert (result.residuals[~result.converged] > default_tolerance(A.dtype)).all()


@pytest.mark.parametrize("max_products", [20, 60, 90])
def test_values_whose_second_trial_was_cut_off_have_not_converged(max_products: int) -> None:
    """A block of two holds two copies: without the second trial it is 1, 1, .8, .8, with small residuals."""
    values = torch.cat([torch.ones(4), torch.full((4,), 0.8), torch.linspace(0.3, 0, 72)]).double()[None]
    A = Dense(from_values(values, 80, 80, seed=30))
    cut = svd(A, 4, max_products=max_products, route="iterative")
    right = (cut.S - 1).abs().amax() < 1e-9
    assert right or not cut.converged.any()
    assert svd(A, 4, route="iterative").converged.all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_smallest_values_and_zeros_with_restarts(dtype: torch.dtype) -> None:
    """Values and right vectors, three of them in the null space of rank 197."""
    values = torch.cat([torch.linspace(1, 0.3, 195), torch.tensor([0.1, 0.05])]).double()[None]
    A = Dense(from_values(values, 220, 200, seed=38).to(dtype))
    result = svd(A, 5, which="smallest", route="iterative")
    assert result.iterations.item() > 40
    assert (result.S - torch.tensor([0, 0, 0, 0.05, 0.1])).abs().max() < rounding(A)
    null = torch.linalg.svd(A.dense().double()).Vh[:, 197:].mT
    assert principal_sines(null, result.V[:, :, :3]).item() < 4 * default_tolerance(dtype) / 0.05
    assert result.converged[0, 3:].all()


def test_slow_smallest_values_are_told() -> None:
    values = torch.cat([torch.linspace(1, 0.1, 290), 10.0 ** -torch.arange(3.0, 13.0)]).double()[None]
    A = Dense(from_values(values, 300, 300, seed=36))
    assert svd(A, 3, which="smallest").route == "dense"
    result = svd(A, 3, which="smallest", route="iterative", max_products=300)
    assert not result.converged.all()
    check_triplets(A, result, torch.ones(1))


def test_the_route_is_the_cheaper_one() -> None:
    small, large = Dense(random(1, 60, 60, seed=0)), Dense(random(1, 1500, 1500, seed=0))
    assert svd(small, 3).route == "dense"
    assert svd(large, 1, tol=1e-2).route == "iterative"


def test_the_callers_random_state_is_left_alone_and_seeds_decide() -> None:
    A = SINGULAR["convolution"].make(torch.float64)
    before = torch.get_rng_state()
    first, second, third = (svd(A, 3, route="iterative", seed=seed) for seed in (1, 1, 2))
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(first.V, second.V)
    assert not torch.equal(first.V, third.V)


class Wrong(Dense):
    def take(self, samples: Sequence[int]) -> Wrong:
        return Wrong(self.matrix[list(samples)])

    def _rmatmat(self, U: Tensor) -> Tensor:
        return self.matrix.mT @ U.flip(1)


@pytest.mark.parametrize(
    ("operator", "options", "message"),
    [
        (Dense(torch.ones(4, 3)), {"k": 4}, "expected k from 1 to 3, got 4"),
        (Dense(torch.ones(4, 3)), {"k": 0}, "expected k from 1 to 3, got 0"),
        (Dense(torch.ones(4, 3)), {"k": 1, "which": "middle"}, "'middle'"),
        (Dense(torch.ones(4, 3)), {"k": 1, "route": "quick"}, "'quick'"),
        (Dense(torch.ones(4, 3)), {"k": 1, "tol": -1.0}, "-1.0"),
        (Dense(torch.ones(4, 3)), {"k": 1, "block": 0}, "at least one"),
        (Dense(torch.ones(4, 3)), {"k": 1, "max_products": 0}, "max_products=0"),
        (Dense(torch.ones(4, 3).half()), {"k": 1}, "float32 or float64"),
        (Dense(torch.full((2, 4, 3), torch.nan)), {"k": 1, "route": "dense"}, r"NaN or infinite for samples \[0, 1\]"),
        (Dense(torch.full((1, 4, 3), torch.inf)), {"k": 1, "route": "iterative"}, r"NaN or infinite for samples \[0\]"),
        (Wrong(random(1, 30, 20, seed=0)), {"k": 1, "route": "iterative"}, "not the transpose"),
    ],
)
def test_what_is_refused(operator: Operator, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        svd(operator, **options)


@pytest.mark.parametrize("route", ["dense", "iterative"])
def test_ambient_autocast_changes_nothing(route: Any) -> None:
    A = Dense(random(2, 80, 60, seed=0).float())
    expected = svd(A, 3, route=route)
    with torch.autocast(A.device.type, dtype=torch.bfloat16):
        found = svd(A, 3, route=route)
    assert torch.equal(found.S, expected.S)
    assert torch.equal(found.converged, expected.converged)
