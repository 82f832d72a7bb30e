"""The Jacobian test and the adjoint test: passed by derivatives, failed by what is none."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import skipscope as ss
from tests.slow import thinned
from tests.trace.nets import CASES, Residual
from tests.trace.test_cases import inputs, traced

# tests/measure/test_every_trunk.py verifies the units of all cases; here are those with one kind of skip or state each.
FEW = ("residual, relu", "post-norm encoder", "cross-attention", "u-net, added", "odd sums")


@pytest.mark.parametrize("name", thinned((name for name, case in CASES.items() if case.units), fast=FEW))
def test_every_unit_passes(name: str) -> None:
    _, trunk = traced(name)
    point = trunk.at(inputs(CASES[name], 2))
    for unit in trunk.units:
        result = ss.verify(unit.jacobian(point))
        assert result.passed, f"{unit.name}: {result}"


def test_what_was_seen_is_said() -> None:
    torch.manual_seed(0)  # a draw in which the steps cross a kink of the ReLU
    state = torch.randn(2, 6, dtype=torch.float64)
    layer = nn.Linear(6, 6).double()
    for function, seen in (
        (lambda x: x + torch.tanh(layer(x)), "smooth"),
        (lambda x: x + torch.relu(layer(x)), "piecewise linear"),
        (lambda x: x + layer(x), "linear"),
    ):
        result = ss.verify(ss.Jacobian(function, state))
        assert result.seen == seen, str(result)
        assert result.passed
    smooth = ss.verify(ss.Jacobian(lambda x: x + torch.tanh(layer(x)), state))
    assert smooth.slopes is not None
    assert smooth.slopes[0] == pytest.approx(1, abs=0.1)
    assert smooth.slopes[1] == pytest.approx(2, abs=0.1)
    assert "not the derivative of a function" in str(ss.verify(ss.Dense(torch.randn(3, 3))))


def test_a_state_on_a_kink_has_no_derivative_to_test() -> None:
    state = torch.randn(2, 6, dtype=torch.float64)
    state[:, 0] = 0
    result = ss.verify(ss.Jacobian(lambda x: x + torch.relu(2 * x), state))
    assert (result.seen, result.passed) == ("at a kink", True)
    assert "right, but for entries that lie on a kink" in str(result)


def test_a_wrong_derivative_fails() -> None:
    def cut(x: Tensor) -> Tensor:
        return x * x.detach()  # half of the derivative is missing

    result = ss.verify(ss.Jacobian(cut, torch.randn(2, 6, dtype=torch.float64)))
    assert result.seen == "wrong"
    assert not result.passed


def test_a_wrong_transpose_fails() -> None:
    class Skewed(ss.Dense):
        def _rmatmat(self, U: Tensor) -> Tensor:
            return 1.001 * super()._rmatmat(U)

        def double(self) -> ss.Dense:
            return self

    result = ss.verify(Skewed(torch.randn(3, 4, dtype=torch.float64)))
    assert not result.passed


def test_float32_models_are_tested_in_float64() -> None:
    trunk = ss.trace(Residual(nn.Linear(5, 5)), torch.randn(2, 5))
    assert ss.verify(trunk[0].jacobian(torch.randn(2, 5))).adjoint_error < 1e-14


def test_one_sample_on_a_kink_does_not_excuse_the_others() -> None:
    class Off(ss.Jacobian):
        def _push(self, V: Tensor) -> Tensor:
            return 1.5 * super()._push(V)

        def _pull(self, U: Tensor) -> Tensor:
            return 1.5 * super()._pull(U)

    state = torch.randn(8, 6, dtype=torch.float64)
    state[3, 0] = 0
    right, wrong = (kind(lambda x: x + torch.relu(2 * x), state) for kind in (ss.Jacobian, Off))
    result = ss.verify(right)
    assert result.passed
    assert result.seen == result.samples[3] == "at a kink"
    assert set(result.samples) <= {"at a kink", "linear", "piecewise linear"}
    result = ss.verify(wrong)
    assert result.samples == ("wrong",) * 8  # the sample on the kink too, by its other entries
    assert result.verdict == "failed"


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6, 1e9, 1e12])
def test_an_offset_of_the_output_hides_no_error(offset: float) -> None:
    class Off(ss.Jacobian):
        def _push(self, V: Tensor) -> Tensor:
            return 1.1 * super()._push(V)

        def _pull(self, U: Tensor) -> Tensor:
            return 1.1 * super()._pull(U)

    torch.manual_seed(0)
    state, layer = torch.randn(2, 6, dtype=torch.float64), nn.Linear(6, 6).double()
    for function in (lambda x: x + torch.tanh(layer(x)) + offset, lambda x: x + torch.relu(layer(x)) + offset):
        assert ss.verify(ss.Jacobian(function, state)).verdict in ("passed", "not tested")
        assert ss.verify(Off(function, state)).verdict in ("failed", "not tested")
        if offset <= 1e6:
            assert ss.verify(ss.Jacobian(function, state)).passed
            assert ss.verify(Off(function, state)).verdict == "failed"


def test_each_sample_moves_by_steps_of_its_own_length() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(6, 6).double()
    state = torch.randn(4, 6, dtype=torch.float64) * torch.tensor([1e-8, 1.0, 1e4, 1e8]).double()[:, None]
    scale = state.norm(dim=1, keepdim=True)
    result = ss.verify(ss.Jacobian(lambda x: x + scale * torch.tanh(layer(x / scale)), state))
    assert result.samples == ("smooth",) * 4
    assert result.passed


def test_what_cannot_run_in_float64_is_tested_in_its_own_type() -> None:
    torch.manual_seed(0)
    layer, state = nn.Linear(6, 6), torch.randn(3, 6)

    def single(x: Tensor) -> Tensor:
        return x + torch.tanh(layer(x))

    def cut(x: Tensor) -> Tensor:
        return x + torch.tanh(layer(x)) * layer(x).detach()

    for function, verdict in ((single, "passed"), (cut, "failed")):
        J = ss.Jacobian(function, state, in_other_form=lambda samples, dtype: None)  # there is no other form of it
        for operator in (J, J.take([0, 2]), J.T, J.double()):
            result = ss.verify(operator)
            assert result.verdict == verdict, str(result)
            assert len(result.samples) == operator.shape[0]


def test_a_number_that_is_none_fails() -> None:
    matrix = torch.eye(3, dtype=torch.float64)
    matrix[0, 1] = float("nan")
    assert ss.verify(ss.Dense(matrix)).verdict == "failed"
