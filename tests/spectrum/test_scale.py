"""No solver's answer depends on the scale: at any power of ten it is the same number, or it says that it is not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import skipscope as ss
from skipscope.errors import InputError
from skipscope.linear.operator import Dense, Operator
from skipscope.spectrum.scale import InUnit, exponents, fresh_products, scaled, upper
from tests.spectrum.operators import from_values, random, rotated

F32, F64 = torch.float32, torch.float64
VALUES = torch.cat([torch.linspace(1, 0.5, 50), torch.linspace(0.4, 0.01, 10)]).double()[None]


class Chain(Operator):
    """A product of matrices in its own type alone, as a span of modules that hold casts is."""

    def __init__(self, *parts: Tensor) -> None:
        self.parts = [part if part.dim() == 3 else part[None] for part in parts]
        first, last = self.parts[0], self.parts[-1]
        self.shape, self.dtype, self.device = (len(first), first.shape[1], last.shape[2]), first.dtype, first.device

    def _matmat(self, V: Tensor) -> Tensor:
        for part in reversed(self.parts):
            V = part @ V
        return V

    def _rmatmat(self, U: Tensor) -> Tensor:
        for part in self.parts:
            U = part.mT @ U
        return U

    def take(self, samples: Sequence[int]) -> Chain:
        return Chain(*(part[list(samples)] for part in self.parts))


class TestPowersOfTwo:
    @pytest.mark.parametrize("dtype", [F32, F64])
    def test_there_and_back_is_exact(self, dtype: torch.dtype) -> None:
        numbers = torch.stack([random(5, seed=1) * 10.0**power for power in (-30, 0, 30)]).to(dtype)
        exponent = exponents(numbers)
        assert exponent[1] == 0
        if dtype == F32:
            assert (scaled(numbers, -exponent).abs().amax(1)[[0, 2]] >= 0.5).all()
        assert torch.equal(scaled(scaled(numbers, -exponent), exponent), numbers)

    def test_powers_beyond_the_largest(self) -> None:
        smallest = torch.tensor([[5e-324]], dtype=F64)
        assert exponents(smallest).item() == -1073
        assert scaled(smallest, 1073).item() == 0.5
        assert upper(torch.tensor([[1e-10]], dtype=F64), -1074).item() > 0
        assert upper(torch.tensor([[0.0]], dtype=F64), -1074).item() == 0

    def test_what_underflows_in_a_product_does_not_in_a_fresh_one(self) -> None:
        A = Chain(*[1e-12 * torch.eye(4)] * 5)  # 1e-60 in float32
        assert (A.matmat(torch.ones(1, 4, 1)) == 0).all()
        fresh = fresh_products(A.matmat, torch.ones(1, 4, 1), torch.tensor([-125], device="cpu"))
        assert (scaled(fresh, -125) / 1e-60 - 1).abs().max() < 1e-5
        unit = InUnit.of(A, torch.ones(1, 4, 1))
        assert (unit.exponent.item(), unit.lost.item()) == (-199, 0)
        from_the_left = Chain(1e-30 * torch.eye(4), 1e-30 * torch.eye(4), 1e30 * torch.eye(4))
        assert InUnit.of(from_the_left, torch.ones(1, 4, 1), torch.ones(1, 4, 1)).lost.item() > 0
        assert InUnit.of(Dense(1e-30 * torch.eye(4)), torch.ones(1, 4, 1)).lost.item() == 0

    def test_an_operator_without_room_above_is_tried_with_less(self) -> None:
        A = Chain(1e-30 * torch.eye(4), 1e30 * torch.eye(4))
        fresh = fresh_products(A.matmat, torch.ones(1, 4, 1), torch.zeros(1, dtype=torch.long, device="cpu"))
        assert (fresh - 1).abs().max() < 1e-6


@pytest.mark.parametrize("route", ["dense", "iterative"])
@pytest.mark.parametrize(("dtype", "power"), [(F32, -36), (F32, -30), (F32, 20), (F32, 36), (F64, -300), (F64, 300)])
def test_eigenvalues_and_triplets(dtype: torch.dtype, power: int, route: Any) -> None:
    factor = 10.0**power
    H = Dense((rotated(VALUES, seed=3) * factor).to(dtype))
    for which, expected in (("largest", VALUES[:, :4]), ("smallest", VALUES[:, -4:].flip(1))):
        pairs = ss.eigs(H, 4, which=which, route=route)  # type: ignore[arg-type]
        triplets = ss.svd(H, 4, which=which, route=route)  # type: ignore[arg-type]
        for found, residuals, converged in (
            (pairs.values, pairs.residuals, pairs.converged),
            (triplets.S, triplets.residuals, triplets.converged),
        ):
            assert converged.all()
            assert (found.double() / factor - expected).abs().max() < 1e-4 * (1 if dtype == F32 else 1e-6)
            assert (residuals.double() / factor < (3e-5 if dtype == F32 else 1e-10)).all()
            assert (residuals > 0).all()


def test_curvature_of_a_large_loss() -> None:
    torch.manual_seed(0)
    model, x = nn.Linear(20, 6), torch.randn(40, 20)
    y = torch.randint(0, 6, (40,))
    loss = nn.CrossEntropyLoss()

    def large(output: Tensor, target: Tensor) -> Tensor:
        return 1e25 * loss(output, target)

    plain, scaled_up = (
        ss.curvature(model, function, [(x, y)], route="lanczos", k=3, density=False) for function in (loss, large)
    )
    assert bool(scaled_up["converged"].all())
    ratio = scaled_up["value"].values[:3] / plain["value"].values[:3]
    assert abs(ratio / 1e25 - 1).max() < 1e-4


def test_unequal_samples_do_not_share_a_scale() -> None:
    matrix = rotated(VALUES, seed=5)[0]
    H = Dense(torch.stack([matrix * 1e-30, matrix, matrix * 1e30]).float())
    found = ss.eigs(H, 3, route="iterative")
    assert found.converged.all()
    assert (found.values / torch.tensor([[1e-30], [1.0], [1e30]]) - VALUES[:, :3].float()).abs().max() < 1e-4
    crooked = torch.stack([torch.eye(60) * 1e20, random(60, 60, seed=1).float()])
    with pytest.raises(InputError, match="symmetric"):
        ss.spectral_density(Dense(crooked), symmetric=True)


class TestFullSpectra:
    @pytest.mark.parametrize("route", ["gram", "svd", "auto"])
    @pytest.mark.parametrize("power", [-320, -300, -165, -160, 160, 300])
    def test_any_scale(self, power: int, route: Any) -> None:
        unit = scaled(from_values(VALUES[:, :20], 25, 20, seed=1), 0)
        matrix = unit * 1e-160 * 1e-160 if power == -320 else unit * 10.0**power
        found = ss.singular_values(Dense(matrix), route=route)
        exponent = exponents(matrix)
        expected = scaled(torch.linalg.svdvals(scaled(matrix, -exponent)), exponent).cpu()
        assert ((found.values - expected).abs() <= found.bound).all()
        assert (found.bound[:, 0] <= max(1e-6 * expected[0, 0], 5e-324)).all()
        assert found.rank.tolist() == [20]
        assert found.zeros_at_least.tolist() == [0]

    def test_values_beyond_float64_are_refused(self) -> None:
        with pytest.raises(InputError, match="larger than float64 can hold"):
            ss.singular_values(Dense(torch.full((30, 30), 1e308, dtype=F64)))

    def test_zeros_by_underflow_are_not_proved(self) -> None:
        """1e-60 in float32: every entry is zero, none of the values is."""
        A = Chain(*[1e-12 * torch.eye(4)] * 5)
        found = ss.singular_values(A)
        assert found.zeros_at_least.tolist() == [0]
        assert found.zeros.isnan().all()
        assert ((found.values - 1e-60).abs() <= found.bound).all()
        status = ss.condition_number(A)[0].status
        assert status == "numerically infinite"

    def test_a_zero_row_beside_small_ones_is_proved(self) -> None:
        dead = torch.diag(torch.tensor([1.0, 1.0, 0.0, 1.0]))
        found = ss.singular_values(Chain(dead, 1e-18 * torch.eye(4), 1e-18 * torch.eye(4)))
        assert found.zeros_at_least.tolist() == [1]
        assert found.zeros.tolist() == [1]

    def test_one_row_that_underflows(self) -> None:
        mixed = torch.diag(torch.tensor([1.0, 1e-25]))
        found = ss.singular_values(Chain(mixed, mixed))
        assert found.zeros_at_least.tolist() == [0]
        assert abs(found.values[0, 1] - 1e-50) <= found.bound[0, 1]


class TestUnderflowIsFlagged:
    """The iteration sees only zeros, or a part of the operator; fresh products see more."""

    A = Chain(*[1e-12 * torch.eye(40)] * 5)

    @pytest.mark.parametrize("route", ["dense", "iterative"])
    def test_triplets_and_pairs(self, route: Any) -> None:
        assert not ss.svd(self.A, 2, route=route).converged.any()
        assert not ss.eigs(self.A, 2, route=route).converged.any()

    def test_a_density_is_float64_and_can_hold_what_the_products_cannot(self) -> None:
        density = ss.spectral_density(self.A)
        assert density.moment(1).value.item() == pytest.approx(1e-60, rel=1e-4)
        assert density.mass_at(0).value.item() == 0

    def test_density_of_products_that_underflow_from_one_side_alone(self) -> None:
        A = Chain(1e-30 * torch.eye(40), 1e-30 * torch.eye(40), 1e30 * torch.eye(40))
        for operator in (A, A.T):
            with pytest.raises(InputError, match="underflow"):
                ss.spectral_density(operator)

    def test_inertia_widens_its_tolerance(self) -> None:
        counts = ss.inertia(self.A)
        assert counts.tolerance.item() >= 1e-60
        assert counts.zero.item() == 40

    def test_a_result_that_its_type_cannot_hold(self) -> None:
        small, large = Dense(1e-30 * torch.eye(3)) @ Dense(1e-30 * torch.eye(3)), Dense(torch.full((9, 9), 3e38))
        found = ss.svd(small, 1, route="dense")
        assert not found.converged.any()
        assert found.residuals.item() > 0
        for route in ("dense", "iterative"):
            found = ss.svd(large, 1, route=route)  # type: ignore[arg-type]
            assert not found.converged.any()
            assert found.residuals.isinf().all()


class TestDensities:
    def test_a_fifth_at_zero_in_float32(self) -> None:
        values = torch.cat([torch.linspace(1, 0.5, 40), torch.zeros(10)]).double()[None]
        matrix = from_values(values, 50, 50, seed=1)
        small, plain = (ss.spectral_density(Dense((matrix * factor).float())) for factor in (1e-30, 1.0))
        assert abs(small.mass_at(0).value - plain.mass_at(0).value) < 1e-3
        assert abs(small.mass_at(0).value - 0.2) < 0.1
        assert small.moment(1).value.item() == pytest.approx(1e-30 * plain.moment(1).value.item(), rel=1e-4)

    @pytest.mark.parametrize("power", [-120, 120])
    def test_moments_and_their_errors(self, power: int) -> None:
        matrix = from_values(VALUES, 60, 60, seed=1)
        factor = 10.0**power
        far, plain = ss.spectral_density(Dense(matrix * factor)), ss.spectral_density(Dense(matrix))
        for order in (1, 2):
            found, expected = far.moment(order), plain.moment(order)
            for name in ("value", "standard_error"):
                ratio = getattr(found, name).item() / factor**order / getattr(expected, name).item()
                assert ratio == pytest.approx(1, rel=1e-9)
        with pytest.raises(InputError, match="beyond the range"):
            far.moment(4)
        assert far.mass_at(factor).value.item() == pytest.approx(plain.mass_at(1.0).value.item(), rel=1e-9)
        assert far.count(0, 0.45 * factor).value.item() == pytest.approx(plain.count(0, 0.45).value.item(), rel=1e-9)
        assert far.density.isfinite().all()

    def test_no_mass_far_away(self) -> None:
        density = ss.spectral_density(Dense(from_values(VALUES, 60, 60, seed=1) * 1e-250))
        assert density.mass_at(1.0).value.item() == 0


class TestConditions:
    @pytest.mark.parametrize("power", [-320, -300, 300])
    def test_any_scale(self, power: int) -> None:
        matrix = torch.diag(torch.tensor([4.0, 2.0, 1.0], dtype=F64))
        scale = 2.0 ** int(power * 3.32)
        found = ss.condition_number(matrix * scale)
        assert (found.value, found.status, found.rank) == (4, "finite", 3)
        twice = ss.condition_number((matrix * scale)[None].expand(2, 3, 3), reduce="mode")
        # Two equal slices: the second value is exactly zero on a CPU, and off by rounding on a GPU.
        assert twice.status == ("infinite" if matrix.device.type == "cpu" else "numerically infinite")

    def test_conversion_does_not_underflow(self) -> None:
        matrix = 1e-50 * torch.diag(torch.tensor([4.0, 1.0], dtype=F64))
        found = ss.condition_number(matrix, dtype=F32)
        assert (found.value, found.status, found.zero_slices) == (4, "finite", (0, 0))

    def test_too_small_beside_the_largest_is_not_zero(self) -> None:
        found = ss.condition_number(torch.diag(torch.tensor([1e300, 1e-300], dtype=F64)))
        assert found.status == "numerically infinite"


def test_factors_that_float32_cannot_hold() -> None:
    A = Dense(1e30 * torch.eye(3))
    for factor, expected in ((1e-50, 1e-20), (1e-42, 1e-12)):
        assert (factor * A).matmat(torch.eye(3)[None])[0, 0, 0].item() == pytest.approx(expected, rel=1e-6)
