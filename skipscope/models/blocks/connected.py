"""The fully connected block: relu(shortcut(h) + norm W2 relu norm W1 h), on vectors of one width.

J. Li, V. Papyan: Residual Alignment, NeurIPS 2023, type 1.
"""

from __future__ import annotations

from torch import Tensor

from skipscope.models.blocks.block import Block, BlockPlan


class Connected(Block):
    """inner: the units between the two matrices; by default as many as the width."""

    def __init__(self, plan: BlockPlan, inner: int | None = None) -> None:
        super().__init__(plan)
        inner = inner or plan.width
        self.linear1 = plan.matrix(plan.before, inner)
        self.norm1 = plan.norm(inner)
        self.linear2 = plan.matrix(inner, plan.width)
        self.norm2 = plan.norm(plan.width)
        self.shortcut = plan.around(plan.width)

    def branch(self, h: Tensor) -> Tensor:
        h = self.activation(self.norm1(self.linear1(h)))
        return self.norm2(self.linear2(h))
