"""What determines a fully connected network, apart from its weights; see `connected.py`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from skipscope.constraints import Expectation, at_least
from skipscope.models.specification import BlockSpec


@dataclass(frozen=True)
class ConnectedSpec(BlockSpec):
    """Everything about a fully connected network except its weights. depth: 2 n + 2."""

    named = "ConnectedNet"

    depth: int = 20
    width: Annotated[int, at_least(1)] = 64
    input_shape: tuple[int, int, int] = (1, 28, 28)  # channels, height, width

    def expectations(self) -> Iterator[Expectation]:
        yield from super().expectations()
        yield (
            len(self.input_shape) == 3 and min(self.input_shape) >= 1,
            f"expected images of channels, height, width, got {self.input_shape}",
        )
        yield (
            self.depth >= 4 and self.depth % 2 == 0,
            f"expected a depth of 2 n + 2, such as 20 or 60, got {self.depth}",
        )

    @property
    def blocks(self) -> int:
        return (self.depth - 2) // 2
