"""Norm and activation before each convolution, so that nothing is done to the sum: shortcut(h) + conv relu norm ... h.

K. He, X. Zhang, S. Ren, J. Sun: Identity Mappings in Deep Residual Networks, ECCV 2016, figure 1 b. Where the shortcut
is a projection it starts behind the first norm and activation, which branch and shortcut then share, and has no norm
of its own (the authors' and all common implementations). The identity and the zero-padding shortcut start at h itself.
"""

from __future__ import annotations

from itertools import pairwise

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
    """3 x 3 convolutions, two unless the plan says otherwise. inner: the channels between them; by default the stage's.

    The number of convolutions under one shortcut is the shortcut depth of

    S. Li, J. Jiao, Y. Han, T. Weissman: Demystifying ResNet, figure 9.
    """

    def __init__(self, plan: BlockPlan, inner: int | None = None) -> None:
        super().__init__(plan)
        between = [inner or plan.width] * (plan.convolutions - 1)
        channels = [plan.before, *between, plan.width]
        for number, (entering, leaving) in enumerate(pairwise(channels), 1):
            stride = plan.stride if number == 1 else 1
            self.add_module(f"norm{number}", plan.norm(entering))
            self.add_module(f"conv{number}", nn.Conv2d(entering, leaving, 3, stride, padding=1, bias=False))
        self.convolutions = plan.convolutions
        self.shortcut = plan.around(plan.width, norm=False)

    def rest(self, h: Tensor) -> Tensor:
        for number in range(1, self.convolutions + 1):
            if number > 1:
                h = self.activation(self.get_submodule(f"norm{number}")(h))
            h = self.get_submodule(f"conv{number}")(h)
        return h
