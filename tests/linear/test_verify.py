"""The Jacobian test and the adjoint test: passed by derivatives, failed by what is none."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import skipscope as ss
from tests.trace.nets import CASES, Residual
from tests.trace.test_cases import inputs, traced


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.units])
def test_every_unit_passes(name: str) -> None:
    _, trunk = traced(name)
    point = trunk.at(inputs(CASES[name], 2))
    for unit in trunk.units:
        result = ss.verify(unit.jacobian(point))
        assert result.passed, f"{unit.name}: {result}"


def test_what_was_seen_is_said() -> None:
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
    assert "lies on a kink, where there is no derivative" in str(result)


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
