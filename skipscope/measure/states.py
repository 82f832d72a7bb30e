"""Numbers of states, and of operators from random probes, that several measurements share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from skipscope.errors import InputError
from skipscope.linear import Operator


def by_sample(tensor: Tensor, axis: int) -> Tensor:
    """(B, n) in float64; axis: that of the samples."""
    return tensor.detach().movedim(axis, 0).flatten(1).double()


def rms(state: Tensor) -> Tensor:
    """|h| / sqrt(n) of every sample: (B, n) -> (B,)."""
    return state.square().mean(1).sqrt()


def effective_rank(state: Tensor) -> Tensor:
    """exp of the entropy of the squared singular values of (B, n), from the Gram matrix of the samples."""
    squares = torch.linalg.eigvalsh(state @ state.mT).clamp_min(0)
    shares = squares / squares.sum()
    return torch.exp(torch.special.entr(shares).sum())


def mean_square(J: Operator, probes: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """|J|_F^2 / n and its standard error, per sample: E |J z|^2 = |J|_F^2 for signs z."""
    batch, _, n = J.shape
    signs = torch.randint(0, 2, (batch, n, probes), generator=generator, device="cpu").mul(2).sub(1).to(J.dtype)
    squares = J.matmat(signs.to(J.device)).double().square().sum(1) / n  # B, probes
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
        direction = torch.randn(main.shape, generator=generator, dtype=torch.float64, device="cpu").to(main)
        return (main * direction).sum() / (main.numel() / batch) ** 0.5

    return scalar
