"""The bottleneck with norm and activation before each convolution, as in the 164- and 1001-layer networks of

K. He, X. Zhang, S. Ren, J. Sun: Identity Mappings in Deep Residual Networks, ECCV 2016.
"""

from __future__ import annotations

from torch import Tensor, nn

from skipscope.models.blocks.block import BlockPlan
from skipscope.models.blocks.preactivation import PreactivationBlock


class PreactivationBottleneck(PreactivationBlock):
    """inner: the channels of the 3 x 3 convolution, by default those of the stage. groups: into how many it is cut."""

    expansion = 4
    layers = 3

    def __init__(self, plan: BlockPlan, inner: int | None = None, groups: int = 1) -> None:
        super().__init__(plan)
        after, inner = self.expansion * plan.width, inner or plan.width
        self.norm1 = plan.norm(plan.before)
        self.conv1 = nn.Conv2d(plan.before, inner, 1, bias=False)
        self.norm2 = plan.norm(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, plan.stride, padding=1, groups=groups, bias=False)
        self.norm3 = plan.norm(inner)
        self.conv3 = nn.Conv2d(inner, after, 1, bias=False)
        self.shortcut = plan.around(after, norm=False)

    def rest(self, h: Tensor) -> Tensor:
        h = self.activation(self.norm2(self.conv1(h)))
        h = self.activation(self.norm3(self.conv2(h)))
        return self.conv3(h)
