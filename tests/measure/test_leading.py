"""The largest singular values and estimated shares, against dense float64 Jacobians."""

from __future__ import annotations

import numpy
import torch
from torch import Tensor, nn

import skipscope as ss
from skipscope.measure.spectra import leading


class Net(nn.Module):
    """Two residual units with smooth branches; every singular value is known from a dense Jacobian."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, h: Tensor) -> Tensor:
        h = h + torch.tanh(self.first(h))
        return h + torch.tanh(self.second(h))


def dense(model: Net, x: Tensor) -> numpy.ndarray:
    """(unit, sample, index) by automatic differentiation of hand-written units."""
    model = model.double()

    def unit(layer: nn.Linear, h: Tensor) -> Tensor:
        return h + torch.tanh(layer(h))

    rows = []
    state = x.double()
    for layer in (model.first, model.second):
        jacobians = [torch.autograd.functional.jacobian(lambda h, layer=layer: unit(layer, h), one) for one in state]
        rows.append([torch.linalg.svdvals(jacobian).cpu().numpy() for jacobian in jacobians])
        state = unit(layer, state).detach()
    return numpy.array(rows)


def test_values_and_shares_are_those_of_the_dense_jacobians() -> None:
    torch.manual_seed(3)
    model, x = Net(60).double(), torch.randn(2, 60, dtype=torch.float64)
    found = leading(ss.trace(model, x), x, k=7)
    expected = dense(model, x)
    assert list(found["unit"].values) == ["first", "second"]
    assert bool(found["converged"].all())
    numpy.testing.assert_allclose(found["value"], expected[:, :, :7], atol=1e-8)
    # `steps` of 32 are fewer than the 60 values: the shares are estimates, with errors that must cover the truth.
    for name, inside in (
        ("share_above", expected > 1.01),
        ("share_near_one", (expected >= 0.99) & (expected <= 1.01)),
    ):
        error = numpy.abs(found[name] - inside.mean(2))
        assert bool((error <= 4 * found[f"{name}_error"] + 1e-12).all()), name


def test_more_values_than_there_are_leave_gaps() -> None:
    torch.manual_seed(0)
    model, x = Net(4).double(), torch.randn(2, 4, dtype=torch.float64)
    found = leading(ss.trace(model, x), x, k=6, units=["second"])
    assert found["value"].shape == (1, 2, 6)
    assert bool(found["value"].isel(rank=slice(4, None)).isnull().all())
    numpy.testing.assert_allclose(found["value"].isel(rank=slice(4)), dense(model, x)[1:], atol=1e-10)
