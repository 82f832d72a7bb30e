"""Full spectra: every route against a dense float64 SVD and closed forms, every value inside its stated bound."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import skipscope as ss
from skipscope.cores import threads_of
from skipscope.linear.law import law_of
from tests import seeded
from tests.slow import thinned
from tests.trace.nets import Residual

ROUTES = ["gram", "svd", "auto"]


def orthogonal(n: int, generator: torch.Generator) -> Tensor:
    return torch.linalg.qr(torch.randn(n, n, dtype=torch.float64, generator=generator)).Q


def with_values(values: Tensor, m: int, n: int, seed: int) -> Tensor:
    """An m x n matrix with these singular values, from random rotations."""
    generator = seeded.generator(seed)
    k = len(values)
    return orthogonal(m, generator)[:, :k] * values @ orthogonal(n, generator)[:, :k].mT


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    ("name", "values", "m", "n"),
    [
        ("wide", torch.linspace(3, 0.1, 20), 20, 35),
        ("tall", torch.linspace(3, 0.1, 20), 35, 20),
        ("rank-deficient", torch.cat([torch.linspace(2, 1, 8), torch.zeros(12)]), 20, 20),
        ("repeated", torch.cat([torch.full((7,), 2.0), torch.full((13,), 1.0)]), 20, 20),
        ("clustered", 1 + 1e-9 * torch.arange(20.0, dtype=torch.float64).flip(0), 20, 20),
        ("graded", 10.0 ** -torch.arange(0, 10, 0.5, dtype=torch.float64), 20, 20),
        ("one", torch.tensor([3.0]), 1, 1),
    ],
)
def test_known_values(route: str, name: str, values: Tensor, m: int, n: int) -> None:
    values = values.double()
    found = ss.singular_values(ss.Dense(with_values(values, m, n, seed=1)), route=route)
    assert found.values.shape == (1, min(m, n))
    error = (found.values[0] - values.cpu()).abs()
    assert (error <= found.bound[0]).all(), (error / found.bound[0]).max()


def test_zero_rows_and_columns_are_dropped_and_counted() -> None:
    matrix = torch.randn(2, 9, 7, dtype=torch.float64)
    matrix[0, [1, 4, 5]] = 0  # leaves 6 rows
    matrix[1, :, 2] = 0
    found = ss.singular_values(ss.Dense(matrix))
    assert found.zeros_at_least.tolist() == [1, 1]
    assert found.zeros.tolist() == [1, 1]
    assert found.rank.tolist() == [6, 6]
    assert (found.values[:, -1] == 0).all()
    assert (found.bound[:, -1] == 0).all()
    nothing = ss.singular_values(ss.Dense(torch.zeros(1, 3, 4)))
    assert nothing.zeros_at_least.tolist() == [3]
    assert nothing.rank.tolist() == [0]


@given(st.integers(0, 2**31), st.integers(1, 30), st.integers(1, 30), st.booleans())
@settings(deadline=None, max_examples=200, derandomize=True)
def test_two_hundred_random_operators_stay_inside_their_bounds(seed: int, m: int, n: int, single: bool) -> None:
    """Random shapes, ranks, scales and gradings; the reference is a float64 SVD, itself off by a few eps s1."""
    generator = seeded.generator(seed)
    k = int(torch.randint(0, min(m, n) + 1, (1,), generator=generator))
    grading = 10.0 ** (
        -12 * torch.rand(1, dtype=torch.float64, generator=generator) * torch.rand(k, generator=generator)
    )
    matrix = with_values(grading.sort(descending=True).values, m, n, seed) * 10.0 ** float(
        torch.randint(-3, 4, (1,), generator=generator)
    )
    if single:
        matrix = matrix.float()
    reference = torch.linalg.svdvals(matrix.double().cpu())
    own_error = 4 * torch.finfo(torch.float64).eps * float(reference[0])
    for route in ROUTES:
        found = ss.singular_values(ss.Dense(matrix), route=route)
        assert ((found.values[0] - reference).abs() <= found.bound[0] + own_error).all()
        assert found.rank[0] <= k or single


def test_accuracy_decides_the_route() -> None:
    matrix = ss.Dense(with_values(10.0 ** -torch.arange(0, 6, dtype=torch.float64), 6, 6, 0))
    assert ss.singular_values(matrix).routes == ("gram",)
    assert ss.singular_values(matrix, tol=1e-12).routes == ("svd",)


@pytest.mark.parametrize("scale", [1e9, 1.0, 1e-9, 1e-200])
def test_zeros_are_counted_by_a_route_that_can_tell_them(scale: float) -> None:
    """Squares take 1e-9 beside 1 for zero, and not only where the values are near 1."""
    for values in (torch.cat([torch.ones(1), 1e-9 * torch.linspace(1, 2, 19)]), 10.0 ** -torch.arange(0.0, 12)):
        found = ss.singular_values(ss.Dense(scale * with_values(values.double(), len(values), len(values), 0)))
        assert found.routes == ("svd",)
        assert (found.rank.tolist(), found.zeros.tolist()) == ([len(values)], [0])


class Block(nn.Module):
    """A basic block whose inner bias makes its middle ReLU sparse."""

    def __init__(self, bias: float, tail: nn.Module) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.tail = tail
        nn.init.constant_(self.first.bias, bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.tail(x + self.second(torch.relu(self.first(x))))


@pytest.mark.parametrize("bias", thinned([-1.2, -0.6, -0.2, 0.5], fast=[-1.2, 0.5]))
@pytest.mark.parametrize("tail", [nn.ReLU(), nn.Identity()])
def test_the_law_holds_with_equality_on_random_convolutional_units(bias: float, tail: nn.Module) -> None:
    torch.manual_seed(3)
    x = torch.randn(2, 4, 6, 6)
    trunk = ss.trace(nn.Sequential(Block(bias, tail)), x)
    J = trunk[0].jacobian(x)
    reference = torch.linalg.svdvals(J.double().dense().cpu())
    law = law_of(trunk[0], trunk.at(x))
    assert law is not None
    middle = torch.relu(trunk.model[0].first(x)).gt(0).flatten(1).sum(1)
    active = trunk.replay(x).ne(0).flatten(1).sum(1)
    assert law.rank.tolist() == middle.tolist()
    assert law.active.tolist() == active.tolist()
    for route in ("auto", "law", "gram", "svd"):
        found = ss.singular_values(J, route=route)
        assert ((found.values - reference).abs() <= found.bound + 1e-14).all()
        assert found.zeros_at_least.tolist() == (144 - active).tolist()
        assert found.ones_at_least.tolist() == (active - 2 * middle).clamp_min(0).tolist()
        # No violation ever; equality is generic.
        assert (found.zeros >= found.zeros_at_least).all()
        assert found.ones.tolist() == found.ones_at_least.tolist()
        assert ((found.values > 1 + 1e-7).sum(1) <= middle.cpu()).all()


def test_where_the_law_does_not_apply_nothing_is_claimed() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 4, 6, 6)
    leaky = ss.trace(nn.Sequential(Block(-1.2, nn.LeakyReLU(0.1))), x)[0].jacobian(x)
    assert ss.singular_values(leaky).ones_at_least.tolist() == [0, 0]
    with pytest.raises(ss.InputError, match="route='law'"):
        ss.singular_values(leaky, route="law")
    norm = ss.trace(nn.Sequential(Block(-1.2, nn.LayerNorm(6))), x)[0]
    assert law_of(norm, norm.trunk.at(x)) is None


def test_parallel_branches_add_their_ranks() -> None:
    class Parallel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = (nn.Sequential(nn.Linear(12, 3), nn.Tanh(), nn.Linear(3, 12)) for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            return x + self.a(x) - 0.5 * self.b(x)

    x = torch.randn(2, 12)
    trunk = ss.trace(nn.Sequential(Parallel()), x)
    found = ss.singular_values(trunk[0].jacobian(x))
    assert found.routes == ("law", "law") or found.ones_at_least.tolist() == [0, 0]
    reference = torch.linalg.svdvals(trunk[0].jacobian(x, dtype=torch.float64).dense().cpu())
    assert ((found.values - reference).abs() <= found.bound + 1e-14).all()
    assert ss.singular_values(trunk[0].jacobian(x), route="law").values.shape == (2, 12)


def test_a_spectrum_that_cannot_fit_is_refused_with_the_numbers() -> None:
    class Huge(ss.Dense):
        def __init__(self) -> None:
            super().__init__(torch.zeros(1, 1, 1), "a unit of a large image")
            self.shape = (1, 800_000, 800_000)

    with pytest.raises(ss.InputError, match=r"800,000 x 800,000.*GiB.*ss\.svd\(J, k\).*ss\.spectral_density"):
        ss.singular_values(Huge())
    assert not ss.plan(Huge()).fits
    assert ss.plan(ss.Dense(torch.zeros(2, 5, 3))).products == 6


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ss.InputError, match="expected one of auto, law, gram, svd"):
        ss.singular_values(ss.Dense(torch.eye(2)), route="fast")
    with pytest.raises(ss.InputError, match="NaN"):
        ss.singular_values(ss.Dense(torch.full((2, 2), float("nan"))))


class Written(nn.Module):
    """A unit given as a function of its input and two bottlenecks."""

    def __init__(self, function: Callable[[Tensor, nn.Module, nn.Module], Tensor]) -> None:
        super().__init__()
        self.f, self.g = (nn.Sequential(nn.Linear(16, 2), nn.Tanh(), nn.Linear(2, 16)) for _ in range(2))
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, self.f, self.g)


@pytest.mark.parametrize(
    ("function", "kind", "ones"),
    [
        (lambda x, f, g: torch.add(g(x), x + f(x), alpha=0.5), "scaled", 0),
        (lambda x, f, g: g(x) - (x + f(x)), "scaled", 0),
        (lambda x, f, g: g(x) - (f(x) - x), "identity", 8),
        (lambda x, f, g: x + f(x) - 0.5 * g(x), "identity", 8),
    ],
)
def test_factors_of_partial_sums_count(function: Any, kind: str, ones: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 16)
    unit = ss.trace(nn.Sequential(Written(function)), x)[0]
    found = ss.singular_values(unit.jacobian(x))
    reference = torch.linalg.svdvals(unit.jacobian(x, dtype=torch.float64).dense().cpu())
    assert unit.kind == kind
    assert found.ones_at_least.tolist() == [ones, ones]
    assert ((found.values - reference).abs() <= found.bound + 1e-14).all()


def test_a_sample_of_a_float32_model_is_that_of_the_whole_batch() -> None:
    """Computed again at another batch size the states round in another way, and the values leave their bounds."""
    torch.manual_seed(0)
    x = torch.randn(5, 3, 8, 8)
    blocks = [Written(lambda x, f, g: x + f(x)) for _ in range(4)]
    trunk = ss.trace(nn.Sequential(nn.Flatten(), nn.Linear(192, 16), *blocks), x)
    point = trunk.at(x)
    J = trunk[3].jacobian(point)
    assert torch.equal(point.take([1, 3]).entry(trunk[3]), point.entry(trunk[3])[[1, 3]])
    found = ss.singular_values(J, route="gram")
    reference = torch.linalg.svdvals(J.double().dense().cpu())
    assert ((found.values - reference).abs() <= found.bound + 1e-14).all()


def test_a_graph_with_a_fixed_batch_has_spectra_too() -> None:
    x = torch.randn(4, 16)
    trunk = ss.trace(nn.Sequential(Written(lambda x, f, g: x + f(x).reshape(4, 16))), x)
    assert "only for batches of 4" in str(trunk)
    found = ss.singular_values(trunk[0].jacobian(x))
    reference = torch.linalg.svdvals(trunk[0].jacobian(x, dtype=torch.float64).dense().cpu())
    assert ((found.values - reference).abs() <= found.bound + 1e-14).all()


def test_complex_cuts_prove_nothing() -> None:
    class Fourier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(3))
            self.mix = nn.Linear(16, 16)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.mix(torch.fft.irfft(torch.fft.rfft(x)[..., 1:4] * self.weight, n=16))

    x = torch.randn(2, 16)
    J = ss.trace(nn.Sequential(Fourier()), x)[0].jacobian(x)
    found = ss.singular_values(J)
    assert (found.ones >= found.ones_at_least).all()
    reference = torch.linalg.svdvals(J.double().dense().cpu())
    assert ((found.values - reference).abs() <= found.bound + 1e-14).all()


def test_cancelling_factors_widen_the_bound_of_the_law() -> None:
    class Cancelling(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w, self.v = nn.Parameter(1e5 * torch.randn(16, 2)), nn.Parameter(1e3 * torch.randn(2, 16))

        def forward(self, x: Tensor) -> Tensor:
            h = x @ self.w
            return x + torch.cat([h, h], 1) @ torch.cat([self.v, -self.v], 0)

    x = torch.randn(2, 16)
    J = ss.trace(nn.Sequential(Cancelling()), x)[0].jacobian(x)
    for route in ("auto", "law"):
        found = ss.singular_values(J, route=route)
        assert ((found.values - 1).abs() <= found.bound).all()


class TestCounts:
    def test_values_near_one_beside_a_huge_one_are_no_zeros(self) -> None:
        values = torch.cat([torch.tensor([1e9]), torch.linspace(1.01, 0.99, 99)]).double()
        found = ss.singular_values(ss.Dense(with_values(values, 100, 100, seed=2)))
        assert found.routes == ("svd",)
        assert (found.zeros.tolist(), found.rank.tolist()) == ([0], [100])
        assert found.ones.isnan().all()  # the bound is 2e-5 there: 1 + 1e-6 or 1, nobody knows

    def test_ones_beside_a_larger_value_are_counted_by_the_svd(self) -> None:
        values = torch.cat([torch.tensor([1e5]), torch.ones(30), torch.linspace(0.9, 0.5, 19)]).double()
        matrix = ss.Dense(with_values(values, 50, 50, seed=2))
        assert ss.singular_values(matrix, route="gram").ones.isnan().all()
        found = ss.singular_values(matrix)
        assert found.routes == ("svd",)
        assert (found.ones.tolist(), found.zeros.tolist()) == ([30], [0])

    def test_a_rank_is_counted_at_any_scale(self) -> None:
        values = torch.cat([torch.linspace(2, 1, 8), torch.zeros(12)]).double()
        for factor in (1e-200, 1e-9, 1.0, 1e9, 1e200):
            found = ss.singular_values(ss.Dense(factor * with_values(values, 20, 20, seed=1)))
            assert (found.rank.tolist(), found.zeros.tolist()) == ([8], [12])

    def test_no_count_without_a_bound_that_tells(self) -> None:
        class Noisy(ss.Dense):
            """Its transposed products belong to another matrix: nothing is known to better than 10 %."""

            def take(self, samples: Any) -> Any:
                return self

            def double(self) -> Any:
                return Wrapped(self)

        class Wrapped(ss.linear.operator.Operator):  # type: ignore[name-defined,misc]
            def __init__(self, part: ss.Dense) -> None:
                self.part, self.shape, self.dtype, self.device = part, part.shape, torch.float64, part.device

            def _matmat(self, V: Tensor) -> Tensor:
                return self.part.matrix @ V

            def _rmatmat(self, U: Tensor) -> Tensor:
                return 1.1 * self.part.matrix.mT @ U

            def take(self, samples: Any) -> Any:
                return self

        found = ss.singular_values(Noisy(with_values(torch.linspace(2, 0, 9).double(), 9, 9, seed=1)[None]))
        assert found.zeros.isnan().all()
        assert found.rank.isnan().all()
        assert found.ones.isnan().all()

    def test_entries_are_compared_with_the_other_side_in_a_transposed_operator_too(self) -> None:
        """A square matrix is assembled from one side, and its transpose from the other."""

        class TwoMatrices(ss.linear.operator.Operator):  # type: ignore[name-defined,misc]
            def __init__(self) -> None:
                self.matrix = with_values(torch.linspace(2, 1, 9).double(), 9, 9, seed=1)[None]
                self.shape, self.dtype, self.device = (1, 9, 9), torch.float64, self.matrix.device

            def _matmat(self, V: Tensor) -> Tensor:
                return self.matrix @ V

            def _rmatmat(self, U: Tensor) -> Tensor:
                return 1.001 * self.matrix.mT @ U

            def take(self, samples: Any) -> Any:
                return self

        for operator in (TwoMatrices(), TwoMatrices().T, TwoMatrices().T.T):
            assert (ss.singular_values(operator).bound >= 1e-3).all()


@pytest.mark.parametrize("route", ["auto", "law", "gram", "svd"])
def test_samples_are_decomposed_side_by_side_with_the_same_bits(route: Any) -> None:
    torch.manual_seed(0)
    block = nn.Sequential(nn.Linear(24, 6), nn.ReLU(), nn.Linear(6, 24))
    model = nn.Sequential(nn.Linear(5, 24), Residual(block), nn.Linear(24, 2)).eval()
    x = torch.randn(5, 5)
    J = ss.trace(model, x).units[0].jacobian(x)
    found = []
    for threads in (1, 3):
        with threads_of(threads):
            found.append(ss.singular_values(J, route=route))
    alone, together = found
    assert alone.routes == together.routes
    for name in ("values", "bound", "tolerance", "zeros_at_least", "ones_at_least"):
        assert torch.equal(getattr(alone, name), getattr(together, name))
    assert torch.equal(ss.singular_values(J.take([3]), route=route).values[0], together.values[3])
