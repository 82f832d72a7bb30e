"""The residual networks of He et al. for small images (6 n + 2 layers), and their plain twins.

    stem      convolution 3 x 3, batch norm, ReLU
    3 stages  n blocks each: exit = relu(shortcut(h) + F(h)), F = norm conv relu norm conv; the first block of the
              second and third stage halves the image
    head      mean over the image, linear classifier

The shortcut is the identity where the shape stays. Where it changes, "pad" takes every second place and fills up with
zero channels (no weights), "projection" is a 1 x 1 convolution with batch norm. Without skips (`skips=False`) a block
is relu(F(h)): the plain twin. With "pad" both have the same weights, and one seed gives both the same initial values.

K. He, X. Zhang, S. Ren, J. Sun: Deep Residual Learning for Image Recognition, CVPR 2016, section 4.2.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from skipscope.errors import InputError

SHORTCUTS = ("pad", "projection")


class Pad(nn.Module):
    """Every second place, and channels of zeros behind the given ones."""

    def __init__(self, extra: int, stride: int) -> None:
        super().__init__()
        self.extra, self.stride = extra, stride

    def forward(self, h: Tensor) -> Tensor:
        return F.pad(h[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.extra))


class Block(nn.Module):
    """Two convolutions, with a shortcut around them or without."""

    def __init__(self, before: int, after: int, stride: int, shortcut: str | None) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(after)
        self.shortcut: nn.Module | None = None
        if shortcut is not None:
            # What a projection draws must not move the draws of the blocks after it: see ResNet._initialise.
            with torch.random.fork_rng(devices=[]):
                self.shortcut = _shortcut(before, after, stride, shortcut)

    def forward(self, h: Tensor) -> Tensor:
        branch = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(h)))))
        return F.relu(branch if self.shortcut is None else self.shortcut(h) + branch)


class ResNet(nn.Module):
    """depth: 6 n + 2. channels: of the three stages. skips: False for the plain twin."""

    def __init__(
        self,
        depth: int = 20,
        *,
        channels: Sequence[int] = (16, 32, 64),
        input_channels: int = 3,
        classes: int = 10,
        skips: bool = True,
        shortcut: str = "pad",
    ) -> None:
        super().__init__()
        if depth < 8 or depth % 6 != 2:
            raise InputError(f"ResNet: expected a depth of 6 n + 2, such as 20, 32 or 56, got {depth}")
        if shortcut not in SHORTCUTS:
            raise InputError(f"ResNet: expected shortcut to be one of {', '.join(SHORTCUTS)}, got {shortcut!r}")
        if len(channels) != 3 or list(channels) != sorted(channels) or channels[0] < 1:
            raise InputError(f"ResNet: expected the channels of three stages, none below the last, got {channels}")
        self.depth, self.skips = depth, skips
        self.conv = nn.Conv2d(input_channels, channels[0], 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels[0])
        stages = []
        before = channels[0]
        for stage, after in enumerate(channels):
            blocks = []
            for index in range((depth - 2) // 6):
                stride = 2 if stage > 0 and index == 0 else 1
                blocks.append(Block(before, after, stride, shortcut if skips else None))
                before = after
            stages.append(nn.Sequential(*blocks))
        self.stage1, self.stage2, self.stage3 = stages
        self.classifier = nn.Linear(before, classes)
        self._initialise()

    @property
    def blocks(self) -> dict[str, Block]:
        """All blocks in their order, by the names that a trunk gives its units."""
        return {name: module for name, module in self.named_modules() if isinstance(module, Block)}

    def stem(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(self.conv(x)))

    def head(self, h: Tensor) -> Tensor:
        return self.classifier(h.mean((2, 3)))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.stage3(self.stage2(self.stage1(self.stem(x)))))

    def _initialise(self) -> None:
        """He et al.'s normal weights; those on shortcuts are drawn last, so that a twin without them gets the same."""
        convolutions = [(name, m) for name, m in self.named_modules() if isinstance(m, nn.Conv2d)]
        convolutions.sort(key=lambda named: "shortcut" in named[0])
        nn.init.normal_(self.classifier.weight, std=self.classifier.in_features**-0.5)
        nn.init.zeros_(self.classifier.bias)
        for _, convolution in convolutions:
            nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")


def _shortcut(before: int, after: int, stride: int, kind: str) -> nn.Module:
    if before == after and stride == 1:
        return nn.Identity()
    if kind == "pad":
        return Pad(after - before, stride)
    return nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))
