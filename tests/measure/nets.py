"""Small residual networks with every kind of skip that the law knows, and a dense float64 reference."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Unit(nn.Module):
    """relu(skip(x) + conv relu conv): Gaussian weights, an inner bias that makes the middle ReLU sparse."""

    def __init__(self, before: int, after: int, stride: int, bias: float, skip: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, padding=1)
        self.second = nn.Conv2d(after, after, 3, padding=1)
        self.skip = skip
        nn.init.normal_(self.first.weight, std=(9 * before) ** -0.5)
        nn.init.normal_(self.second.weight, std=(9 * after) ** -0.5)
        nn.init.constant_(self.first.bias, bias)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.skip(x) + self.second(torch.relu(self.first(x))))


def padded(x: Tensor) -> Tensor:
    """Every second place, a channel of zeros on either side."""
    return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 1, 1))


class Net(nn.Module):
    """A stem, two units, a padded and a projected one that halve the image, a head."""

    def __init__(self, bias: float = -1.5) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 2, 3, padding=1)
        self.a, self.b = (Unit(2, 2, 1, bias, lambda x: x) for _ in range(2))
        self.padded = Unit(2, 4, 2, bias, padded)
        self.c = Unit(4, 4, 1, bias, lambda x: x)
        self.projected = Unit(4, 4, 2, bias, nn.Conv2d(4, 4, 1, 2))
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.stem(x))
        for unit in (self.a, self.b, self.padded, self.c, self.projected):
            h = unit(h)
        return self.head(h.mean((2, 3)))


def dense(function: Callable[[Tensor], Tensor], states: Tensor) -> Tensor:
    """(B, m, n) by reverse mode, one sample at a time."""
    matrices = []
    for state in states:
        jacobian = torch.autograd.functional.jacobian(lambda h: function(h[None])[0], state)
        matrices.append(jacobian.reshape(-1, state.numel()))
    return torch.stack(matrices)
