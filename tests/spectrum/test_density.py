"""Spectral densities against every probe's own measure (dense, exact), closed forms and limit laws.

A probe v sees value i with the weight (v_i^T v)^2. With that as the reference, quadrature is tested without
statistics; the mean over probes is then compared with the spectrum at 4 standard errors plus the stated bias.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from skipscope.errors import InputError
from skipscope.linear.operator import Dense, Operator
from skipscope.spectrum.density import Density, Estimate, spectral_density
from skipscope.spectrum.quadrature import random_signs
from tests import seeded
from tests.seeded import generator

F64 = torch.float64


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = F64) -> Tensor:
    return torch.randn(*shape, generator=seeded.generator(seed), dtype=F64).to(dtype)


def plateau(n: int, rank: int, zeros: int = 0, seed: int = 0) -> Tensor:
    """D (I + U V^T), D with zeros on its diagonal: n - zeros - 2 rank values 1 and `zeros` values 0, generically."""
    matrix = torch.eye(n, dtype=F64) + normal(n, rank, seed=seed) @ normal(rank, n, seed=seed + 1) / math.sqrt(n * rank)
    matrix[:zeros] = 0
    return matrix


def own_measure(matrix: Tensor, density: Density) -> tuple[np.ndarray, np.ndarray]:
    """The values of a matrix and each probe's weights on them, (probes, values), from a dense decomposition."""
    if density.symmetric:
        values, vectors = np.linalg.eigh(matrix.cpu().numpy())
    else:
        tall = matrix if matrix.shape[0] >= matrix.shape[1] else matrix.T
        _, values, transposed = np.linalg.svd(tall.cpu().numpy(), full_matrices=False)
        vectors = transposed.T
    probes = random_signs(vectors.shape[0], density.probes, density.seed).cpu().numpy()
    return values, (probes @ vectors) ** 2


def within(estimate: Estimate, truth: float, extra: float = 0.0) -> bool:
    error, bias = float(estimate.standard_error[0]), float(estimate.bias[0])
    return abs(float(estimate.value[0]) - truth) <= 4 * error + bias + extra + 1e-12


class Convolution(Operator):
    """A circular convolution of 1-channel images with a 3 x 3 kernel."""

    def __init__(self, kernel: Tensor, size: int) -> None:
        self.kernel, self.size, self.name = kernel, size, "convolution"
        self.shape = (1, size**2, size**2)
        self.dtype, self.device = kernel.dtype, kernel.device

    def _apply(self, kernel: Tensor, block: Tensor) -> Tensor:
        images = block[0].T.reshape(-1, 1, self.size, self.size)
        padded = torch.nn.functional.pad(images, (1, 1, 1, 1), mode="circular")
        return torch.nn.functional.conv2d(padded, kernel[None, None]).flatten(1).T[None]

    def _matmat(self, V: Tensor) -> Tensor:
        return self._apply(self.kernel, V)

    def _rmatmat(self, U: Tensor) -> Tensor:
        return self._apply(self.kernel.flip(0, 1), U)

    def take(self, samples: Sequence[int]) -> Operator:
        return self


class Hungry(Dense):
    """Has memory for a block of at most `most` vectors."""

    most = 3

    def _matmat(self, V: Tensor) -> Tensor:
        if V.shape[2] > self.most:
            raise torch.OutOfMemoryError("no memory")
        return super()._matmat(V)


