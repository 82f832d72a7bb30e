"""A forward that draws random numbers, or has an operation without a derivative: refused or left out, by everything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn

import skipscope as ss
from tests.trace.nets import Residual

D = 6


class Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.linear(torch.relu(x)) * torch.rand(D)


@torch.library.custom_op("skipscope_tests::no_derivative", mutates_args=())
def no_derivative(x: Tensor) -> Tensor:
    return torch.tanh(x)


@no_derivative.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


class Opaque(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        return no_derivative(self.linear(x))


def with_loss(model: nn.Module, x: Tensor) -> Any:
    return ss.curvature(model, nn.MSELoss(), (x, torch.zeros_like(x)), route="exact")


@pytest.mark.parametrize("measure", [ss.trace, ss.check, ss.conditioning, with_loss])
def test_random_numbers_in_evaluation_mode_are_refused(measure: Callable[[nn.Module, Tensor], Any]) -> None:
    torch.manual_seed(0)
    with pytest.raises(ss.InputError, match="draws random"):
        measure(nn.Sequential(Noisy(), nn.Linear(D, D)), torch.randn(8, D))


@pytest.mark.parametrize("measure", [ss.check, with_loss])
def test_what_has_no_derivative_is_said_in_words(measure: Callable[[nn.Module, Tensor], Any]) -> None:
    with pytest.raises(ss.InputError, match="cannot be differentiated"):
        measure(nn.Sequential(Residual(Opaque()), nn.Linear(D, D)), torch.randn(8, D))


def test_units_beside_one_without_a_derivative_are_measured() -> None:
    torch.manual_seed(0)
    model, x = (
        nn.Sequential(Residual(nn.Linear(D, D)), Residual(Opaque()), Residual(nn.Linear(D, D))),
        torch.randn(8, D),
    )
    result = ss.inspect(model, x, budget="1m")
    assert "no derivative that can be trusted" in result.left_out["everything linear of 1"]
    profile = result["profile"]
    assert profile["unit"].values.tolist() == ["0", "2"]
    assert numpy.isfinite(profile["jacobian_square"].values).all()
    assert profile.attrs["gradient"].startswith("not measured: ")
    assert numpy.isnan(profile["gradient_rms"].values).all()


def test_weights_without_values_are_refused() -> None:
    with pytest.raises(ss.InputError, match="meta"):
        ss.conditioning(nn.Sequential(nn.Linear(D, D)).to("meta"), torch.randn(4, D))
