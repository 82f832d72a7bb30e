"""Loss, gradient and Hessian of n-shortcut networks against automatic differentiation and the theorem at zero."""

from __future__ import annotations

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from skipscope.data import whiten
from skipscope.errors import InputError
from skipscope.papers.b.networks import (
    Moments,
    Samples,
    ShortcutSpec,
    initial_weights,
    loss_and_gradient,
    shortcut_hessian,
)
from skipscope.papers.b.networks.hessian import ShortcutHessian
from skipscope.papers.b.networks.loss import loss_of
from skipscope.papers.b.networks.network import INITS, as_vector, from_vector, outputs
from skipscope.papers.b.theory import hessian_at_zero
from tests import seeded
from tests.data import real

TOLERANCE = 1e-10


def samples(m: int, d: int, seed: int = 0) -> Samples:
    generator = seeded.generator(seed)
    x, y = torch.randn(2, m, d, dtype=torch.float64, generator=generator, device=generator.device)
    return Samples(x, y)


def reference(spec: ShortcutSpec, weights: Tensor, data: Samples) -> tuple[Tensor, Tensor, Tensor]:
    """Loss, gradient and Hessian by torch alone."""

    def loss(vector: Tensor) -> Tensor:
        W, _ = from_vector(spec, vector)
        return (outputs(spec, W, data.x) - data.y).square().sum() / (2 * len(data.x))

    vector = as_vector(spec, weights)
    return loss(vector), torch.func.grad(loss)(vector), torch.func.hessian(loss)(vector)


def agree(found: ShortcutHessian, expected: tuple[Tensor, Tensor, Tensor]) -> None:
    loss, gradient, hessian = expected
    assert found.loss == pytest.approx(float(loss), rel=TOLERANCE)
    torch.testing.assert_close(found.gradient, gradient, rtol=TOLERANCE, atol=TOLERANCE)
    torch.testing.assert_close(found.matrix, hessian, rtol=TOLERANCE, atol=TOLERANCE)
    assert found.route == "autograd" or torch.equal(found.matrix, found.matrix.T)


@settings(max_examples=40, deadline=None)
@given(
    d=st.integers(1, 4),
    n=st.integers(0, 4),
    units=st.integers(1, 3),
    init=st.sampled_from(INITS),
    m=st.integers(1, 9),
    seed=st.integers(0, 99),
)
def test_linear_networks_from_moments_and_from_samples(
    d: int, n: int, units: int, init: str, m: int, seed: int
) -> None:
    spec = ShortcutSpec(max(n, 1) * units, d, n)
    weights, data = initial_weights(spec, init, seed), samples(m, d, seed)
    expected = reference(spec, weights, data)
    found = shortcut_hessian(spec, weights, data)
    assert found.route == "moments"
    agree(found, expected)
    agree(shortcut_hessian(spec, weights, Moments.of(data)), expected)
    agree(shortcut_hessian(spec, weights, data, route="patterns"), expected)
    agree(shortcut_hessian(spec, weights, data, route="autograd"), expected)


@settings(max_examples=40, deadline=None)
@given(
    d=st.integers(1, 4),
    n=st.integers(0, 3),
    path=st.integers(1, 3),
    units=st.integers(1, 3),
    places=st.tuples(*[st.sampled_from(["identity", "relu"])] * 3),
    init=st.sampled_from(INITS),
    memory=st.sampled_from([1, 4000, 10**9]),
)
def test_relu_networks(
    d: int, n: int, path: int, units: int, places: tuple[str, str, str], init: str, memory: int
) -> None:
    pre, mid, post = places
    spec = ShortcutSpec((n or path) * units, d, n, pre=pre, mid=mid, post=post, path=0 if n else path)
    assume(not spec.linear)
    weights, data = initial_weights(spec, init, 5), samples(7, d)
    found = shortcut_hessian(spec, weights, data, memory=memory)
    assert found.route == "patterns"
    agree(found, reference(spec, weights, data))


@pytest.mark.parametrize("n", [0, 1, 2])
@pytest.mark.parametrize("bias", [False, True])
def test_smooth_activations_go_by_autograd(n: int, bias: bool) -> None:
    spec = ShortcutSpec(2, 3, n, mid="tanh", post="softplus", bias=bias)
    weights, data = initial_weights(spec), samples(5, 3)
    biases = torch.ones(spec.units, 3, dtype=torch.float64) if bias else None
    found = shortcut_hessian(spec, weights, data, biases)
    assert found.route == "autograd"
    assert found.matrix.shape == (spec.parameters, spec.parameters)
    if not bias:
        agree(found, reference(spec, weights, data))