class TestExactCases:
    @pytest.mark.parametrize("symmetric", [False, True])
    def test_diagonal(self, symmetric: bool) -> None:
        # Random signs put the same weight on every unit vector: no variance at all.
        numbers = torch.tensor([-3.0, -1.0, 0.5, 2.0, 4.0], dtype=F64)
        density = spectral_density(Dense(torch.diag(numbers)), symmetric=symmetric)
        expected = sorted(numbers.tolist() if symmetric else numbers.abs().tolist())
        np.testing.assert_allclose(density.nodes[0], np.tile(expected, (8, 1)), atol=1e-13)
        np.testing.assert_allclose(density.weights[0], 0.2, atol=1e-13)
        assert density.exact.all()
        assert (density.steps, density.probes) == (5, 8)

    @pytest.mark.parametrize("dtype", [torch.float32, F64])
    def test_orthogonal(self, dtype: torch.dtype) -> None:
        matrix = torch.linalg.qr(normal(50, 50)).Q.to(dtype)
        density = spectral_density(Dense(matrix))
        one = density.mass_at(1.0)
        assert float(one.value) == pytest.approx(1, abs=1e-12)
        assert (float(one.bias), bool(density.exact.all())) == (0, True)
        assert density.products == 2 * 8  # one step shows that there is no second value
        assert float(density.mass_at(0.0).value) == pytest.approx(0, abs=1e-12)

    @pytest.mark.parametrize("symmetric", [False, True])
    @pytest.mark.parametrize("n", [1, 2, 30])
    def test_all_zero(self, n: int, symmetric: bool) -> None:
        density = spectral_density(Dense(torch.zeros(n, n)), symmetric=symmetric)
        for estimate in (density.mass_at(0.0), density.count(0, 0), density.mass_at(0.0, 0.1)):
            assert (float(estimate.value), float(estimate.bias)) == (pytest.approx(1, abs=1e-14), 0)
        assert float(density.moment(2).value) == 0
        assert density.density.isfinite().all()

    @pytest.mark.parametrize("number", [2.5, -2.5])
    def test_one_by_one(self, number: float) -> None:
        matrix = torch.tensor([[number]], dtype=F64)
        assert spectral_density(Dense(matrix)).nodes.flatten().tolist() == [2.5] * 8
        assert spectral_density(Dense(matrix), symmetric=True).nodes.flatten().tolist() == [number] * 8

    @pytest.mark.parametrize("shape", [(7, 1), (1, 7)])
    def test_a_single_vector(self, shape: tuple[int, int]) -> None:
        vector = normal(*shape)
        density = spectral_density(Dense(vector))
        assert density.nodes.flatten().tolist() == pytest.approx([float(vector.norm())] * 8, rel=1e-14)

    @pytest.mark.parametrize("zeros", [0, 40])
    def test_few_distinct_values_end_the_recurrence(self, zeros: int) -> None:
        n, rank = 200, 5
        matrix = plateau(n, rank, zeros)
        density = spectral_density(Dense(matrix))
        values, weights = own_measure(matrix, density)
        assert density.exact.all()
        assert density.products <= 8 * 2 * (2 * rank + 3)
        np.testing.assert_allclose(density.weights.sum(-1), 1, rtol=1e-13)
        for value, count in [(1.0, n - zeros - 2 * rank), (0.0, zeros)]:
            at = np.abs(values - value) < 1e-9
            assert at.sum() == count
            mass = density.mass_at(value)
            assert float(mass.value) == pytest.approx(weights[:, at].sum(1).mean(), abs=1e-11)  # quadrature
            assert float(mass.bias) == 0
            assert within(mass, count / n)  # probes
            close = density.mass_at(value, 1e-6)
            assert float(close.value) == pytest.approx(float(mass.value), abs=1e-13)

    def test_symmetric_low_rank_plus_identity(self) -> None:
        factor = normal(120, 4)
        matrix = 2 * torch.eye(120, dtype=F64) - factor @ factor.T / 50
        density = spectral_density(Dense(matrix), symmetric=True)
        values, weights = own_measure(matrix, density)
        assert density.exact.all()
        assert within(density.mass_at(2.0), 116 / 120)
        at = np.abs(values - 2) < 1e-9
        assert float(density.mass_at(2.0).value) == pytest.approx(weights[:, at].sum(1).mean(), abs=1e-11)
        below = density.count(-100, 1.99)
        assert float(below.value) == pytest.approx(weights[:, ~at].sum(1).mean(), abs=1e-11)


