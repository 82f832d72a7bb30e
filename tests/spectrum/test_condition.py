"""Condition numbers against closed forms, an independent HOSVD core, and the paper's way of writing infinity."""

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
from skipscope.spectrum.condition import condition_number, percentile_condition
from tests import seeded

F64 = torch.float64


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = F64) -> Tensor:
    return torch.randn(*shape, generator=seeded.generator(seed), dtype=F64).to(dtype)


def orthogonal(n: int, seed: int = 0) -> Tensor:
    return torch.linalg.qr(normal(n, n, seed=seed)).Q


def with_values(values: Sequence[float], m: int, n: int, seed: int = 0) -> Tensor:
    """An m x n matrix with these singular values."""
    k = len(values)
    return orthogonal(m, seed)[:, :k] @ torch.diag(torch.tensor(values, dtype=F64)) @ orthogonal(n, seed + 1)[:, :k].mT


def he_normal(*shape: int, seed: int = 0) -> Tensor:
    return normal(*shape, seed=seed) * math.sqrt(2 / math.prod(shape[1:]))


class Convolution(Operator):
    """A circular 3 x 3 convolution between images, by its kernel (Cout, Cin, 3, 3)."""

    def __init__(self, kernel: Tensor, size: int) -> None:
        self.kernel, self.size, self.name = kernel, size, "convolution"
        self.shape = (1, kernel.shape[0] * size**2, kernel.shape[1] * size**2)
        self.dtype, self.device = kernel.dtype, kernel.device

    def _apply(self, kernel: Tensor, block: Tensor) -> Tensor:
        images = block[0].T.reshape(-1, kernel.shape[1], self.size, self.size)
        padded = torch.nn.functional.pad(images, (1, 1, 1, 1), mode="circular")
        return torch.nn.functional.conv2d(padded, kernel).flatten(1).T[None]

    def _matmat(self, V: Tensor) -> Tensor:
        return self._apply(self.kernel, V)

    def _rmatmat(self, U: Tensor) -> Tensor:
        return self._apply(self.kernel.transpose(0, 1).flip(2, 3), U)

    def take(self, samples: Sequence[int]) -> Operator:
        return self

    def double(self) -> Operator:
        return Convolution(self.kernel.double(), self.size)


