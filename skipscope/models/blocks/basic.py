"""The block of two 3 x 3 convolutions: relu(shortcut(h) + norm conv relu norm conv h).

K. He, X. Zhang, S. Ren, J. Sun: Deep Residual Learning for Image Recognition, CVPR 2016, figure 5 left.
"""

from __future__ import annotations

from torch import Tensor

from skipscope.models.blocks.block import Block, BlockPlan


class Basic(Block):
    """inner: the channels between the two convolutions; by default those of the stage."""

    def __init__(self, plan: BlockPlan, inner: int | None = None) -> None:
        super().__init__(plan)
        after, inner = plan.width, inner or plan.width
        self.conv1 = plan.convolution(plan.before, inner, 3, plan.stride)
        self.norm1 = plan.norm(inner)
        self.conv2 = plan.convolution(inner, after, 3)
        self.norm2 = plan.norm(after)
        self.shortcut = plan.around(after)

    def branch(self, h: Tensor) -> Tensor:
        h = self.activation(self.norm1(self.conv1(h)))
        return self.norm2(self.conv2(h))
