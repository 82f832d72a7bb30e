"""The fully connected block with norm and activation before each matrix: shortcut(h) + W2 relu norm W1 relu norm h."""

from __future__ import annotations

from torch import Tensor, nn

from skipscope.models.blocks.block import BlockPlan
from skipscope.models.blocks.preactivation import PreactivationBlock


class PreactivationConnected(PreactivationBlock):
    """inner: the units between the two matrices; by default as many as the width."""

    def __init__(self, plan: BlockPlan, inner: int | None = None) -> None:
        super().__init__(plan)
        inner = inner or plan.width
        self.norm1 = plan.norm(plan.before)
        self.linear1 = nn.Linear(plan.before, inner, bias=False)
        self.norm2 = plan.norm(inner)
        self.linear2 = nn.Linear(inner, plan.width, bias=False)
        self.shortcut = plan.around(plan.width, norm=False)

    def rest(self, h: Tensor) -> Tensor:
        return self.linear2(self.activation(self.norm2(self.linear1(h))))