class TestMatrices:
    @pytest.mark.parametrize("dtype", [torch.float32, F64])
    def test_diagonal(self, dtype: torch.dtype) -> None:
        result = condition_number(torch.diag(torch.tensor([4.0, -0.5, 2.0], dtype=dtype)))
        assert result.value == 8.0
        assert (result.status, result.rank, result.zero_slices) == ("finite", 3, (0, 0))
        assert (result.dtype, result.computed_in, result.precision) == (dtype, F64, F64)
        assert result.singular_values[0].tolist() == [4.0, 2.0, 0.5]

    def test_orthogonal(self) -> None:
        assert condition_number(orthogonal(30)).value == pytest.approx(1, abs=1e-13)

    def test_identity_plus_rank_one(self) -> None:
        # I + c u u^T with |u| = 1: one value 1 + c, all others 1.
        u = orthogonal(25)[:, :1]
        assert condition_number(torch.eye(25, dtype=F64) + 6 * u @ u.T).value == pytest.approx(7, rel=1e-13)

    @pytest.mark.parametrize(("m", "n"), [(3, 9), (9, 3), (5, 5)])
    def test_given_singular_values(self, m: int, n: int) -> None:
        result = condition_number(with_values([10.0, 3.0, 0.01], m, n))
        assert result.singular_values[0].shape == (min(m, n),)
        if min(m, n) == 3:
            assert result.value == pytest.approx(1000, rel=1e-10)
            assert (result.status, result.rank) == ("finite", 3)
        else:  # no zero slice, two zeros that only rounding sees
            assert result.status in ("numerically infinite", "infinite")
            assert (result.rank, result.zero_slices) == (3, (0, 0))

    @pytest.mark.parametrize("number", [3.0, -1e-300, 1e300])
    def test_one_by_one(self, number: float) -> None:
        result = condition_number(torch.tensor([[number]], dtype=F64))
        assert (result.value, result.status, result.rank) == (1.0, "finite", 1)

    @pytest.mark.parametrize("shape", [(1, 1), (4, 4), (2, 5), (3, 2, 4)])
    def test_all_zero(self, shape: tuple[int, ...]) -> None:
        result = condition_number(torch.zeros(shape))
        assert (result.value, result.status, result.rank) == (math.inf, "infinite", 0)
        assert result.zero_slices == shape

    def test_zero_columns_that_the_svd_misses(self) -> None:
        missed = 0
        for seed in range(20):
            matrix = normal(200, 64, seed=seed)
            matrix[:, [5, 40, 41]] = 0
            missed += bool(torch.linalg.svdvals(matrix.cpu())[-1] > 0)
            result = condition_number(matrix)
            assert (result.value, result.status, result.zero_slices) == (math.inf, "infinite", (0, 3))
            assert (result.singular_values[0] == 0).sum() == 3
        assert missed > 0  # the case that this test is about does occur

    def test_zero_rows_of_a_tall_matrix_change_nothing(self) -> None:
        matrix = normal(20, 4)
        with_zeros = torch.cat([matrix, torch.zeros(7, 4, dtype=F64)])
        result = condition_number(with_zeros)
        assert (result.status, result.rank, result.zero_slices) == ("finite", 4, (7, 0))
        assert result.value == pytest.approx(float(np.linalg.cond(matrix.cpu().numpy())), rel=1e-12)
        with_zeros[3:] = 0  # three rows are left for four columns
        assert (condition_number(with_zeros).status, condition_number(with_zeros).rank) == ("infinite", 3)

    def test_numerically_infinite_from_the_threshold_on(self) -> None:
        eps = torch.finfo(F64).eps
        for factor, status in [(0.5, "finite"), (2.0, "numerically infinite")]:
            kappa = factor / (eps * 3)
            matrix = torch.diag(torch.tensor([1.0, 1.0, 1 / kappa], dtype=F64))
            result = condition_number(matrix)
            assert result.value == pytest.approx(kappa, rel=1e-12)
            assert (result.status, result.rank) == (status, 3 if status == "finite" else 2)

    def test_precision_of_data_made_in_float32(self) -> None:
        matrix = torch.diag(torch.tensor([1.0, 1.0, 1e-8]))
        assert (condition_number(matrix).status, condition_number(matrix).rank) == ("finite", 3)
        noisy = condition_number(matrix, precision=torch.float32)
        assert (noisy.status, noisy.rank, noisy.precision) == ("numerically infinite", 2, torch.float32)
        single = condition_number(matrix, dtype=torch.float32)
        assert (single.status, single.computed_in) == ("numerically infinite", torch.float32)

    @pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
    def test_overflow(self, bad: float) -> None:
        matrix = normal(4, 3)
        matrix[2, 1] = bad
        matrix[:, 0] = 0
        result = condition_number(matrix)
        assert math.isnan(result.value)
        assert (result.status, result.rank, result.zero_slices) == ("overflow", None, (0, 1))

    def test_overflow_in_conversion(self) -> None:
        huge = torch.tensor([[1e300, 0.0], [0.0, 1.0]], dtype=F64)
        assert condition_number(huge).status == "numerically infinite"
        assert condition_number(huge, dtype=torch.float32).status == "overflow"

    def test_half_precision_is_stored_numbers(self) -> None:
        matrix = normal(6, 6).to(torch.bfloat16)
        result = condition_number(matrix)
        assert result.dtype == torch.bfloat16
        assert result.value == pytest.approx(float(np.linalg.cond(matrix.double().cpu().numpy())), rel=1e-10)


