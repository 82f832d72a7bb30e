"""Blocks that sum over several paths: shortcut(h) + sum_k F_k(h), k = 1 ... cardinality, each path `group_width` wide.

S. Xie, R. Girshick, P. Dollar, Z. Tu, K. He: Aggregated Residual Transformations for Deep Neural Networks, CVPR 2017.

*Bottleneck*: the paths side by side are one bottleneck whose 3 x 3 convolution is grouped (figure 3 c).
*Basic*: the paths W2_k relu W1_k h of two convolutions, side by side, are one convolution to cardinality * group_width
channels and one back, which sums over the paths; no convolution is grouped. It is the block of O. Oyedotun,
K. Al Ismaeil, D. Aouada: Training Very Deep Neural Networks: Rethinking the Role of Skip Connections, equation 4, whose
paths are as wide as the stage; Xie et al. (section 3.3) note that it is just a wider basic block.
*Connected*: the same of matrices, on vectors.
"""

from __future__ import annotations

from skipscope.models.blocks.basic import Basic
from skipscope.models.blocks.block import BlockPlan
from skipscope.models.blocks.bottleneck import Bottleneck
from skipscope.models.blocks.connected import Connected
from skipscope.models.blocks.preactivation import Preactivation
from skipscope.models.blocks.preactivation_bottleneck import PreactivationBottleneck
from skipscope.models.blocks.preactivation_connected import PreactivationConnected


class AggregatedBasic(Basic):
    def __init__(self, plan: BlockPlan) -> None:
        super().__init__(plan, inner=_inner(plan))


class AggregatedPreactivation(Preactivation):
    def __init__(self, plan: BlockPlan) -> None:
        super().__init__(plan, inner=_inner(plan))


class AggregatedConnected(Connected):
    def __init__(self, plan: BlockPlan) -> None:
        super().__init__(plan, inner=_inner(plan))


class AggregatedPreactivationConnected(PreactivationConnected):
    def __init__(self, plan: BlockPlan) -> None:
        super().__init__(plan, inner=_inner(plan))


class AggregatedBottleneck(Bottleneck):
    def __init__(self, plan: BlockPlan) -> None:
        super().__init__(plan, inner=_inner(plan), groups=plan.cardinality)


class AggregatedPreactivationBottleneck(PreactivationBottleneck):
    def __init__(self, plan: BlockPlan) -> None:
        super().__init__(plan, inner=_inner(plan), groups=plan.cardinality)


def _inner(plan: BlockPlan) -> int:
    return plan.cardinality * plan.group_width
