"""Models by name: from the MODEL of the command line to a module and a batch that it accepts."""

from typing import TYPE_CHECKING

from skipscope.deferred import defer
from skipscope.renamed import keep_old_names

if TYPE_CHECKING:
    from skipscope.models.blocks import DiracConv2d as DiracConv2d
    from skipscope.models.blocks import DiracLinear as DiracLinear
    from skipscope.models.connected import ConnectedNet as ConnectedNet
    from skipscope.models.names import build as build
    from skipscope.models.on_disk import on_disk as on_disk
    from skipscope.models.resnet import ResNet as ResNet
    from skipscope.models.source import Source as Source
    from skipscope.models.source import resolve as resolve
    from skipscope.models.specification import ConnectedSpec as ConnectedSpec
    from skipscope.models.specification import ResNetSpec as ResNetSpec

__all__ = defer(
    __name__,
    {
        "blocks": "DiracConv2d DiracLinear",
        "connected": "ConnectedNet",
        "names": "build",
        "on_disk": "on_disk",
        "resnet": "ResNet",
        "source": "Source resolve",
        "specification": "ConnectedSpec ResNetSpec",
    },
)

keep_old_names(__name__)
