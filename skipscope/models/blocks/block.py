"""What all blocks share: exit = tail(shortcut(h) + scale * branch(h)), and the chance to lose the branch in training.

Stochastic depth (G. Huang, Y. Sun, Z. Liu, D. Sedra, K. Weinberger: Deep Networks with Stochastic Depth, ECCV 2016)
drops the branch of a block for a whole batch with probability 1 - survival; a dropped branch is not computed. The paper
multiplies the branch by its survival in evaluation; here it is divided by it in training, which gives the same
expectation and leaves the evaluated network, the one that is measured, the same function of its weights as without.
Per sample, each sample of a batch has a draw of its own, made on its device; the branch and its norms see all samples.

The shortcut is the identity where the shape stays; where it changes, zeros or a projection: options A and B of K. He,
X. Zhang, S. Ren, J. Sun: Deep Residual Learning for Image Recognition, CVPR 2016.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from skipscope.models.blocks.dirac import DiracConv2d, DiracLinear


def linear(h: Tensor) -> Tensor:
    """No activation: the linear networks of the theory."""
    return h


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "linear": linear, "tanh": torch.tanh}


class Pad(nn.Module):
    """Every second place, and channels of zeros: half of them in front, half (and an odd one) behind. No weights."""

    def __init__(self, extra: int, stride: int) -> None:
        super().__init__()
        self.front, self.behind, self.stride = extra // 2, extra - extra // 2, stride

    def forward(self, h: Tensor) -> Tensor:
        return F.pad(h[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.front, self.behind))


class Projection(nn.Sequential):
    """A convolution of one place, with a norm behind it where asked."""

    def __init__(self, before: int, after: int, stride: int, norm: bool) -> None:
        convolution = nn.Conv2d(before, after, 1, stride, bias=False)
        super().__init__(convolution, *([nn.BatchNorm2d(after)] if norm else []))


class Weakened(nn.Module):
    """The identity times a factor below 1: a skip between none and a whole one."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, h: Tensor) -> Tensor:
        return self.factor * h

    def extra_repr(self) -> str:
        return f"factor={self.factor}"


@dataclass(frozen=True)
class BlockPlan:
    """What a network says to each of its blocks."""

    before: int  # channels that enter
    width: int  # channels of the stage; `Block.expansion` times as many leave
    stride: int = 1
    shortcut: str | None = "pad"  # None: no skip
    batch_norm: bool = True
    activation: str = "relu"
    cardinality: int = 1
    group_width: int = 0  # channels of one path of this stage, where there is more than one
    convolutions: int = 2  # on the branch, of a block that can have any number of them
    survival: float = 1.0
    per_sample: bool = False  # the draws of stochastic depth
    flat: bool = False  # states are vectors, not images
    scale: float = 1.0  # of the branch, before it is added to the shortcut
    skip_factor: float = 1.0  # of the identity
    parametrisation: str | None = None  # of convolutions and matrices: see `dirac.py`

    @property
    def inner(self) -> int:
        """Channels inside the branch: those of all paths side by side; of one path those of the stage."""
        return self.cardinality * self.group_width if self.cardinality > 1 else self.width

    def convolution(self, before: int, after: int, size: int, stride: int = 1) -> nn.Conv2d:
        """Without a bias; images keep their size but for the stride."""
        if self.parametrisation is None:
            return nn.Conv2d(before, after, size, stride, padding=size // 2, bias=False)
        return DiracConv2d(before, after, size, stride, self.parametrisation)

    def matrix(self, before: int, after: int) -> nn.Linear:
        """Without a bias."""
        if self.parametrisation is None:
            return nn.Linear(before, after, bias=False)
        return DiracLinear(before, after, self.parametrisation)

    def norm(self, channels: int) -> nn.Module:
        if not self.batch_norm:
            return nn.Identity()
        return nn.BatchNorm1d(channels) if self.flat else nn.BatchNorm2d(channels)

    def around(self, after: int, norm: bool = True) -> nn.Module | None:
        """The shortcut to `after` channels. What it draws must not move the draws of later blocks: see ResNet."""
        if self.shortcut is None:
            return None
        if self.before == after and self.stride == 1:
            return nn.Identity() if self.skip_factor == 1 else Weakened(self.skip_factor)
        if self.shortcut == "pad":
            return Pad(after - self.before, self.stride)
        gpus = [torch.cuda.current_device()] if torch.get_default_device().type == "cuda" else []
        with torch.random.fork_rng(devices=gpus):
            return Projection(self.before, after, self.stride, norm and self.batch_norm)


class Block(nn.Module):
    """A subclass makes its layers and says what its branch is.

    Convolutions have no bias, with batch norm (which has one) and without, so that weights and twins stay comparable.
    """

    expansion: ClassVar[int] = 1  # channels that leave, over the width of the stage
    layers: ClassVar[int] = 2  # with weights, on the branch
    norm1: nn.Module
    shortcut: nn.Module | None

    def __init__(self, plan: BlockPlan) -> None:
        super().__init__()
        self.activation, self.survival, self.per_sample = ACTIVATIONS[plan.activation], plan.survival, plan.per_sample
        self._scale = plan.scale

    def branch(self, h: Tensor) -> Tensor:
        """Before it is scaled."""
        raise NotImplementedError

    def ending(self) -> nn.Module:
        """What stands last on the branch and has weights: a norm, or a convolution or matrix without a norm behind."""
        branch = [child for name, child in self.named_children() if name != "shortcut"]
        return next(child for child in reversed(branch) if any(True for _ in child.parameters()))

    def extra_repr(self) -> str:
        return "" if self._scale == 1 else f"scale={self._scale}"

    def tail(self, h: Tensor) -> Tensor:
        """After the sum."""
        return self.activation(h)

    def forward(self, h: Tensor) -> Tensor:
        return self.tail(self._sum(self.shortcut, h, self.branch))

    def _sum(self, shortcut: nn.Module | None, h: Tensor, branch: Callable[[Tensor], Tensor]) -> Tensor:
        if shortcut is None:
            return branch(h)
        if not self.training or self.survival == 1:
            return shortcut(h) + self._scaled(branch(h))
        if self.per_sample:
            kept = torch.rand(len(h), *[1] * (h.dim() - 1), device=h.device) < self.survival
            return shortcut(h) + self._scaled(branch(h)) * kept / self.survival
        # Drawn on the CPU: a device would have to be waited for.
        if torch.rand((), device="cpu").item() >= self.survival:
            return shortcut(h)
        return shortcut(h) + self._scaled(branch(h)) / self.survival

    def _scaled(self, h: Tensor) -> Tensor:
        return h if self._scale == 1 else self._scale * h
