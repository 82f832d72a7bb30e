"""What measurements do where a number is not defined or would mislead: the cases that no measurement's own tests have.

Steps of length zero, K above the rank, zero Jacobians, repeated values, signs, states of other shapes and single
samples are in tests/measure (test_alignment.py, test_trajectories.py, test_collapse.py).
"""

from __future__ import annotations

from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn

import skipscope as ss
from tests.trace.nets import Residual

N = 6
TOLD = "NaN or infinite entries, first in"


class Unit(nn.Module):
    """relu(h + B relu(A h))"""

    def __init__(self, width: int = N) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(N, width, bias=False), nn.Linear(width, N, bias=False)

    def forward(self, h: Tensor) -> Tensor:
        return torch.relu(h + self.second(torch.relu(self.first(h))))


def two_units() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(Unit(), Unit()).double()


# -- ReLU at exactly zero


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_relu_at_exactly_zero_has_no_slope(dtype: torch.dtype) -> None:
    """In forward and reverse mode, inside the branch and after the sum, alone and among others."""
    model = two_units().to(dtype)
    with torch.no_grad():
        model[0].first.weight.copy_(torch.eye(N))
        model[0].second.weight.copy_(torch.diag(torch.arange(1, N + 1)))
    x = torch.tensor([[0.0, -0.0, 1.0, 2.0, -3.0, 0.0], [0.0] * N], dtype=dtype)
    trunk = ss.trace(model, x)
    active = (x > 0).to(dtype)
    slopes = {"branch": torch.arange(1, N + 1).to(x), "unit": 1 + torch.arange(1, N + 1).to(x)}
    unit, eye = trunk[0], torch.eye(N, dtype=dtype).expand(2, N, N)
    for part, slope in slopes.items():
        J = unit.jacobian(x, of=part, tail=part == "branch")
        expected = torch.diag_embed(active * slope)
        assert torch.equal(J.matmat(eye.contiguous()), expected)
        assert torch.equal(J.rmatmat(eye.contiguous()), expected)
    assert torch.equal(unit.jacobian(x, of="branch").dense(), torch.diag_embed(active * slopes["branch"]))
    counted = ss.law(trunk, x, units=[0])
    assert counted["inactive"].values.tolist() == [[4, 6]]
    assert counted["zeros"].values.tolist() == [[4, 6]]
    assert not counted["violated"].any()
    found = ss.alignment(trunk, x, k=3)
    assert found["numerical_rank"][0].values.tolist() == [2, 0]
    assert found["reason_ujv"][0, 0].values.tolist() == ["", "zero Jacobian"]


# -- values that are not finite


@pytest.mark.parametrize("measure", ["alignment", "law", "profile", "spectra", "trajectories"])
@pytest.mark.parametrize("bad", ["entry", "weight"])
def test_values_that_are_not_finite_are_refused_by_all(measure: str, bad: str, trunk: ss.Trunk) -> None:
    """An entry of the batch, or a weight that spoils the last state alone."""
    x = torch.ones(3, N, dtype=torch.float64)
    weight = trunk.model.get_parameter("1.second.weight").data
    kept = weight.clone()
    if bad == "entry":
        x[1, 0] = float("inf")
    else:
        weight[0] = float("nan")
    try:
        with pytest.raises(ss.InputError, match=TOLD):
            getattr(ss, measure)(trunk, x)
    finally:
        weight.copy_(kept)


@pytest.fixture(scope="module")
def trunk() -> ss.Trunk:
    return ss.trace(two_units(), torch.randn(3, N, dtype=torch.float64))


# -- batch norm in training mode


def normalised() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    branches = (nn.Sequential(nn.Linear(N, N), nn.BatchNorm1d(N)) for _ in range(3))
    model = nn.Sequential(*map(Residual, branches), nn.Linear(N, 2)).double()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            nn.init.uniform_(module.running_mean, -1, 1)  # type: ignore[arg-type]
            nn.init.uniform_(module.running_var, 0.5, 2)  # type: ignore[arg-type]
    return model, torch.randn(8, N, dtype=torch.float64)


def test_paths_and_collapse_of_a_model_in_training_mode_are_those_of_evaluation_mode() -> None:
    model, x = normalised()
    labels = torch.arange(8) % 2
    found: list[Any] = []
    for training in (True, False):
        model.train(training)
        found.append((ss.trajectories(ss.trace(model, x), x), ss.collapse(model, (x, labels), batch=3)))
    for one, other in zip(*found, strict=True):
        assert one.identical(other)
    states, h = [x], x
    for unit in model[:3]:
        h = unit(h)
        states.append(h)
    steps = torch.stack(states).diff(dim=0)  # unit, sample, N
    expected = 3 / (steps / steps.norm(dim=2, keepdim=True)).sum(0).norm(dim=1)
    numpy.testing.assert_allclose(found[0][0]["line_shape"][0], expected.detach().cpu(), rtol=1e-12)


def test_paths_and_collapse_of_batch_statistics_are_refused() -> None:
    branches = (nn.Sequential(nn.Linear(N, N), nn.BatchNorm1d(N, track_running_stats=False)) for _ in range(2))
    model, x = nn.Sequential(*map(Residual, branches), nn.Linear(N, 2)), torch.randn(8, N)
    trunk = ss.trace(model, x)
    with pytest.raises(ss.InputError, match=r"0\.branch\.1 is a batch norm without running statistics"):
        ss.trajectories(trunk, x)
    with pytest.raises(ss.InputError, match="what one sample gives depends on the others"):
        ss.collapse(model, (x, torch.arange(8) % 2))


# -- ranks of float32 models


def test_the_rank_of_a_float32_model_is_counted_in_float64() -> None:
    """Two inner entries make a branch of rank 2; in float32 rounding would fill up the rest."""
    torch.manual_seed(0)
    model, x = nn.Sequential(Residual(nn.Sequential(nn.Linear(40, 2), nn.Linear(2, 40)))), torch.randn(2, 40)
    trunk = ss.trace(model, x)
    found = ss.alignment(trunk, x, k=5)
    assert found["arithmetic"].values.tolist() == ["float64"]
    assert found.attrs["dtype"] == "float32"
    assert found["numerical_rank"].values.tolist() == [[2, 2]]
    assert found["k_used"].values.tolist() == [[2, 2]]
    assert float(found["value"][..., 2:].max()) < 1e-14 * float(found["value"].max()) * 40
    single = torch.linalg.svdvals(trunk[0].jacobian(x, of="branch").dense())
    assert float(single[0, 2]) > 1e-12 * float(single[0, 0])
