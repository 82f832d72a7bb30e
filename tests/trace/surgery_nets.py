"""Small units to operate on, and the same functions written by hand."""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import skipscope as ss
from tests.measure.nets import Unit


class Block(nn.Module):
    """The basic block of a residual network, in evaluation mode with statistics that are not 0 and 1."""

    def __init__(self, channels: int = 2) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))
        self.norm1, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)
        for norm in (self.norm1, self.norm2):
            nn.init.normal_(norm.running_mean, std=0.3)
            nn.init.uniform_(norm.running_var, 0.5, 1.5)
            nn.init.uniform_(norm.weight, 0.5, 1.5)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.norm2(self.second(torch.relu(self.norm1(self.first(x))))))


def by_hand(block: Block, h: Tensor, alpha: float, first: Tensor, second: Tensor) -> Tensor:
    """Written out with functions, in the type of h."""

    def norm(of: nn.BatchNorm2d, z: Tensor) -> Tensor:
        mean, var, gamma, beta = (
            v.detach().to(h)[None, :, None, None] for v in (of.running_mean, of.running_var, of.weight, of.bias)
        )
        return (z - mean) / (var + of.eps).sqrt() * gamma + beta

    middle = torch.relu(norm(block.norm1, F.conv2d(h, first.to(h), padding=1)))
    return torch.relu(alpha * h + norm(block.norm2, F.conv2d(middle, second.to(h), padding=1)))


@cache
def net() -> tuple[nn.Sequential, Tensor, ss.Trunk]:
    """float32, as models come."""
    torch.manual_seed(0)
    model, x = nn.Sequential(Block(), Block()).eval(), torch.randn(2, 2, 5, 5)
    return model, x, ss.trace(model, x)


def sparse() -> tuple[Unit, Tensor, ss.Unit]:
    """Few active entries between the convolutions."""
    torch.manual_seed(3)
    model, x = Unit(4, 4, 1, -2.0, lambda h: h).double(), torch.randn(2, 4, 8, 8).double()
    return model, x, ss.trace(nn.Sequential(model), x)[0]
