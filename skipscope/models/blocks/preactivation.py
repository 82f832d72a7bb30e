"""Norm and activation before each convolution, so that nothing is done to the sum: shortcut(h) + conv relu norm ... h.

K. He, X. Zhang, S. Ren, J. Sun: Identity Mappings in Deep Residual Networks, ECCV 2016, figure 1 b. Where the shortcut
is a projection it starts behind the first norm and activation, which branch and shortcut then share, and has no norm
of its own (the authors' and all common implementations). The identity and the zero-padding shortcut start at h itself.
"""

from __future__ import annotations

from torch import Tensor, nn

from skipscope.models.blocks.block import Block, BlockPlan
from skipscope.models.blocks.shortcut import Projection


class PreactivationBlock(Block):
    """A branch in two parts: the first norm and activation, and the rest."""

    def rest(self, h: Tensor) -> Tensor:
        raise NotImplementedError

    def first(self, h: Tensor) -> Tensor:
        return self.activation(self.norm1(h))

    def branch(self, h: Tensor) -> Tensor:
        return self.rest(self.first(h))

    def tail(self, h: Tensor) -> Tensor:
        return h

    def forward(self, h: Tensor) -> Tensor:
        if isinstance(self.shortcut, Projection):
            return self._sum(self.shortcut, self.first(h), self.rest)
        return super().forward(h)


class Preactivation(PreactivationBlock):
    """Two 3 x 3 convolutions. inner: the channels between them; by default those of the stage."""

    def __init__(self, plan: BlockPlan, inner: int | None = None) -> None:
        super().__init__(plan)
        after, inner = plan.width, inner or plan.width
        self.norm1 = plan.norm(plan.before)
        self.conv1 = nn.Conv2d(plan.before, inner, 3, plan.stride, padding=1, bias=False)
        self.norm2 = plan.norm(inner)
        self.conv2 = nn.Conv2d(inner, after, 3, padding=1, bias=False)
        self.shortcut = plan.around(after, norm=False)

    def rest(self, h: Tensor) -> Tensor:
        h = self.activation(self.norm2(self.conv1(h)))
        return self.conv2(h)
