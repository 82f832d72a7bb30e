"""Logits by Jacobians at the decision boundary, against automatic differentiation of the whole network."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from skipscope.errors import InputError
from skipscope.papers.a.theory import boundary_points, linearised_logit
from skipscope.trace import Trunk, trace

WEIGHTS = torch.tensor([-1.0, 1.0], dtype=torch.float64)


class Residual(nn.Module):
    """A stem, three pre-activation units and a head."""

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.stem = nn.Linear(4, 6)
        self.inner = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))
        self.outer = nn.ModuleList(nn.Linear(6, 6, bias=False) for _ in range(3))
        self.head = nn.Linear(6, 2)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        h = self.activation(self.stem(x))
        for inner, outer in zip(self.inner, self.outer, strict=True):
            h = h + outer(self.activation(inner(h)))
        return self.head(h)


def network(activation: nn.Module) -> tuple[Residual, Trunk, Tensor, Tensor]:
    """With inputs of both signs of the logit."""
    torch.manual_seed(0)
    model = Residual(activation).double().eval()
    inputs = torch.randn(200, 4, dtype=torch.float64)
    with torch.no_grad():
        model.head.bias[1] -= (model(inputs) @ WEIGHTS).median()
        logits = model(inputs) @ WEIGHTS
    x, other = inputs[logits > 0][:8], inputs[logits < 0][:8]
    return model, trace(model, x[:2]), x, other


def test_boundary_points_are_on_the_boundary_and_on_the_segment() -> None:
    model, _, x, other = network(nn.Tanh())
    found = boundary_points(lambda batch: model(batch) @ WEIGHTS, x, other)
    assert float((model(found) @ WEIGHTS).detach().abs().max()) <= 1e-12
    share = ((found - x) * (other - x)).sum(1) / (other - x).square().sum(1)
    assert (found - torch.lerp(x, other, share[:, None])).abs().max() <= 1e-14
    assert 0 < float(share.min()) < float(share.max()) < 1


def test_products_along_the_trunk_are_the_derivative_of_the_whole() -> None:
    model, trunk, x, other = network(nn.Tanh())
    boundary = boundary_points(lambda batch: model(batch) @ WEIGHTS, x, other)
    found = linearised_logit(trunk, x, boundary, WEIGHTS)
    _, expected = torch.func.jvp(lambda batch: model(batch) @ WEIGHTS, (boundary,), (x - boundary,))
    assert (found.linearised - expected).abs().max() <= 1e-13
    assert (found.logit - model(x) @ WEIGHTS).abs().max() <= 1e-13
    assert float(found.at_boundary.abs().max()) <= 1e-12
    assert (found.distance - (x - boundary).norm(dim=1)).abs().max() <= 1e-14
    assert "8 inputs at distances" in str(found)


def test_the_error_falls_with_the_square_of_the_distance() -> None:
    model, trunk, x, other = network(nn.Tanh())
    boundary = boundary_points(lambda batch: model(batch) @ WEIGHTS, x, other)
    near, nearer = (
        linearised_logit(trunk, boundary + share * (x - boundary), boundary, WEIGHTS) for share in (1e-2, 1e-3)
    )
    ratio = (near.linearised - near.logit).abs().sum() / (nearer.linearised - nearer.logit).abs().sum()
    assert float(ratio) == pytest.approx(100, rel=0.2)


def test_a_linear_network_has_no_error() -> None:
    model, trunk, x, other = network(nn.Identity())
    boundary = boundary_points(lambda batch: model(batch) @ WEIGHTS, x, other)
    found = linearised_logit(trunk, x, boundary, WEIGHTS)
    assert float(found.relative_error.max()) <= 1e-11
    assert float(found.relative_error_from_first_state.max()) <= 1e-11


def test_from_the_first_state_the_stem_plays_no_part() -> None:
    """A stem that is far from linear and units that are linear: only the form without a stem is exact."""
    model, _, x, other = network(nn.Tanh())
    for layer in model.outer:
        nn.init.zeros_(layer.weight)
    with torch.no_grad():
        logits = model(torch.cat([x, other])) @ WEIGHTS
        model.head.bias[1] -= (logits[:8].min() + logits[8:].max()) / 2
        keep = (model(x) @ WEIGHTS > 0) & (model(other) @ WEIGHTS < 0)
    x, other = x[keep], other[keep]
    assert len(x)
    boundary = boundary_points(lambda batch: model(batch) @ WEIGHTS, x, other)
    found = linearised_logit(trace(model, x[:1]), x, boundary, WEIGHTS)
    assert float(found.relative_error_from_first_state.max()) <= 1e-10
    assert float(found.relative_error.max()) > 1e-3


def test_what_is_wrong_is_named() -> None:
    model, trunk, x, other = network(nn.Tanh())

    def logit(batch: Tensor) -> Tensor:
        return model(batch) @ WEIGHTS

    with pytest.raises(InputError, match="different signs"):
        boundary_points(logit, x, x)
    with pytest.raises(InputError, match="float64"):
        boundary_points(logit, x.float(), other.float())
    with pytest.raises(InputError, match="one logit per sample"):
        boundary_points(model, x, other)
    with pytest.raises(InputError, match="it jumps there"):
        boundary_points(lambda batch: logit(batch).sign(), x, other)
    with pytest.raises(InputError, match="of one shape"):
        linearised_logit(trunk, x, other[:2], WEIGHTS)
    with pytest.raises(InputError, match=r"weights of shape \(3,\)"):
        linearised_logit(trunk, x, other, torch.ones(3, dtype=torch.float64))