class TestOperators:
    def test_one_result_a_sample(self) -> None:
        matrices = torch.stack([with_values([k, 1.0, 0.5], 3, 7, seed=k) for k in (2, 4, 8)]).float()
        results = condition_number(Dense(matrices))
        assert [result.value for result in results] == pytest.approx([4, 8, 16], rel=1e-6)  # float32 entries
        assert {(result.dtype, result.computed_in) for result in results} == {(torch.float32, F64)}
        batch = condition_number(matrices, batched=True)
        assert [result.value for result in batch] == [result.value for result in results]

    def test_batch_with_every_status(self) -> None:
        matrices = torch.eye(3, dtype=F64).repeat(4, 1, 1)
        matrices[1, 2, 2], matrices[2, 2, 2], matrices[3, 0, 1] = 1e-17, 0, math.nan
        expected = ["finite", "numerically infinite", "infinite", "overflow"]
        assert [result.status for result in condition_number(matrices, batched=True)] == expected

    def test_convolution_by_its_fourier_symbol(self) -> None:
        kernel, size = normal(3, 2, 3, 3), 6
        grid = np.arange(size)
        values = []
        for row in grid:
            for column in grid:  # the symbol at one frequency is a Cout x Cin matrix
                phase = np.exp(2j * np.pi * (row * np.arange(-1, 2)[:, None] + column * np.arange(-1, 2)) / size)
                values.extend(np.linalg.svd((kernel.cpu().numpy() * phase).sum((2, 3)), compute_uv=False))
        (result,) = condition_number(Convolution(kernel, size))
        assert result.value == pytest.approx(max(values) / min(values), rel=1e-11)
        np.testing.assert_allclose(result.singular_values[0].cpu().numpy(), sorted(values, reverse=True), rtol=1e-11)

    def test_too_large_says_what_to_do(self) -> None:
        with pytest.raises(InputError, match=r"12 x 8.*svd\(A, k=1, which='smallest'\).*mass_at\(0\).*limit="):
            condition_number(Dense(normal(1, 12, 8)), limit=95)
        assert condition_number(Dense(normal(1, 12, 8)), limit=96)[0].status == "finite"


def core_slice_norms(tensor: np.ndarray, mode: int) -> np.ndarray:
    """Norms of the core's slices: T x_k U_k^T for all k, with U_k from the eigenvectors of the unfoldings' Gram."""
    core = tensor
    for k in range(tensor.ndim):
        axes = [axis for axis in range(tensor.ndim) if axis != k]
        vectors = np.linalg.eigh(np.tensordot(tensor, tensor, axes=(axes, axes)))[1]
        core = np.moveaxis(np.tensordot(vectors.T, core, axes=(1, k)), 0, k)
    others = tuple(axis for axis in range(tensor.ndim) if axis != mode)
    return np.sort(np.sqrt((core**2).sum(others)))[::-1]


