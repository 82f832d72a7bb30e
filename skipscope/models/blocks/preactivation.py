"""Norm and activation before each convolution, so that nothing is done to the sum: shortcut(h) + conv relu norm ... h.

K. He, X. Zhang, S. Ren, J. Sun: Identity Mappings in Deep Residual Networks, ECCV 2016, figure 1 b. Where the shortcut
is a projection it starts behind the first norm and activation, which branch and shortcut then share, and has no norm
of its own (the authors' and all common implementations). The identity and the zero-padding shortcut start at h itself.
"""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

from skipscope.models.blocks.block import Block, BlockPlan, Projection


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
    """3 x 3 convolutions, two unless the plan says otherwise.

    The number of convolutions under one shortcut is the shortcut depth of

    S. Li, J. Jiao, Y. Han, T. Weissman: Demystifying ResNet, figure 9.
    """

    def __init__(self, plan: BlockPlan) -> None:
        super().__init__(plan)
        channels = [plan.before, *[plan.inner] * (plan.convolutions - 1), plan.width]
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


class PreactivationBottleneck(PreactivationBlock):
    """As in the 164- and 1001-layer networks of the paper."""

    expansion = 4
    layers = 3

    def __init__(self, plan: BlockPlan) -> None:
        super().__init__(plan)
        after, inner = self.expansion * plan.width, plan.inner
        self.norm1 = plan.norm(plan.before)
        self.conv1 = nn.Conv2d(plan.before, inner, 1, bias=False)
        self.norm2 = plan.norm(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, plan.stride, padding=1, groups=plan.cardinality, bias=False)
        self.norm3 = plan.norm(inner)
        self.conv3 = nn.Conv2d(inner, after, 1, bias=False)
        self.shortcut = plan.around(after, norm=False)

    def rest(self, h: Tensor) -> Tensor:
        h = self.activation(self.norm2(self.conv1(h)))
        h = self.activation(self.norm3(self.conv2(h)))
        return self.conv3(h)


class PreactivationConnected(PreactivationBlock):
    """Fully connected: shortcut(h) + W2 relu norm W1 relu norm h."""

    def __init__(self, plan: BlockPlan) -> None:
        super().__init__(plan)
        self.norm1 = plan.norm(plan.before)
        self.linear1 = nn.Linear(plan.before, plan.inner, bias=False)
        self.norm2 = plan.norm(plan.inner)
        self.linear2 = nn.Linear(plan.inner, plan.width, bias=False)
        self.shortcut = plan.around(plan.width, norm=False)

    def rest(self, h: Tensor) -> Tensor:
        return self.linear2(self.activation(self.norm2(self.linear1(h))))
