"""The way around a block: the identity where the shape stays; where it changes, zeros or a projection.

K. He, X. Zhang, S. Ren, J. Sun: Deep Residual Learning for Image Recognition, CVPR 2016, options A and B.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F


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


def shortcut_around(before: int, after: int, stride: int, kind: str, norm: bool) -> nn.Module:
    if before == after and stride == 1:
        return nn.Identity()
    if kind == "pad":
        return Pad(after - before, stride)
    return Projection(before, after, stride, norm)
