"""Blocks that sum over several paths: shortcut(h) + sum_k F_k(h), k = 1 ... cardinality, each path `group_width` wide.

S. Xie, R. Girshick, P. Dollar, Z. Tu, K. He: Aggregated Residual Transformations for Deep Neural Networks, CVPR 2017.

*Bottleneck*: the paths side by side are one bottleneck whose 3 x 3 convolution is grouped (figure 3 c).
*Basic*: the paths W2_k relu W1_k h of two convolutions, side by side, are one convolution to cardinality * group_width
channels and one back, which sums over the paths; no convolution is grouped. It is the block of O. Oyedotun,
K. Al Ismaeil, D. Aouada: Training Very Deep Neural Networks: Rethinking the Role of Skip Connections, equation 4, whose
paths are as wide as the stage; Xie et al. (section 3.3) note that it is just a wider basic block.
*Connected*: the same of matrices, on vectors.

What differs from the block of one path is in the plan: `BlockPlan.inner` and the groups. A class of its own keeps the
two apart where a network or a checkpoint shows its modules.
"""

from __future__ import annotations

from skipscope.models.blocks.original import Basic, Bottleneck, Connected
from skipscope.models.blocks.preactivation import Preactivation, PreactivationBottleneck, PreactivationConnected


class AggregatedBasic(Basic):
    pass


class AggregatedPreactivation(Preactivation):
    pass


class AggregatedConnected(Connected):
    pass


class AggregatedPreactivationConnected(PreactivationConnected):
    pass


class AggregatedBottleneck(Bottleneck):
    pass


class AggregatedPreactivationBottleneck(PreactivationBottleneck):
    pass
