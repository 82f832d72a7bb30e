"""Models by name: from the MODEL of the command line to a module and a batch that it accepts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skipscope.deferred import defer
from skipscope.renamed import keep_old_names

if TYPE_CHECKING:
    from skipscope.models.blocks import DiracConv2d, DiracLinear
    from skipscope.models.connected import ConnectedNet
    from skipscope.models.names import build
    from skipscope.models.resnet import ResNet
    from skipscope.models.source import Source, resolve
    from skipscope.models.specification import ConnectedSpec, ResNetSpec

__all__ = [
    "ConnectedNet",
    "ConnectedSpec",
    "DiracConv2d",
    "DiracLinear",
    "ResNet",
    "ResNetSpec",
    "Source",
    "build",
    "resolve",
]

defer(
    __name__,
    {
        "blocks": "DiracConv2d DiracLinear",
        "connected": "ConnectedNet",
        "names": "build",
        "resnet": "ResNet",
        "source": "Source resolve",
        "specification": "ConnectedSpec ResNetSpec",
    },
)

keep_old_names(__name__)