class TestRectangular:
    @pytest.mark.parametrize(("m", "n"), [(20, 33), (33, 20)])
    def test_extra_zeros_of_the_longer_side_are_not_counted(self, m: int, n: int) -> None:
        matrix = normal(m, n)
        density = spectral_density(Dense(matrix), probes=4)
        values = np.linalg.svd(matrix.cpu().numpy(), compute_uv=False)
        assert density.exact.all()
        for probe in range(4):
            np.testing.assert_allclose(density.nodes[0, probe], values[::-1], rtol=1e-10)
        assert float(density.mass_at(0.0).value) == pytest.approx(0, abs=1e-20)
        assert float(density.count(0, 100).value) == pytest.approx(1, abs=1e-13)

    def test_transposes_agree(self) -> None:
        matrix = normal(25, 60)
        one, other = spectral_density(Dense(matrix), steps=10), spectral_density(Dense(matrix.T.contiguous()), steps=10)
        np.testing.assert_allclose(one.nodes, other.nodes, rtol=1e-10)
        np.testing.assert_allclose(one.weights, other.weights, atol=1e-10)

    @pytest.mark.parametrize(("m", "n"), [(60, 90), (90, 60)])
    def test_zeros_of_the_shorter_side_are(self, m: int, n: int) -> None:
        matrix = normal(m, n)
        (matrix[:15] if m < n else matrix[:, :15]).zero_()
        density = spectral_density(Dense(matrix), steps=30)
        zero = density.mass_at(0.0)
        # Random signs see the 15 unit vectors of the null space with exactly 15/60, whatever the probe.
        assert float(zero.value) == pytest.approx(0.25, abs=float(zero.bias) + 1e-12)
        assert float(zero.bias) < 0.01


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("zeros", [0, 60])
def test_atoms_amid_other_values(zeros: int, dtype: torch.dtype) -> None:
    # More distinct values than steps, around 1 and between 0 and 1: the atoms have to be told from them.
    n, rank = 400, 60
    matrix = plateau(n, rank, zeros, seed=3)
    density = spectral_density(Dense(matrix.to(dtype)))
    values, weights = own_measure(matrix, density)
    assert not density.exact.any()
    for value, count in [(1.0, n - zeros - 2 * rank), (0.0, zeros)]:
        at = np.abs(values - value) < 1e-9
        assert at.sum() == count
        mass = density.mass_at(value)
        assert float(mass.value) == pytest.approx(weights[:, at].sum(1).mean(), abs=float(mass.bias) + 1e-4)
        assert float(mass.bias) < 0.01
        assert within(mass, count / n)


@pytest.mark.parametrize("factor", [0.5, 3.0])
def test_an_atom_moves_with_the_scale(factor: float) -> None:
    density = spectral_density(Dense(factor * plateau(300, 50, 30)), steps=48)
    same = spectral_density(Dense(plateau(300, 50, 30)), steps=48)
    assert not density.exact.any()
    for value in (0.0, 0.6, 1.0):
        moved, here = density.mass_at(factor * value), same.mass_at(value)
        assert float(moved.value) == pytest.approx(float(here.value), abs=1e-9)
        assert float(moved.bias) == pytest.approx(float(here.bias), abs=1e-9)
    assert within(density.mass_at(factor), 170 / 300)


def test_no_atom_is_seen_where_there_is_none() -> None:
    matrix = normal(600, 600) / math.sqrt(600)  # values fill [0, 2], densest at 0
    density = spectral_density(Dense(matrix))
    for value in (0.0, 0.7, 1.0):
        mass = density.mass_at(value)
        assert within(mass, 0)
        assert float(mass.value) < 0.01
        # What the steps cannot resolve is said.
        assert 0.005 < float(mass.bias) < 0.05