class TestTensors:
    @pytest.mark.parametrize("shape", [(4, 3, 5), (6, 5, 3, 3), (2, 3, 2, 4, 2)])
    def test_hosvd_core(self, shape: tuple[int, ...]) -> None:
        tensor = normal(*shape)
        result = condition_number(tensor, reduce="mode")
        for mode in result.modes:
            norms = core_slice_norms(tensor.cpu().numpy(), mode.mode)
            np.testing.assert_allclose(mode.singular_values.cpu().numpy(), norms, rtol=1e-12)
            assert mode.value == pytest.approx(norms[0] / norms[-1], rel=1e-12)

    def test_separable_tensor_has_the_conditions_of_its_factors(self) -> None:
        # sum_r a_r (x) b_r (x) c_r with orthonormal a, b, c has singular values w_r in every mode.
        weights = torch.tensor([8.0, 4.0, 2.0], dtype=F64)
        tensor = torch.einsum("r,ir,jr,kr->ijk", weights, orthogonal(3, 1), orthogonal(3, 2), orthogonal(3, 3))
        for reduce in ("mode", "max", "global", "channel", "matrix"):
            assert condition_number(tensor, reduce=reduce).value == pytest.approx(4, rel=1e-12)  # type: ignore[call-overload]

    def test_reductions(self) -> None:
        tensor = he_normal(12, 6, 3, 3)
        modes = condition_number(tensor, reduce="mode").modes
        values = [mode.value for mode in modes]
        spectra = [mode.singular_values for mode in modes]
        assert [mode.shape for mode in modes] == [(12, 54), (6, 108), (3, 216), (3, 216)]
        assert condition_number(tensor).value == max(values)
        assert condition_number(tensor, leave_out=[0]).value == max(values[1:])
        assert condition_number(tensor, leave_out=[0, -3]).value == max(values[2:])
        assert condition_number(tensor, reduce="channel").value == values[0]
        assert condition_number(tensor, reduce="channel", channel=1).value == values[1]
        assert condition_number(tensor, reduce="matrix").value == values[0]
        assert values[0] == pytest.approx(float(np.linalg.cond(tensor.flatten(1).cpu().numpy())), rel=1e-12)
        largest, smallest = max(float(s[0]) for s in spectra), min(float(s[-1]) for s in spectra)
        assert condition_number(tensor, reduce="global").value == pytest.approx(largest / smallest, rel=1e-14)

    @pytest.mark.parametrize("shape", [(64, 64, 3, 3), (128, 128, 3, 3), (32, 32, 3, 3)])
    def test_he_normal_reference_values(self, shape: tuple[int, ...]) -> None:
        values = [mode.value for mode in condition_number(he_normal(*shape), reduce="mode").modes]
        assert all(1.75 <= value <= 2.05 for value in values[:2])  # the edge (1 + 1/3) / (1 - 1/3) = 2
        assert all(1.0 <= value <= 1.1 for value in values[2:])

    def test_he_normal_first_layer(self) -> None:
        # 16 rows against 27 columns: 5.1 in one draw, so the draws' quartiles lie around it.
        draws = [condition_number(he_normal(16, 3, 3, 3, seed=seed), reduce="matrix").value for seed in range(200)]
        low, high = np.quantile(draws, [0.1, 0.9])
        assert low < 5.1 < high
        assert low > 4
        assert high < 9

    def test_global_grows_with_the_imbalance_of_the_shape_alone(self) -> None:
        values = [condition_number(he_normal(c, c, 3, 3), reduce="global").value for c in (16, 32, 64, 128)]
        assert values == sorted(values)
        assert values[-1] > 2 * values[0]

    def test_dead_channel_of_states(self) -> None:
        states = normal(10, 5, 3, 3)
        states[:, 2] = 0
        result = condition_number(states, leave_out=[0])
        assert (result.value, result.status, result.rank) == (math.inf, "infinite", 4)
        assert result.zero_slices == (0, 1, 0, 0)
        # The zero slice takes columns, not rank, from the other modes.
        assert [mode.status for mode in result.modes] == ["infinite", "finite", "finite"]
        assert condition_number(states, reduce="channel", channel=1).status == "infinite"
        assert condition_number(states, reduce="global", leave_out=[1]).status == "finite"

    def test_sample_that_is_zero_counts_only_in_its_mode(self) -> None:
        states = normal(10, 5, 3, 3)
        states[7] = 0
        assert condition_number(states).status == "infinite"
        assert condition_number(states, leave_out=[0]).status == "finite"

    def test_zero_slices_that_leave_too_few_columns(self) -> None:
        # 6 x 4 x 2: mode 0 has 8 columns; three zero slices of mode 1 leave 2 of them for 6 rows.
        tensor = normal(6, 4, 2)
        tensor[:, 1:] = 0
        modes = condition_number(tensor, reduce="mode").modes
        assert [(mode.status, mode.rank) for mode in modes] == [("infinite", 2), ("infinite", 1), ("finite", 2)]

    def test_dependent_channels_are_numerically_infinite(self) -> None:
        states = normal(20, 4, 3, 3)
        states[:, 3] = states[:, 0] - 0.3 * states[:, 1]
        result = condition_number(states, leave_out=[0])
        assert (result.status, result.rank, result.zero_slices) == ("numerically infinite", 3, (0, 0, 0, 0))
        assert condition_number(states, leave_out=[0], reduce="global").status == "numerically infinite"

    def test_overflow(self) -> None:
        tensor = normal(3, 3, 3)
        tensor[0, 0, 0] = math.nan
        for reduce in ("mode", "max", "global", "channel", "matrix"):
            result = condition_number(tensor, reduce=reduce)  # type: ignore[call-overload]
            assert (result.status, result.rank) == ("overflow", None)
            assert math.isnan(result.value)

    def test_batch_of_tensors(self) -> None:
        tensors = normal(3, 4, 3, 2)
        batch = condition_number(tensors, batched=True)
        assert [result.value for result in batch] == [condition_number(tensor).value for tensor in tensors]
        assert batch[0].shape == (4, 3, 2)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    shape=st.lists(st.integers(1, 5), min_size=2, max_size=4),
    seed=st.integers(0, 10**6),
    scale=st.sampled_from([1e-200, 1.0, 1e150]),
    dtype=st.sampled_from([torch.float32, F64]),
)
def test_any_shape(shape: list[int], seed: int, scale: float, dtype: torch.dtype) -> None:
    tensor = normal(*shape, seed=seed)
    tensor = tensor.float().double() if dtype == torch.float32 else tensor * scale
    result = condition_number(tensor.to(dtype), reduce="mode")
    for mode in result.modes:
        unfolded = np.moveaxis(tensor.cpu().numpy(), mode.mode, 0).reshape(shape[mode.mode], -1)
        expected = np.linalg.svd(unfolded / (1 if dtype == torch.float32 else scale), compute_uv=False)
        rounding = 100 * max(unfolded.shape) * np.finfo(np.float64).eps * expected[0]
        got = mode.singular_values.cpu().numpy() / (1 if dtype == torch.float32 else scale)
        np.testing.assert_allclose(got, expected, atol=rounding)
        assert (mode.status, mode.rank) == ("finite", len(expected))
    # Permuting modes permutes results.
    turned = condition_number(tensor.to(dtype).permute(*reversed(range(len(shape)))), reduce="mode")
    if len(shape) > 2:
        turned_values = [mode.value for mode in reversed(turned.modes)]
        kappas = [mode.value for mode in result.modes]
        assert turned_values == pytest.approx(kappas, rel=1e-12 * max(kappas))


