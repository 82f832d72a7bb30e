"""Theorem 2 against automatic differentiation of the network it speaks of."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from skipscope.errors import InputError
from skipscope.papers.b.theory import HessianAtZero, commutation, hessian_at_zero, hessian_from_moments
from skipscope.papers.b.theory.block_toeplitz import extreme_magnitudes
from tests import seeded

Activation = Callable[[Tensor], Tensor]


def identity(x: Tensor) -> Tensor:
    return x


def smooth_relu(x: Tensor) -> Tensor:
    """0 at 0, with slope 1/2."""
    return (x + (x**2 + 1).sqrt() - 1) / 2


PRE: list[Activation] = [identity, torch.tanh, F.softplus, torch.relu]
INNER: list[Activation] = [identity, torch.tanh, smooth_relu, nn.SiLU(), lambda x: 2 * torch.sin(x)]


def data(d: int, m: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = seeded.generator(seed)
    X, Y = torch.randn(2, d, m, dtype=torch.float64, generator=generator, device=generator.device)
    return X, Y


def loss_of(
    X: Tensor,
    Y: Tensor,
    units: int,
    n: int,
    pre: Activation = identity,
    mid: Activation = identity,
    post: Activation = identity,
    bias: bool = False,
) -> Callable[[Tensor], Tensor]:
    """The loss of an n-shortcut network as a function of all its parameters, in the order of the theorem."""
    d, m = X.shape

    def loss(parameters: Tensor) -> Tensor:
        h, rest = X, parameters
        for _ in range(units):
            z = pre(h)
            for layer in range(n):
                columns = d + 1 if bias and layer == 0 else d
                W, rest = rest[: d * columns].reshape(columns, d).T, rest[d * columns :]
                z = W[:, :d] @ z + W[:, d:].sum(1, keepdim=True)
                z = post(z) if layer == n - 1 else mid(z)
            h = h + z
        return (h - Y).square().sum() / (2 * m)

    return loss


def at_zero(loss: Callable[[Tensor], Tensor], like: HessianAtZero) -> tuple[Tensor, Tensor]:
    """Hessian and gradient by automatic differentiation."""
    zero = like.M.new_zeros(like.parameters)
    return torch.func.hessian(loss)(zero), torch.func.grad(loss)(zero)


@settings(max_examples=60, deadline=None)
@given(
    d=st.integers(1, 4),
    m=st.integers(1, 12),
    units=st.integers(1, 3),
    n=st.integers(1, 3),
    pre=st.sampled_from(PRE),
    mid=st.sampled_from(INNER),
    post=st.sampled_from(INNER),
    bias=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_the_closed_form_is_that_of_autograd(
    d: int, m: int, units: int, n: int, pre: Activation, mid: Activation, post: Activation, bias: bool, seed: int
) -> None:
    X, Y = data(d, m, seed)
    form = hessian_at_zero(X, Y, units=units, n=n, pre=pre, mid=mid, post=post, bias=bias)
    hessian, gradient = at_zero(loss_of(X, Y, units, n, pre, mid, post, bias), form)
    errors = form.check(hessian, gradient)
    scale = max(1.0, float(hessian.abs().max()))
    assert errors.hessian <= 1e-12 * scale
    assert errors.eigenvalues <= 1e-12 * scale * form.parameters
    assert errors.gradient is not None
    assert errors.gradient <= 1e-12 * scale
    assert form.order == n - 1
    assert str(errors).startswith("largest difference")


@pytest.mark.parametrize("n", [1, 2, 3])
def test_second_moments_are_enough_for_linear_networks(n: int) -> None:
    X, Y = data(3, 40, 0)
    from_data = hessian_at_zero(X, Y, units=3, n=n)
    from_moments = hessian_from_moments(X @ X.T / 40, Y @ X.T / 40, units=3, n=n)
    assert (from_data.matrix - from_moments.matrix).abs().max() <= 1e-14
    assert (from_data.gradient - from_moments.gradient).abs().max() <= 1e-14


def test_one_shortcut_at_zero_is_a_plain_linear_network_at_the_identity() -> None:
    X, Y = data(3, 10, 1)
    form = hessian_at_zero(X, Y, units=3, n=1)

    def plain(parameters: Tensor) -> Tensor:
        h = X
        for W in parameters.reshape(3, 3, 3):
            h = W.T @ h
        return (h - Y).square().sum() / 20

    hessian = torch.func.hessian(plain)(torch.eye(3, dtype=torch.float64).flatten().repeat(3))
    assert form.check(hessian).hessian <= 1e-12


@pytest.mark.parametrize("d", [1, 2, 3, 5])
def test_commutation_is_the_permutation_of_the_paper(d: int) -> None:
    P = commutation(d)
    for j in range(1, d * d + 1):
        assert P[:, j - 1].nonzero().flatten().tolist() == [((j - 1) % d) * d + math.ceil(j / d) - 1]
    assert torch.equal(P, P.T)
    assert torch.equal(P @ P, torch.eye(d * d, dtype=P.dtype))


def test_commutation_transposes_rectangles() -> None:
    W = torch.arange(6, dtype=torch.float64).reshape(2, 3)
    vec, vec_of_transpose = W.T.flatten(), W.flatten()
    assert torch.equal(commutation(2, 3) @ vec, vec_of_transpose)


def test_eigenvalues_come_d_times_the_number_of_units() -> None:
    X, Y = data(3, 20, 2)
    form = hessian_at_zero(X, Y, units=4, mid=torch.tanh, post=lambda x: -3 * torch.sin(x))
    values = 3 * torch.linalg.svdvals(form.M).cpu()
    computed = torch.linalg.eigvalsh(form.matrix).cpu()
    for value in [*values, *-values]:
        assert int(((computed - value).abs() < 1e-12).sum()) == 3 * 4
    assert [times for _, times in form.levels] == [12] * 6
    assert form.levels[0][0] == pytest.approx(-float(values[0]))


def test_two_shortcuts_are_conditioned_alike_at_every_depth() -> None:
    X, Y = data(3, 40, 0)
    forms = [hessian_at_zero(X, Y, units=units) for units in (1, 2, 5, 8, 16)]
    assert [form.condition_number for form in forms] == pytest.approx([forms[0].condition_of_M] * 5, rel=1e-12)
    for form in forms:
        magnitudes = torch.linalg.eigvalsh(form.matrix).abs()
        assert float(magnitudes.max() / magnitudes.min()) == pytest.approx(form.condition_of_M, rel=1e-10)
        assert form.percentile_condition() <= form.condition_number * (1 + 1e-12)


def conditions(M: Tensor, depths: Iterable[int]) -> list[float]:
    eye = torch.eye(len(M), dtype=M.dtype)
    return [hessian_from_moments(eye, eye - M, units=units, n=1).condition_number for units in depths]


def test_one_shortcut_is_worse_conditioned_the_deeper_it_is() -> None:
    X, Y = data(3, 40, 0)
    shallow, deep = (hessian_at_zero(X, Y, units=units, n=1).condition_number for units in (4, 32))
    assert math.log(deep / shallow) / math.log(8) >= 0.8


def test_complex_eigenvalues_of_M_square_the_growth_for_one_shortcut() -> None:  # noqa: N802
    real = torch.tensor([[1.0, 0.3], [0.3, 0.6]], dtype=torch.float64)
    turning = torch.tensor([[1.0, 0.6], [-0.6, 1.0]], dtype=torch.float64)
    slopes = []
    for M in (real, turning):  # the growth has jumps: compare averages over neighbouring depths
        shallow, deep = (torch.tensor(conditions(M, depths)).log().mean() for depths in (range(10, 20), range(80, 90)))
        slopes.append(float(deep - shallow) / math.log(84.5 / 14.5))
    assert slopes[0] == pytest.approx(1, abs=0.1)
    assert slopes[1] == pytest.approx(2, abs=0.4)


@pytest.mark.parametrize(
    ("diagonal", "expected"),
    [
        ((0.7, 0.4, 1.6), 2),  # like R
        ((1.0, 0.4, 0.9), 2),
        ((0.7, -0.7, 1.6), 4),  # two that are opposite: like R^2
        ((1.0, 0.4, 1.6), 2 * 1.6**12),  # one is the variance of the inputs, another one larger: like R 1.6^R
        ((-1.0, 0.4, 1.6), 2 * 1.6**12),
        ((1.0, 0.4, -1.6), 2 * 1.6**12),
    ],
)
def test_real_eigenvalues_of_M_decide_the_growth_for_one_shortcut(  # noqa: N802
    diagonal: tuple[float, ...], expected: float
) -> None:
    shallow, deep = conditions(torch.diag(torch.tensor(diagonal, dtype=torch.float64)), (12, 24))
    assert deep / shallow == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize(("post", "bias"), [(identity, False), (smooth_relu, True)])
def test_counting_eigenvalues_finds_the_extreme_ones(post: Activation, bias: bool) -> None:
    X, Y = data(3, 20, 3)
    form = hessian_at_zero(X, Y, units=12, n=1, post=post, bias=bias)
    magnitudes = form.eigenvalues.abs()
    largest, smallest = extreme_magnitudes(form.A, form.B, form.units)
    assert largest == pytest.approx(float(magnitudes.max()), rel=1e-9)
    assert smallest == pytest.approx(float(magnitudes.min()), rel=1e-6)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_the_loss_leaves_zero_with_the_power_n(n: int) -> None:
    X, Y = data(3, 20, 4)
    form = hessian_at_zero(X, Y, units=2, n=n, mid=torch.tanh)
    loss = loss_of(X, Y, 2, n, mid=torch.tanh)
    generator = seeded.generator(5)
    u = torch.randn(form.parameters, dtype=torch.float64, generator=generator, device=generator.device)
    small, large = 1e-3, 2e-3
    zero = loss(0 * u)
    slope = math.log(float((loss(large * u) - zero).abs() / (loss(small * u) - zero).abs())) / math.log(large / small)
    assert slope == pytest.approx(n, abs=0.05)
    if n >= 3:
        assert not form.matrix.any()
        assert math.isnan(form.condition_number)
        assert form.levels == ((0.0, form.parameters),)
        assert "the Hessian is zero" in str(form)


def test_relu_has_no_slope_at_zero_and_autograd_takes_zero() -> None:
    X, Y = data(3, 20, 6)
    form = hessian_at_zero(X, Y, units=2, mid=torch.relu)
    hessian, _ = at_zero(loss_of(X, Y, 2, 2, mid=torch.relu), form)
    assert not hessian.any()
    assert not form.matrix.any()
    assert not form.strict_saddle
    assert "mid: relu, not differentiable at zero; slope 0 by automatic differentiation" in str(form)
    assert "the Hessian is zero" in str(form)


def test_a_chosen_slope_is_that_of_a_smooth_stand_in() -> None:
    X, Y = data(3, 20, 6)
    form = hessian_at_zero(X, Y, units=2, mid=torch.relu, relu_slope=0.5)
    hessian, gradient = at_zero(loss_of(X, Y, 2, 2, mid=smooth_relu), form)
    errors = form.check(hessian, gradient)
    assert max(errors.hessian, errors.eigenvalues, errors.gradient or 0) <= 1e-12
    assert "slope 0.5 by choice" in str(form)
    smooth = hessian_at_zero(X, Y, units=2, mid=torch.tanh, relu_slope=0.5)
    assert smooth.slope == 1  # what has a derivative keeps it


def test_biases_bring_zeros_and_change_the_other_eigenvalues() -> None:
    d, units = 3, 3
    X, Y = data(d, 20, 7)
    without, form = (hessian_at_zero(X, Y, units=units, bias=bias) for bias in (False, True))
    hessian, _ = at_zero(loss_of(X, Y, units, 2, bias=True), form)
    weights = torch.tensor([True] * d * d + [False] * d + [True] * d * d).repeat(units)
    assert without.check(hessian[weights][:, weights]).hessian <= 1e-12

    eigenvalues, vectors = torch.linalg.eigh(hessian)
    zero = eigenvalues.abs() < 1e-12
    assert int(zero.sum()) == d * units
    assert vectors[weights][:, zero].norm() > 0.1  # not directions of biases alone
    mean = (X - Y).mean(1, keepdim=True)
    values = torch.linalg.svdvals(torch.cat([without.M, mean], 1))
    assert (form._magnitudes - values).abs().max() <= 1e-14
    assert form.condition_number == math.inf
    assert form.condition_of_M == pytest.approx(float(values[0] / values[-1]))
    assert form.condition_of_M != pytest.approx(without.condition_of_M, rel=1e-3)

    centred = hessian_at_zero(X, Y + mean, units=units, bias=True)
    assert centred.condition_of_M == pytest.approx(hessian_at_zero(X, Y + mean, units=units).condition_of_M)


def test_zero_is_a_strict_saddle_for_two_shortcuts() -> None:
    X, Y = data(4, 20, 8)
    form = hessian_at_zero(X, Y, units=2, mid=smooth_relu)
    assert form.strict_saddle
    assert form.lowest == pytest.approx(-0.5 * float(torch.linalg.matrix_norm(form.M, 2)))
    assert f"strict saddle: lowest eigenvalue {form.lowest:.4g}" in str(form)
    assert not hessian_at_zero(X, X, units=2).strict_saddle  # M = 0
    assert not hessian_at_zero(X, Y, units=2, n=3).strict_saddle


def test_a_singular_M_is_an_infinite_condition_number() -> None:  # noqa: N802
    X, Y = data(4, 2, 9)
    assert hessian_at_zero(X, Y, units=3).condition_number == math.inf


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mid": F.softplus}, r"expected a mid activation that is 0 at 0 .* softplus\(0\) = 0.69"),
        ({"post": torch.sigmoid, "n": 1}, r"post activation that is 0 at 0 .* sigmoid\(0\) = 0.5"),
        ({"units": 0}, "expected units >= 1 and n >= 1, got units=0 and n=2"),
        ({"n": 0}, "got units=2 and n=0"),
        ({"Y": torch.zeros(3, 4)}, r"the same shape \(d, m\), got \(3, 5\) and \(3, 4\)"),
        ({"X": torch.full((3, 5), math.nan)}, "expected finite data"),
    ],
)
def test_bad_input_is_named(change: dict[str, object], message: str) -> None:
    X, Y = data(3, 5, 0)
    with pytest.raises(InputError, match=message):
        hessian_at_zero(**{"X": X, "Y": Y, "units": 2, **change})  # type: ignore[arg-type]


def test_bad_moments_and_hessians_are_named() -> None:
    with pytest.raises(InputError, match=r"two square matrices of one size, got \(2, 3\) and \(2, 3\)"):
        hessian_from_moments(torch.zeros(2, 3), torch.zeros(2, 3), units=1)
    with pytest.raises(InputError, match=r"a Hessian of 8 x 8 entries, got one of shape \(4, 4\)"):
        hessian_from_moments(torch.eye(2), torch.zeros(2, 2), units=1).check(torch.eye(4))
    with pytest.raises(InputError, match="got 0 x 3"):
        commutation(0, 3)