class TestLimitLaws:
    def test_semicircle(self) -> None:
        n = 500
        matrix = normal(n, n, seed=5)
        matrix = (matrix + matrix.T) / math.sqrt(2 * n)
        density = spectral_density(
            Dense(matrix), symmetric=True, probes=64
        )  # 16 leave the largest of 256 errors to the tails of Student's t
        values = np.linalg.eigvalsh(matrix.cpu().numpy())

        def law(x: float) -> float:
            x = min(max(x, -2.0), 2.0)
            return 0.5 + x * math.sqrt(4 - x * x) / (4 * math.pi) + math.asin(x / 2) / math.pi

        for low, high in [(-1.0, 0.0), (0.3, 1.3), (-3.0, 3.0), (1.5, 3.0)]:
            share = density.count(low, high)
            assert within(share, ((values >= low) & (values <= high)).mean())
            assert within(share, law(high) - law(low), extra=2 / n)
            assert float(share.bias) < 0.06
        for order, catalan in [(1, 0), (2, 1), (3, 0), (4, 2), (6, 5)]:
            moment = density.moment(order)
            assert within(moment, (values**order).mean())
            assert within(moment, catalan, extra=6 * catalan / n)
            assert float(moment.bias) < 1e-12  # polynomials of this degree are exact
        smoothed = np.exp(-0.5 * ((density.values.cpu().numpy()[:, None] - values) / density.width) ** 2).mean(1)
        smoothed /= density.width * math.sqrt(2 * math.pi)
        error = (density.density[0].cpu().numpy() - smoothed) / (density.standard_error[0] + 1e-3).cpu().numpy()
        assert np.abs(error).max() < 5
        assert np.sqrt((error**2).mean()) < 1.5

    @pytest.mark.parametrize("ratio", [0.25, 0.5])
    def test_marchenko_pastur(self, ratio: float) -> None:
        m = 800
        n = int(m * ratio)
        matrix = normal(m, n, seed=7) / math.sqrt(m)
        density = spectral_density(Dense(matrix), probes=16)
        low_edge, high_edge = 1 - math.sqrt(ratio), 1 + math.sqrt(ratio)
        grid = np.linspace(low_edge, high_edge, 20001)
        inside = np.clip((high_edge**2 - grid**2) * (grid**2 - low_edge**2), 0, None)
        cumulative = np.cumsum(np.sqrt(inside) / (math.pi * ratio * grid)) * (grid[1] - grid[0])
        assert cumulative[-1] == pytest.approx(1, abs=1e-4)
        values = np.linalg.svd(matrix.cpu().numpy(), compute_uv=False)
        for low, high in [(0.0, 0.8), (0.8, 1.2), (1.2, 2.0)]:
            share = density.count(low, high)
            law = np.interp(high, grid, cumulative) - np.interp(low, grid, cumulative)
            assert within(share, ((values >= low) & (values <= high)).mean())
            assert within(share, float(law), extra=3 / n)
        assert within(density.moment(2), 1.0, extra=4 / n)
        assert within(density.moment(4), 1.0 + ratio, extra=8 / n)

    def test_convolution_by_its_fourier_symbol(self) -> None:
        kernel, size = normal(3, 3, seed=2), 20
        offsets = np.arange(-1, 2)
        waves = np.exp(2j * np.pi * np.outer(np.arange(size), offsets) / size)
        values = np.abs(waves @ kernel.cpu().numpy() @ waves.T).ravel()
        density = spectral_density(Convolution(kernel, size), probes=16)
        for low, high in [(0.0, 1.0), (1.0, 2.5), (2.5, 4.0), (0.0, 20.0)]:
            assert within(density.count(low, high), ((values >= low) & (values <= high)).mean())
        for order in (1, 2, 4):
            assert within(density.moment(order), (values**order).mean())


