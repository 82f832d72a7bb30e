"""Condition numbers of weights and states against dense decompositions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import skipscope as ss
from skipscope.measure import state_conditions, weight_conditions
from tests.measure.nets import Net
from tests.trace.nets import Residual, mlp


def kappa(matrix: Tensor) -> float:
    values = torch.linalg.svdvals(matrix.detach().double())
    return float(values[0] / values[-1])


def test_weights() -> None:
    torch.manual_seed(0)
    model = Net()
    data = weight_conditions(model)
    assert data["parameter"].values.tolist() == [name for name, p in model.named_parameters() if p.dim() >= 2]
    weight = model.c.first.weight
    here = data.sel(parameter="c.first.weight")
    assert here["matrix"].item() == pytest.approx(kappa(weight.flatten(1)))
    assert here["hosvd"].item() == pytest.approx(max(kappa(weight.movedim(mode, 0).flatten(1)) for mode in range(4)))
    assert here["shape"].item() == "4 x 4 x 3 x 3"
    head = data.sel(parameter="head.weight")
    assert head["matrix"].item() == pytest.approx(head["hosvd"].item())
    with torch.no_grad():
        weight[0] = 0
    here = weight_conditions(model).sel(parameter="c.first.weight")
    assert here["matrix_status"].item() == "infinite"
    assert here["matrix_rank"].item() == 3


def test_parameters_that_have_no_condition_are_named() -> None:
    model = nn.Linear(3, 3)
    model.empty = nn.Parameter(torch.zeros(0, 4))
    model.wave = nn.Parameter(torch.zeros(2, 2, dtype=torch.complex64))
    data = weight_conditions(model)
    assert data["parameter"].values.tolist() == ["weight"]
    assert data.attrs["left_out"] == "empty; wave"
    with pytest.raises(ss.InputError, match="no weights"):
        weight_conditions(nn.ReLU())


def test_states_of_images_and_of_tokens() -> None:
    torch.manual_seed(0)
    model, x = Net(), torch.randn(5, 1, 8, 8)
    trunk = ss.trace(model, x)
    data = state_conditions(trunk, x)
    assert data["state"].values.tolist() == ["a", "b", "padded", "c", "projected", "exit of projected"]
    states = [state.transpose(0, 1).flatten(1) for state in trunk.at(x).states]
    for value, status, state in zip(data["condition"].values, data["condition_status"].values, states, strict=True):
        if status == "finite":
            assert value == pytest.approx(kappa(state), rel=1e-5)
    tokens = torch.randn(2, 5, 8)
    trunk = ss.trace(nn.Sequential(Residual(mlp())), tokens)
    assert state_conditions(trunk, tokens)["condition"][0].item() == pytest.approx(kappa(tokens.reshape(10, 8)))
