"""The blocks of residual networks, and the table that says which options name which.

A new block is a subclass of `Block` and a line here; `ResNet` and `ConnectedNet` need no change.
"""

from __future__ import annotations

from skipscope.models.blocks.block import ACTIVATIONS, Block, BlockPlan, Pad, Projection
from skipscope.models.blocks.dirac import DiracConv2d, DiracLinear
from skipscope.models.blocks.original import Basic, Bottleneck, Connected
from skipscope.models.blocks.preactivation import Preactivation, PreactivationBottleneck, PreactivationConnected
from skipscope.models.blocks.resnext import (
    AggregatedBasic,
    AggregatedBottleneck,
    AggregatedConnected,
    AggregatedPreactivation,
    AggregatedPreactivationBottleneck,
    AggregatedPreactivationConnected,
)

# (block, preactivation, more than one path)
BLOCKS: dict[tuple[str, bool, bool], type[Block]] = {
    ("basic", False, False): Basic,
    ("basic", False, True): AggregatedBasic,
    ("basic", True, False): Preactivation,
    ("basic", True, True): AggregatedPreactivation,
    ("bottleneck", False, False): Bottleneck,
    ("bottleneck", False, True): AggregatedBottleneck,
    ("bottleneck", True, False): PreactivationBottleneck,
    ("bottleneck", True, True): AggregatedPreactivationBottleneck,
    ("connected", False, False): Connected,
    ("connected", False, True): AggregatedConnected,
    ("connected", True, False): PreactivationConnected,
    ("connected", True, True): AggregatedPreactivationConnected,
}

__all__ = [
    "ACTIVATIONS",
    "BLOCKS",
    "Basic",
    "Block",
    "BlockPlan",
    "Connected",
    "DiracConv2d",
    "DiracLinear",
    "Pad",
    "Preactivation",
    "PreactivationConnected",
    "Projection",
]