class TestErrorsAreHonest:
    def test_counts_of_forty_operators(self) -> None:
        """The quadrature against the probes' own measures within the bias, and against the spectrum within both."""
        outside, total, biases = 0, 0, []
        for seed in range(40):
            kind = seed % 4
            if kind == 0:
                matrix = plateau(150, 30, 20, seed=seed)
            elif kind == 1:
                matrix = normal(150, 120, seed=seed) / math.sqrt(150)
            elif kind == 2:
                matrix = torch.diag(torch.linspace(0, 2, 150, dtype=F64)) + 0.1 * normal(150, 150, seed=seed)
            else:
                matrix = plateau(150, 40, seed=seed) @ plateau(150, 5, 40, seed=seed + 500)
            density = spectral_density(Dense(matrix), steps=32, probes=12, seed=seed)
            values, weights = own_measure(matrix, density)
            for low, high in [(0.0, 0.5), (0.4, 0.9), (0.95, 1.05), (1.1, 3.0)]:
                inside = (values >= low - 1e-9) & (values <= high + 1e-9)
                share = density.count(low, high)
                own = weights[:, inside].sum(1).mean()
                assert abs(float(share.value) - own) <= float(share.bias) + 1e-9
                outside += not within(share, inside.mean())
                total += 1
                biases.append(float(share.bias))
        # Student's t with 11 degrees of freedom is beyond 4 in 0.2 % of the cases, before the bias.
        assert outside <= 0.01 * total
        assert np.mean(biases) < 0.08  # and the bound is no emptier than the steps: two or three of 32 nodes

    @pytest.mark.parametrize("symmetric", [False, True])
    def test_every_interval_that_ends_at_a_node(self, symmetric: bool) -> None:
        """The worst intervals there are. A jump of the density by 20, and no variance: the matrix is diagonal."""
        values = torch.cat([torch.linspace(0.1, 1, 41, dtype=F64)[:-1], torch.linspace(1, 1.5, 440, dtype=F64)])
        density = spectral_density(Dense(torch.diag(values)), symmetric=symmetric, steps=14, probes=2)
        nodes = density.nodes[0, 0].tolist()
        too_much = missing = 0
        for i, low in enumerate(nodes):
            for high in nodes[i:]:
                for inward in (-1e-9, 1e-9):  # the nodes themselves belong to it, or not
                    if low + inward > high - inward:
                        continue
                    share = density.count(low + inward, high - inward)
                    error = float(share.value) - float(((values >= low) & (values <= high)).double().mean())
                    # Half of the steps double a weight among dense values only in the limit; and 1/480 is one value.
                    assert abs(error) <= 1.05 * float(share.bias) + 1 / 480
                    too_much, missing = max(too_much, error), max(missing, -error)
        assert too_much > 0.02
        assert missing > 0.02

    def test_second_moment_is_the_length_of_the_product(self) -> None:
        matrix = normal(40, 30)
        density = spectral_density(Dense(matrix), steps=3)
        lengths = (matrix.cpu() @ random_signs(30, 8, 0).T).norm(dim=0) ** 2
        moment = density.moment(2)
        assert float(moment.value) == pytest.approx(float(lengths.mean()), rel=1e-13)
        assert float(moment.standard_error) == pytest.approx(float(lengths.std()) / math.sqrt(8), rel=1e-10)
        assert within(moment, float((matrix**2).sum()) / 30)

    def test_odd_moments_have_a_bias_that_steps_reduce(self) -> None:
        matrix = normal(300, 300) / math.sqrt(300)
        few, many = (spectral_density(Dense(matrix), steps=steps).moment(1) for steps in (8, 64))
        assert 0 < float(many.bias) < float(few.bias) / 10
        density = spectral_density(Dense(matrix), steps=8)
        values, weights = own_measure(matrix, density)
        assert abs(float(few.value) - (weights @ values).mean()) <= float(few.bias)

    def test_integrals_of_the_smoothed_density(self) -> None:
        density = spectral_density(Dense(normal(100, 100)), steps=20, points=2001)
        assert float(torch.trapezoid(density.density[0], density.values)) == pytest.approx(1, abs=1e-3)
        assert density.values.shape == (2001,)
        assert density.standard_error.shape == density.bias.shape == density.density.shape == (1, 2001)
        grid = torch.linspace(0, 5, 11)
        chosen = spectral_density(Dense(normal(100, 100)), steps=20, points=grid, width=0.3)
        assert chosen.values.tolist() == grid.double().tolist()
        assert chosen.width == 0.3


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    m=st.integers(1, 12),
    n=st.integers(1, 12),
    rank=st.integers(0, 12),
    steps=st.integers(1, 14),
    seed=st.integers(0, 10**6),
    dtype=st.sampled_from([torch.float32, F64]),
)
def test_any_shape_and_rank(m: int, n: int, rank: int, steps: int, seed: int, dtype: torch.dtype) -> None:
    """Weights are a probability measure whose first moments are the probes' own; all of them, once it is exact."""
    rank = min(rank, m, n)
    matrix = (normal(m, rank, seed=seed) @ normal(rank, n, seed=seed + 1)).to(dtype)
    density = spectral_density(Dense(matrix), probes=3, steps=steps, seed=seed)
    values, weights = own_measure(matrix.double(), density)
    tolerance = 1e3 * torch.finfo(dtype).eps
    assert density.steps == min(steps, m, n)
    np.testing.assert_allclose(density.weights.sum(-1), 1, atol=1e-12)
    scale = max(values[0], 1e-300)
    for order in range(0, 4 * density.steps - 1, 2):
        got = (density.weights * (density.nodes / scale) ** order).sum(-1)[0].cpu().numpy()
        np.testing.assert_allclose(got, (weights * (values / scale) ** order).sum(1), atol=tolerance * (order + 1))
    if steps >= min(m, n):
        assert density.exact.all()
        for low, high in [(-0.1, 0.3), (0.3, 0.7)]:
            if np.abs(values / scale - high).min() < 1e-3:
                continue  # too near the edge for rounding
            inside = (values >= low * scale) & (values < high * scale)
            if low > 0 and np.abs(values / scale - low).min() < 1e-3:
                continue
            share = density.count(low * scale, high * scale)
            assert float(share.value) == pytest.approx(weights[:, inside].sum(1).mean(), abs=100 * tolerance)
            assert float(share.bias) == 0