@settings(max_examples=30, deadline=None)
@given(
    n=st.integers(0, 3),
    places=st.tuples(*[st.sampled_from(["identity", "relu", "tanh", "softplus"])] * 3),
    memory=st.sampled_from([1, 5000, 10**9]),
)
def test_loss_and_gradient_of_many_networks_for_any_activation(
    n: int, places: tuple[str, str, str], memory: int
) -> None:
    pre, mid, post = places
    spec = ShortcutSpec(2 * max(n, 1), 3, n, pre=pre, mid=mid, post=post)
    weights = torch.stack([torch.stack([initial_weights(spec, init, s) for init in INITS]) for s in (1, 2)])
    data = samples(11, 3)
    loss, gradient = loss_and_gradient(spec, weights, data, memory)
    assert loss.shape == (2, 3)
    torch.testing.assert_close(loss_of(spec, weights, data, memory), loss)
    for index in ((0, 0), (1, 2)):
        expected, slope, _ = reference(spec, weights[index], data)
        torch.testing.assert_close(loss[index], expected, rtol=1e-12, atol=0)
        torch.testing.assert_close(as_vector(spec, gradient[index]), slope, rtol=TOLERANCE, atol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_at_zero_it_is_the_theorem(n: int) -> None:
    spec = ShortcutSpec(2 * n, 4, n)
    data = samples(30, 4)
    found = shortcut_hessian(spec, initial_weights(spec, "zero", factor=0), data)
    errors = hessian_at_zero(data.x.T, data.y.T, units=2, n=n).check(found.matrix, found.gradient)
    assert max(errors.hessian, errors.eigenvalues, errors.gradient or 0) < 1e-13


@pytest.mark.parametrize(("n", "bias", "mid"), [(1, True, "identity"), (2, True, "tanh"), (2, False, "tanh")])
def test_at_zero_it_is_the_theorem_with_biases_and_activations(n: int, bias: bool, mid: str) -> None:
    spec = ShortcutSpec(2 * n, 3, n, pre="softplus", mid=mid, post="tanh", bias=bias)
    data = samples(30, 3)
    biases = data.x.new_zeros(2, 3) if bias else None
    found = shortcut_hessian(spec, initial_weights(spec, "zero", factor=0), data, biases)
    closed = hessian_at_zero(
        data.x.T,
        data.y.T,
        units=2,
        n=n,
        pre=spec.activation("pre"),
        mid=spec.activation("mid"),
        post=spec.activation("post"),
        bias=bias,
    )
    errors = closed.check(found.matrix, found.gradient)
    assert max(errors.hessian, errors.eigenvalues, errors.gradient or 0) < 1e-13


def test_one_shortcut_at_zero_is_the_plain_network_at_the_identity() -> None:
    data = Moments.of(samples(20, 3))
    one, plain = ShortcutSpec(5, 3, 1), ShortcutSpec(5, 3, 0)
    eye = torch.eye(3, dtype=torch.float64).expand(5, 3, 3)
    left, right = shortcut_hessian(one, torch.zeros_like(eye), data), shortcut_hessian(plain, eye, data)
    torch.testing.assert_close(left.matrix, right.matrix, rtol=0, atol=1e-13)


def test_the_lowest_loss_of_a_linear_map() -> None:
    data = samples(50, 4)
    T = torch.linalg.lstsq(data.x.cpu(), data.y.cpu()).solution
    residual = float((data.x.cpu() @ T - data.y.cpu()).square().sum() / 100)
    assert Moments.of(data).lowest_loss == pytest.approx(residual, rel=1e-12)


def test_moments_of_data_in_a_subspace() -> None:
    data = samples(2, 4)  # S_xx has rank 2: both samples are met exactly
    assert Moments.of(data).lowest_loss == pytest.approx(0, abs=1e-12)


def test_bad_input() -> None:
    spec = ShortcutSpec(4, 3, mid="relu")
    weights, data = initial_weights(spec), samples(5, 3)
    with pytest.raises(InputError, match="expected Samples for this one"):
        shortcut_hessian(spec, weights, Moments.of(data))
    with pytest.raises(InputError, match="expected Samples for this one"):
        loss_and_gradient(spec, weights, Moments.of(data))
    with pytest.raises(InputError, match="route: expected patterns or autograd for this network with Samples, got 'mo"):
        shortcut_hessian(spec, weights, data, route="moments")
    with pytest.raises(InputError, match="expected 3 values per sample, as the network is wide, got 4"):
        shortcut_hessian(spec, weights, samples(5, 4))
    with pytest.raises(InputError, match="expected those of one network"):
        shortcut_hessian(spec, weights[None], data)
    with pytest.raises(InputError, match=r"got \(5, 3\) and \(5, 2\)"):
        Samples(data.x, data.y[:, :2])
    with pytest.raises(InputError, match=r"floating point numbers, got x of torch\.float64 and y of torch\.int64"):
        Samples(data.x, data.y.long())
    with pytest.raises(InputError, match="two square matrices of one size"):
        Moments(data.x, data.x, 1.0)


def test_numbers_of_mnist() -> None:
    white = whiten(real.require("mnist"), 10)
    data = Moments.of(Samples(white.x, white.y))
    assert data.lowest_loss == pytest.approx(0.3371410, abs=5e-8)
    assert float(data.loss(data.x)[0]) == pytest.approx(5.0159, abs=5e-5)  # of the identity map
    for depth in (2, 4, 8):
        spec = ShortcutSpec(depth, 10, n=2)
        matrix = shortcut_hessian(spec, initial_weights(spec, "zero", factor=0, device="cpu"), data).matrix
        magnitudes = torch.linalg.eigvalsh(matrix).abs()
        assert float(magnitudes.max() / magnitudes.min()) == pytest.approx(1.4907, abs=5e-5)
        assert float(magnitudes.max() / magnitudes.quantile(0.1)) == pytest.approx(1.4666, abs=5e-5)
