"""The fully connected block: relu(shortcut(h) + norm W2 relu norm W1 h), on vectors of one width.

J. Li, V. Papyan: Residual Alignment, NeurIPS 2023, type 1.
"""

from __future__ import annotations

from torch import Tensor, nn

from skipscope.models.blocks.block import Block, BlockPlan


class Connected(Block):
    def __init__(self, plan: BlockPlan) -> None:
        super().__init__(plan)
        self.linear1 = nn.Linear(plan.before, plan.width, bias=False)
        self.norm1 = plan.norm(plan.width)
        self.linear2 = nn.Linear(plan.width, plan.width, bias=False)
        self.norm2 = plan.norm(plan.width)
        self.shortcut = plan.around(plan.width)

    def branch(self, h: Tensor) -> Tensor:
        h = self.activation(self.norm1(self.linear1(h)))
        return self.norm2(self.linear2(h))