class TestPercentile:
    def test_interpolates_linearly(self) -> None:
        values = torch.arange(1.0, 12.0) * torch.tensor([1.0, -1.0] * 5 + [1.0])  # the 10th percentile of 1..11 is 2
        assert float(percentile_condition(values)) == pytest.approx(11 / 2, rel=1e-15)
        assert float(percentile_condition(torch.tensor([1.0, 2.0], dtype=F64))) == pytest.approx(2 / 1.1, rel=1e-15)

    def test_ends_of_the_range(self) -> None:
        values = torch.tensor([3.0, -6.0, 1.5])
        assert float(percentile_condition(values, q=0)) == 4
        assert float(percentile_condition(values, q=1)) == 1
        assert float(percentile_condition(torch.tensor([-2.0]))) == 1

    def test_against_numpy_in_batches(self) -> None:
        values = normal(4, 3, 57)
        sizes = values.abs().cpu().numpy()
        expected = sizes.max(-1) / np.quantile(sizes, 0.1, axis=-1, method="linear")
        np.testing.assert_allclose(percentile_condition(values).cpu().numpy(), expected, rtol=1e-14)

    def test_complex_eigenvalues(self) -> None:
        assert float(percentile_condition(torch.tensor([3 + 4j, 1j]), q=0)) == 5

    def test_zeros_and_overflow(self) -> None:
        values = torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, 1.0], [1.0, math.nan, 1.0], [1.0, math.inf, 1.0]])
        result = percentile_condition(values).tolist()
        assert result[:2] == [math.inf, math.inf]
        assert all(math.isnan(value) for value in result[2:])

    @pytest.mark.parametrize(("values", "q"), [(torch.ones(3), 1.5), (torch.ones(3), -0.1), (torch.tensor(1.0), 0.1)])
    def test_bad_input(self, values: Tensor, q: float) -> None:
        with pytest.raises(InputError, match="percentile_condition: expected"):
            percentile_condition(values, q)


@pytest.mark.parametrize(
    ("tensor", "options", "message"),
    [
        (torch.ones(3), {}, "expected a matrix"),
        (torch.ones(3, 0), {}, "none of its sizes 0"),
        (torch.ones(3, 3), {"batched": True}, "with batched=True"),
        (torch.ones(3, 3, dtype=torch.int64), {}, "floating-point"),
        (torch.ones(3, 3, dtype=torch.complex64), {}, "floating-point"),
        (torch.ones(3, 3), {"reduce": "min"}, "one of mode, max, global, channel, matrix, got 'min'"),
        (torch.ones(3, 3), {"dtype": torch.float16}, "torch.float32 or torch.float64"),
        (torch.ones(3, 3), {"precision": torch.bfloat16}, "torch.float32 or torch.float64"),
        (torch.ones(3, 3, 3), {"leave_out": [3]}, "modes from 0 to 2"),
        (torch.ones(3, 3, 3), {"leave_out": [0, 1, 2]}, "leaves no mode"),
        (torch.ones(3, 3, 3), {"leave_out": [0], "reduce": "matrix"}, "leave_out goes with"),
        (torch.ones(3, 3, 3), {"channel": 5, "reduce": "channel"}, "modes from 0 to 2"),
    ],
)
def test_bad_input(tensor: Tensor, options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        condition_number(tensor, **options)


def test_gradients_are_left_alone() -> None:
    weight = normal(4, 4).requires_grad_()
    result = condition_number(weight)
    assert not result.singular_values[0].requires_grad
    assert not condition_number(Dense(weight))[0].singular_values[0].requires_grad
