"""Every unit passes; the control does not, and neither does a network whose derivative is cut."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import skipscope as ss
from skipscope.measure import verification
from skipscope.measure.verification import verification_of
from tests.measure.nets import Net
from tests.trace.nets import Residual


def test_units_pass_and_the_control_does_not() -> None:
    torch.manual_seed(0)
    model, x = Net(), torch.randn(2, 1, 8, 8)
    data = verification(ss.trace(model, x), x)
    assert data["passed"].values.tolist() == [1] * 5
    assert (data["adjoint_error"] <= data["adjoint_tolerance"]).all()
    assert data["slope_zeroth"].values == pytest.approx([1] * 5, abs=0.1)
    assert set(data["seen"].values) <= {"piecewise linear", "linear"}
    assert data["skip"].values.tolist() == ["identity", "identity", "pad", "identity", "projection"]
    assert data.attrs["control_passed"] == 0
    assert data.attrs["control_unit"] == "a"


def test_smooth_units_have_slopes_one_and_two() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 6)
    model = nn.Sequential(*(Residual(nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6))) for _ in range(2)))
    data = verification(ss.trace(model, x), x, units=[1])
    assert data["unit"].values.tolist() == ["1"]
    assert data["seen"].item() == "smooth"
    assert data["slope_first"].item() == pytest.approx(2, abs=0.1)


def test_a_wrong_derivative_is_caught() -> None:
    def cut(x: Tensor) -> Tensor:
        return x + x * x.detach()

    state = torch.randn(2, 6, dtype=torch.float64)
    data = verification_of({"right": ss.Jacobian(torch.sin, state), "cut": ss.Jacobian(cut, state)})
    assert data["passed"].values.tolist() == [1, 0]
    assert data["seen"].values.tolist()[1] == "wrong"
    with pytest.raises(ss.InputError, match="nothing to test"):
        verification_of({"matrix": ss.Dense(torch.eye(2))})
