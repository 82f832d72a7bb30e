"""The blocks of the first residual networks: norm after each layer, and an activation after the sum.

K. He, X. Zhang, S. Ren, J. Sun: Deep Residual Learning for Image Recognition, CVPR 2016, figure 5.
"""

from __future__ import annotations

from torch import Tensor, nn

from skipscope.models.blocks.block import Block, BlockPlan


class Basic(Block):
    """Two 3 x 3 convolutions: relu(shortcut(h) + norm conv relu norm conv h)."""

    def __init__(self, plan: BlockPlan) -> None:
        super().__init__(plan)
        self.conv1 = plan.convolution(plan.before, plan.inner, 3, plan.stride)
        self.norm1 = plan.norm(plan.inner)
        self.conv2 = plan.convolution(plan.inner, plan.width, 3)
        self.norm2 = plan.norm(plan.width)
        self.shortcut = plan.around(plan.width)

    def branch(self, h: Tensor) -> Tensor:
        h = self.activation(self.norm1(self.conv1(h)))
        return self.norm2(self.conv2(h))


class Bottleneck(Block):
    """The 3 x 3 convolution is computed on a quarter of the channels: 1 x 1 down, 3 x 3, 1 x 1 up.

    The stride is on the 3 x 3 convolution, as in later implementations (the paper's own has it on the first, which then
    drops three quarters of what it is given).
    """

    expansion = 4
    layers = 3

    def __init__(self, plan: BlockPlan) -> None:
        super().__init__(plan)
        after, inner = self.expansion * plan.width, plan.inner
        self.conv1 = nn.Conv2d(plan.before, inner, 1, bias=False)
        self.norm1 = plan.norm(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, plan.stride, padding=1, groups=plan.cardinality, bias=False)
        self.norm2 = plan.norm(inner)
        self.conv3 = nn.Conv2d(inner, after, 1, bias=False)
        self.norm3 = plan.norm(after)
        self.shortcut = plan.around(after)

    def branch(self, h: Tensor) -> Tensor:
        h = self.activation(self.norm1(self.conv1(h)))
        h = self.activation(self.norm2(self.conv2(h)))
        return self.norm3(self.conv3(h))


class Connected(Block):
    """Fully connected: relu(shortcut(h) + norm W2 relu norm W1 h), on vectors of one width.

    J. Li, V. Papyan: Residual Alignment, NeurIPS 2023, type 1.
    """

    def __init__(self, plan: BlockPlan) -> None:
        super().__init__(plan)
        self.linear1 = plan.matrix(plan.before, plan.inner)
        self.norm1 = plan.norm(plan.inner)
        self.linear2 = plan.matrix(plan.inner, plan.width)
        self.norm2 = plan.norm(plan.width)
        self.shortcut = plan.around(plan.width)

    def branch(self, h: Tensor) -> Tensor:
        h = self.activation(self.norm1(self.linear1(h)))
        return self.norm2(self.linear2(h))
