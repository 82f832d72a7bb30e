"""What determines a fully connected network, apart from its weights; see `connected.py`."""

from __future__ import annotations

from dataclasses import dataclass

from skipscope.errors import InputError
from skipscope.models.specification import BlockSpec


@dataclass(frozen=True)
class ConnectedSpec(BlockSpec):
    """Everything about a fully connected network except its weights. depth: 2 n + 2."""

    network = "ConnectedNet"

    depth: int = 20
    width: int = 64
    input_shape: tuple[int, int, int] = (1, 28, 28)  # channels, height, width

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least_one("width", self.width)
        if len(self.input_shape) != 3 or min(self.input_shape) < 1:
            raise InputError(f"ConnectedNet: expected images of channels, height, width, got {self.input_shape}")
        if self.depth < 4 or self.depth % 2:
            raise InputError(f"ConnectedNet: expected a depth of 2 n + 2, such as 20 or 60, got {self.depth}")

    @property
    def blocks(self) -> int:
        return (self.depth - 2) // 2
