"""The first two derivatives of an activation at zero, and where they come from.

Theorem 2 asks for derivatives at zero. A ReLU has none: automatic differentiation takes 0 there, which makes the whole
Hessian zero; the paper has a smooth approximation in mind, whose slope is a choice. Whichever is used is recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from skipscope.errors import InputError

Activation = Callable[[Tensor], Tensor]

DIFFERENCE_STEP = 1e-6  # of the one-sided difference quotients that tell a kink from a bend
KINK_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Slope:
    """An activation at zero."""

    place: str  # "mid" or "post"
    name: str
    value: float
    curvature: float
    source: str  # "derivative", or for a kink: "choice" or "automatic differentiation"

    def __str__(self) -> str:
        if self.source == "derivative":
            return f"{self.place}: {self.name}, slope {self.value:g} at zero"
        return f"{self.place}: {self.name}, not differentiable at zero; slope {self.value:g} by {self.source}"


def slope_at_zero(place: str, activation: Activation, relu_slope: float | None) -> Slope:
    """relu_slope: what a kink has instead of a derivative (and no curvature); None: what autograd takes."""
    name = getattr(activation, "__name__", type(activation).__name__)
    around = torch.tensor([-DIFFERENCE_STEP, 0.0, DIFFERENCE_STEP], dtype=torch.float64)
    before, at, after = (float(activation(x)) for x in around)
    if at != 0:
        raise InputError(
            f"expected a {place} activation that is 0 at 0 (the theorem's assumption), got {name}(0) = {at}"
        )
    if abs((after - at) - (at - before)) <= KINK_TOLERANCE * max(DIFFERENCE_STEP, abs(after - at)):
        return Slope(place, name, *_derivatives(activation), "derivative")
    if relu_slope is None:
        return Slope(place, name, *_derivatives(activation), "automatic differentiation")
    return Slope(place, name, float(relu_slope), 0.0, "choice")


def _derivatives(activation: Activation) -> tuple[float, float]:
    x = torch.zeros((), dtype=torch.float64, requires_grad=True)
    with torch.enable_grad():
        first = _derivative(activation(x.clone()), x)
        return float(first.detach()), float(_derivative(first, x).detach())


def _derivative(y: Tensor, x: Tensor) -> Tensor:
    if not y.requires_grad:
        return torch.zeros_like(y)
    (derivative,) = torch.autograd.grad(y, x, create_graph=True, allow_unused=True, materialize_grads=True)
    return derivative


def along(activation: Activation, X: Tensor) -> Tensor:
    """The derivative of an activation at every entry of X."""
    X = X.detach().clone().requires_grad_()
    with torch.enable_grad():
        return _derivative(activation(X.clone()).sum(), X).detach()