class TestBatches:
    def test_a_sample_does_not_depend_on_its_batch(self) -> None:
        matrices = torch.stack(
            [plateau(40, 2), torch.zeros(40, 40, dtype=F64), normal(40, 40), torch.eye(40, dtype=F64)]
        )
        together = spectral_density(Dense(matrices), steps=20)
        for sample in range(4):
            alone = spectral_density(Dense(matrices[sample]), steps=20)
            np.testing.assert_allclose(together.nodes[sample], alone.nodes[0], atol=1e-10)
            for value in (0.0, 1.0):
                one, all_of_them = alone.mass_at(value), together.mass_at(value)
                assert float(all_of_them.value[sample]) == pytest.approx(float(one.value[0]), abs=1e-9)
        assert together.exact.all(1).tolist() == [True, True, False, True]
        assert together.mass_at(1.0).value.shape == (4,)

    def test_products_are_counted(self) -> None:
        assert spectral_density(Dense(normal(3, 50, 50)), probes=4, steps=10).products == 4 * (2 * 10 - 1)
        matrix = normal(3, 50, 50)
        assert spectral_density(Dense(matrix + matrix.mT), symmetric=True, probes=4, steps=10).products == 4 * 10

    def test_memory_runs_out(self) -> None:
        matrix = normal(2, 30, 20)
        plenty, little = (spectral_density(kind(matrix), probes=7, steps=9) for kind in (Dense, Hungry))
        np.testing.assert_allclose(little.nodes, plenty.nodes, rtol=1e-10)
        assert little.products == plenty.products
        Hungry.most = 0
        with pytest.raises(torch.OutOfMemoryError):
            spectral_density(Hungry(matrix))
        Hungry.most = 3

    def test_seeds(self) -> None:
        torch.manual_seed(1)
        state = torch.get_rng_state()
        one, same, other = (spectral_density(Dense(normal(30, 30)), steps=5, seed=seed) for seed in (4, 4, 5))
        assert torch.equal(torch.get_rng_state(), state)
        assert torch.equal(one.nodes, same.nodes)
        assert not torch.equal(one.nodes, other.nodes)

    def test_gradients_are_left_alone(self) -> None:
        weight = normal(10, 10).requires_grad_()
        assert not spectral_density(Dense(weight)).nodes.requires_grad


@pytest.mark.parametrize(
    ("matrix", "options", "message"),
    [
        (normal(4, 3), {"symmetric": True}, "4 x 3"),
        (normal(40, 40), {"symmetric": True}, "is not: v.T A w and w.T A v differ"),
        (normal(4, 0), {}, "no entries"),
        (torch.ones(2, 2, dtype=torch.int64), {}, "float32 or float64"),
        (torch.ones(2, 2, dtype=torch.bfloat16), {}, r"A.double\(\)"),
        (normal(4, 4), {"probes": 1}, "probes >= 2"),
        (normal(4, 4), {"steps": 0}, "steps >= 1"),
        (normal(4, 4), {"width": 0.0}, "positive width"),
        (normal(4, 4), {"width": math.nan}, "positive width"),
        (normal(4, 4), {"points": 1}, "2 points or more"),
        (normal(4, 4), {"points": torch.ones(2, 2)}, "a grid of shape"),
        (torch.tensor([[[1.0]], [[math.nan]]]), {}, r"matrix have NaN or infinite entries for samples \[1\]"),
        (torch.tensor([[[math.inf]], [[1.0]]]), {"symmetric": True}, r"for samples \[0\]"),
    ],
)
def test_bad_input(matrix: Tensor, options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        spectral_density(Dense(matrix), **options)


def test_bad_questions() -> None:
    density = spectral_density(Dense(normal(4, 4)))
    with pytest.raises(InputError, match="low <= high"):
        density.count(2, 1)
    with pytest.raises(InputError, match="tolerance of 0 or more"):
        density.mass_at(1.0, -0.1)
    with pytest.raises(InputError, match="never negative"):
        density.mass_at(-1.0)
    with pytest.raises(InputError, match="order of 1 or more"):
        density.moment(0)


def test_a_float32_operator_seen_as_float64_is_as_coarse_as_it_is() -> None:
    """What `double()` gives where an operator cannot be evaluated in float64."""

    class Single(Dense):
        def double(self) -> Operator:
            return Operator.double(self)

    Q = torch.linalg.qr(torch.randn(60, 60, generator=generator(0)))[0]
    values = torch.cat([torch.ones(40), torch.linspace(2, 3, 20)])
    density = spectral_density(Single((Q * values) @ Q.mT).double(), steps=60)
    for share in (density.mass_at(1), density.count(1, 1)):
        error = float((share.value - 40 / 60).abs())
        assert error <= 5 * float(share.standard_error) + float(share.bias) + 1e-3
