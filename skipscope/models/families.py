"""What a family of networks has to know about its names, so that skipscope:NAME can mean one of them.

Nothing here imports torch: names are read, and wrong ones refused, before it is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import nn


class NetworkNames(Protocol):
    """The names of one family of networks."""

    @property
    def beginnings(self) -> Sequence[str]:
        """Such as type1: for help, for completion, and to know whose a name is."""

    def parse(self, name: str) -> dict[str, Any]:
        """The options that a name stands for, `input_shape` (channels, height, width) and `classes` among them."""

    def build(self, name: str) -> nn.Module:
        """The network, with new weights."""

    def fitting(self, name: str, shape: tuple[int, ...], classes: int) -> str:
        """The same network for other images; empty where no name stands for it."""

    def any_size(self, name: str) -> bool:
        """Whether the network takes images of other heights and widths than its input's."""
