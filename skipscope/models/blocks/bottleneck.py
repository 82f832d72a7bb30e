"""The block that computes its 3 x 3 convolution on a quarter of the channels: 1 x 1 down, 3 x 3, 1 x 1 up.

K. He, X. Zhang, S. Ren, J. Sun: Deep Residual Learning for Image Recognition, CVPR 2016, figure 5 right. The stride is
on the 3 x 3 convolution, as in later implementations (the paper's own has it on the first, which then drops three
quarters of what it is given).
"""

from __future__ import annotations

from torch import Tensor, nn

from skipscope.models.blocks.block import Block, BlockPlan


class Bottleneck(Block):
    """inner: the channels of the 3 x 3 convolution, by default those of the stage. groups: into how many it is cut."""

    expansion = 4
    layers = 3

    def __init__(self, plan: BlockPlan, inner: int | None = None, groups: int = 1) -> None:
        super().__init__(plan)
        after, inner = self.expansion * plan.width, inner or plan.width
        self.conv1 = nn.Conv2d(plan.before, inner, 1, bias=False)
        self.norm1 = plan.norm(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, plan.stride, padding=1, groups=groups, bias=False)
        self.norm2 = plan.norm(inner)
        self.conv3 = nn.Conv2d(inner, after, 1, bias=False)
        self.norm3 = plan.norm(after)
        self.shortcut = plan.around(after)

    def branch(self, h: Tensor) -> Tensor:
        h = self.activation(self.norm1(self.conv1(h)))
        h = self.activation(self.norm2(self.conv2(h)))
        return self.norm3(self.conv3(h))
