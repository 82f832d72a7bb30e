"""n-shortcut networks: what they compute, with which weights, and as modules."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import skipscope
from skipscope.errors import InputError
from skipscope.papers.b.networks import ShortcutNet, ShortcutSpec, initial_weights
from skipscope.papers.b.networks.loss import in_pieces
from skipscope.papers.b.networks.network import ACTIVATIONS, INITS, as_vector, from_vector, outputs
from tests import seeded
from tests.slow import thinned


def rows(m: int, d: int, seed: int = 0) -> Tensor:
    generator = seeded.generator(seed)
    return torch.randn(m, d, dtype=torch.float64, generator=generator, device=generator.device)


def biases_of(spec: ShortcutSpec) -> Tensor | None:
    return rows(spec.units, spec.width, 7) if spec.bias else None


@st.composite
def specs(draw: st.DrawFn) -> ShortcutSpec:
    n, units = draw(st.integers(0, 4)), draw(st.integers(1, 3))
    path = draw(st.integers(1, 3)) if n == 0 else 0
    places: dict[str, Any] = {
        place: draw(st.sampled_from([*ACTIVATIONS, torch.sin])) for place in ("pre", "mid", "post")
    }
    return ShortcutSpec((n or path) * units, draw(st.integers(1, 4)), n, bias=draw(st.booleans()), path=path, **places)


def test_the_linear_network_is_the_product_of_the_paper() -> None:
    spec = ShortcutSpec(6, 3, n=3)
    weights = initial_weights(spec, seed=1)
    eye = torch.eye(3, dtype=torch.float64)
    W = list(weights)
    T = (W[5] @ W[4] @ W[3] + eye) @ (W[2] @ W[1] @ W[0] + eye)
    x = rows(5, 3)
    torch.testing.assert_close(outputs(spec, weights, x), x @ T.T, rtol=1e-13, atol=1e-13)


def test_activations_are_on_the_branch_and_the_bias_is_after_the_first_weight() -> None:
    spec = ShortcutSpec(2, 3, n=2, pre="tanh", mid="relu", post="softplus", bias=True)
    (W1, W2), b, x = initial_weights(spec, seed=1), rows(1, 3), rows(5, 3)
    expected = x + torch.nn.functional.softplus(torch.relu(x.tanh() @ W1.T + b) @ W2.T)
    torch.testing.assert_close(outputs(spec, torch.stack([W1, W2]), x, b), expected)


def test_a_plain_network_can_have_as_many_relus_as_its_2_shortcut_twin() -> None:
    spec = ShortcutSpec(4, 3, n=2, mid="relu").plain
    assert spec == ShortcutSpec(4, 3, n=0, path=2, mid="relu")
    W, x = initial_weights(spec, seed=1), rows(5, 3)
    expected = torch.relu(torch.relu(x @ W[0].T) @ W[1].T @ W[2].T) @ W[3].T  # after layers 1 and 3
    torch.testing.assert_close(outputs(spec, W, x), expected)
    everywhere = ShortcutSpec(4, 3, n=0, mid="relu")
    expected = x
    for layer in range(3):
        expected = torch.relu(expected @ W[layer].T)
    torch.testing.assert_close(outputs(everywhere, W, x), expected @ W[3].T)


@settings(max_examples=40, deadline=None)
@given(spec=specs())
def test_function_ensemble_module_and_vector_agree(spec: ShortcutSpec) -> None:
    weights = torch.stack([initial_weights(spec, init, 2) for init in INITS])
    biases = biases_of(spec)
    each_bias = None if biases is None else biases.expand(3, *biases.shape)
    x = rows(4, spec.width)
    found = outputs(spec, weights, x, each_bias)
    assert found.shape == (3, 4, spec.width)
    vectors = as_vector(spec, weights, each_bias)
    assert vectors.shape == (3, spec.parameters)
    for W, result, vector in zip(weights, found, vectors, strict=True):
        net = ShortcutNet(spec, W, biases)
        torch.testing.assert_close(net(x), result)
        assert torch.equal(net.weights, W)
        back, back_biases = from_vector(spec, vector)
        assert torch.equal(back, W)
        assert (biases is None and back_biases is None and net.biases is None) or (
            biases is not None and back_biases is not None and torch.equal(back_biases, biases)
        )


def test_the_vector_is_column_by_column_with_the_bias_as_a_further_column() -> None:
    spec = ShortcutSpec(2, 2, n=2, bias=True)
    W = torch.tensor([[[1.0, 3], [2, 4]], [[7, 9], [8, 10]]])
    assert as_vector(spec, W, torch.tensor([[5.0, 6]])).tolist() == list(range(1, 11))


@pytest.mark.parametrize(
    ("n", "mid"),
    thinned(itertools.product([1, 2, 3], ["identity", "relu"]), fast=[(1, "relu"), (2, "identity"), (3, "relu")]),
)
def test_a_trace_finds_its_units(n: int, mid: str) -> None:
    spec = ShortcutSpec(12, 10, n=n, mid=mid)
    trunk = skipscope.trace(ShortcutNet(spec, initial_weights(spec)), rows(4, 10))
    assert [unit.name for unit in trunk.units] == [f"units.{unit}" for unit in range(spec.units)]


def test_initial_weights() -> None:
    spec = ShortcutSpec(40, 20)
    xavier, orthogonal, zero = (initial_weights(spec, init, 3) for init in INITS)
    assert float(xavier.std()) == pytest.approx(math.sqrt(1 / 20), rel=0.03)
    eye = torch.eye(20, dtype=torch.float64).expand(40, 20, 20)
    torch.testing.assert_close(orthogonal.mT @ orthogonal, eye, rtol=0, atol=1e-13)
    # Uniform: an entry of the diagonal has mean 0, which LAPACK's own signs do not give.
    assert abs(float(orthogonal.diagonal(dim1=1, dim2=2).mean())) < 4 / math.sqrt(40 * 20 * 20)
    torch.testing.assert_close(zero, 0.01 * xavier)
    assert not initial_weights(spec, "zero", 3, factor=0).any()
    assert torch.equal(xavier, initial_weights(spec, "xavier", torch.Generator("cpu").manual_seed(3)))
    assert not torch.equal(xavier, initial_weights(spec, "xavier", 4))
    assert torch.equal(initial_weights(spec, seed=3, dtype=torch.float32), xavier.float())


def test_initial_weights_do_not_touch_the_random_state() -> None:
    before = torch.get_rng_state()
    initial_weights(ShortcutSpec(4, 3), "orthogonal")
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depth": 5}, "depth: expected a multiple of 2, the layers of a unit, got 5"),
        ({"depth": 0}, "depth: expected at least 1, got 0"),
        ({"depth": 4, "width": 0}, "width: expected at least 1, got 0"),
        ({"depth": 4, "n": -1}, "n: expected at least 0, got -1"),
        ({"depth": 4, "path": -1}, "path: expected at least 0, got -1"),
        ({"depth": 4, "path": 4}, "path: expected 0 or n for a network with shortcuts, got path=4 with n=2"),
        ({"depth": 5, "n": 0, "path": 2}, "depth: expected a multiple of 2, the layers of a unit, got 5"),
        ({"depth": 4, "mid": "gelu"}, "mid: expected a function or one of identity, relu, tanh, softplus, got 'gelu'"),
    ],
)
def test_bad_specs(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ShortcutSpec(**options)


def test_bad_weights_and_inputs() -> None:
    spec = ShortcutSpec(4, 3)
    weights = initial_weights(spec)
    with pytest.raises(InputError, match=r"shape \(\.\.\., 4, 3, 3\), got torch.float64 of shape \(3, 3, 3\)"):
        outputs(spec, weights[1:], rows(2, 3))
    with pytest.raises(InputError, match=r"x: expected the shape \(\.\.\., samples, 3\), got \(2, 4\)"):
        outputs(spec, weights, rows(2, 4))
    with pytest.raises(InputError, match="biases: expected none"):
        outputs(spec, weights, rows(2, 3), rows(2, 3))
    with pytest.raises(InputError, match="biases: expected a tensor"):
        ShortcutNet(ShortcutSpec(4, 3, bias=True), weights)
    with pytest.raises(InputError, match=r"biases: expected the shape \(2, 3\), got \(3, 3\)"):
        ShortcutNet(ShortcutSpec(4, 3, bias=True), weights, rows(3, 3))
    with pytest.raises(InputError, match="the weights of one network"):
        ShortcutNet(spec, weights[None])
    with pytest.raises(InputError, match="expected a vector of 36 parameters"):
        from_vector(spec, rows(1, 35)[0])
    with pytest.raises(InputError, match="init: expected one of xavier, orthogonal, zero, got 'he'"):
        initial_weights(spec, "he")


@pytest.mark.parametrize("rows", [3, 8, 9, 20])
def test_a_sum_over_samples_in_pieces(rows: int) -> None:
    generator = seeded.generator(0)
    a, b = torch.randn(2, 5, rows, 4, dtype=torch.float64, generator=generator, device=generator.device)
    torch.testing.assert_close(in_pieces(a, b[0], 4), a.mT @ b[0], rtol=1e-13, atol=1e-14)
