"""Numbers of states, and of operators from random probes, that several measurements share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from skipscope.errors import InputError
from skipscope.linear import Operator
from skipscope.numerics import normal, signs


def rms(state: Tensor) -> Tensor:
    """|h| / sqrt(n) of every sample: (B, n) -> (B,)."""
    return norm(state) / state.shape[1] ** 0.5


def norm(state: Tensor) -> Tensor:
    """|h| of every sample: (B, n) -> (B,). Squares of numbers near 1e-200 or 1e200 would be none."""
    largest = _largest(state)
    return largest[:, 0] * (state / largest).norm(dim=1)


def direction(state: Tensor) -> Tensor:
    """h / |h| of every sample: (B, n); NaN for a state of zeros."""
    state = state / _largest(state)
    return state / state.norm(dim=1, keepdim=True)


def _largest(state: Tensor) -> Tensor:
    """(B, 1): the largest entry in magnitude; 1 for a state of zeros."""
    largest = state.abs().amax(1, keepdim=True)
    return torch.where(largest > 0, largest, 1.0)


def effective_rank(state: Tensor) -> Tensor:
    """exp of the entropy of the squared singular values of (B, n), from the Gram matrix of the samples."""
    state = state / _largest(state).amax()
    squares = torch.linalg.eigvalsh(state @ state.mT).clamp_min(0)
    shares = squares / squares.sum()
    return torch.exp(torch.special.entr(shares).sum())


def mean_square(J: Operator, probes: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """|J|_F^2 / n and its standard error, per sample: E |J z|^2 = |J|_F^2 for signs z."""
    batch, _, n = J.shape
    vectors = signs((batch, n, probes), generator).to(J.dtype)
    squares = J.matmat(vectors.to(J.device)).double().square().sum(1) / n  # B, probes
    return squares.mean(1), squares.std(1) / probes**0.5


def along_random_direction(batch: int, generator: torch.Generator) -> Callable[[Any], Tensor]:
    """A scalar of a model's output: its product with a random direction of about unit length per sample."""

    def scalar(output: Any) -> Tensor:
        leaves = [
            t for t in pytree.tree_leaves(output) if isinstance(t, Tensor) and t.is_floating_point() and t.requires_grad
        ]
        if not leaves:
            raise InputError("the model's output has no float tensor that depends on its states; pass loss=")
        main = leaves[0]
        direction = normal(main.shape, generator).to(main)
        return (main * direction).sum() / (main.numel() / batch) ** 0.5

    return scalar
