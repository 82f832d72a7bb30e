"""How far the branches of a network are from what theorem 3.1 takes them for: F(h) = J h.

A branch with norms has constants, F(h) = dF/dh h + b(h), and a ReLU behind the sum cuts some of h off:

    step = exit - h = J h + M b(h) - (1 - M) h     with the ReLU's mask M and J = M dF/dh; M = 1 without such a ReLU

Of every block and image: |step - J h| / |step|, and |M b| / |step|, the share of a step that is bias.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from skipscope.papers.a.networks import AlignmentNet


@dataclass(frozen=True, eq=False)
class LinearBranches:
    """All (block, image)."""

    error: Tensor  # |step - J h| / |step|
    bias: Tensor  # |M b(h)| / |step|

    @property
    def median_error(self) -> float:
        return float(self.error.median())

    @property
    def median_bias(self) -> float:
        return float(self.bias.median())


@torch.no_grad()
def linear_branches(model: AlignmentNet | Any, images: Tensor) -> LinearBranches:
    """model: fully connected, in evaluation mode. Only products with Jacobians are computed."""
    state, errors, biases = model.stem(images), [], []
    blocks: list[Any] = [model.get_submodule(name) for name in model.blocks]
    for block in blocks:
        value, linear = _product(block.branch, state, state)
        total = state + value
        masked = _product(block.tail, total, linear)[1]
        constant = _product(block.tail, total, value - linear)[1]
        following = block(state)
        step = following - state
        length = torch.linalg.vector_norm(step, dim=1)
        errors.append(torch.linalg.vector_norm(step - masked, dim=1) / length)
        biases.append(torch.linalg.vector_norm(constant, dim=1) / length)
        state = following
    return LinearBranches(torch.stack(errors), torch.stack(biases))


def _product(function: Callable[[Tensor], Tensor], at: Tensor, direction: Tensor) -> tuple[Tensor, Tensor]:
    """The value of a function, and its Jacobian times a direction."""
    value, product, *_ = torch.func.jvp(function, (at,), (direction,))
    return value, product
