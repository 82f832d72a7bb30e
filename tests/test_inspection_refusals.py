"""A unit without a derivative is left out of what is linear, with the reason; the others are measured."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import skipscope as ss
from tests.trace.nets import Residual

D = 6


class Root(nn.Module):
    """Its derivative is infinite wherever the ReLU is at zero."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.linear(x)).sqrt()


def test_a_unit_without_a_derivative_is_left_out_with_the_reason() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Residual(nn.Linear(D, D)), Residual(Root()), Residual(nn.Linear(D, D)), nn.Linear(D, 3))
    x = torch.randn(4, D)
    result = ss.inspect(model, x, budget="1m")
    (reason,) = (why for what, why in result.left_out.items() if what == "everything linear of 1")
    assert "the derivative of 1 has NaN or infinite entries" in reason
    for name in ("profile", "verification", "stability", "spectra"):
        units = result[name]["unit"].values.tolist()
        assert "1" not in units
        assert {"0", "2"} <= set(units)


def test_a_model_all_of_whose_units_have_none_is_refused() -> None:
    with pytest.raises(ss.InputError, match="NaN or infinite entries"):
        ss.inspect(nn.Sequential(Residual(Root())), torch.randn(4, D), budget="1m")
