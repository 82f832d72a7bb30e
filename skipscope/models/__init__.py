"""Models by name: from the MODEL of the command line to a module and a batch that it accepts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skipscope.deferred import defer

if TYPE_CHECKING:
    from skipscope.models.alignment import AlignmentNet
    from skipscope.models.alignment_specification import AlignmentSpec
    from skipscope.models.blocks import DiracConv2d, DiracLinear
    from skipscope.models.connected import ConnectedNet
    from skipscope.models.connected_specification import ConnectedSpec
    from skipscope.models.names import build
    from skipscope.models.resnet import ResNet
    from skipscope.models.resnet_specification import ResNetSpec
    from skipscope.models.shortcut_hessian import ShortcutHessian, shortcut_hessian
    from skipscope.models.shortcut_loss import Moments, Samples, loss_and_gradient
    from skipscope.models.shortcuts import ShortcutNet, ShortcutSpec, initial_weights
    from skipscope.models.source import Source, resolve

__all__ = [
    "AlignmentNet",
    "AlignmentSpec",
    "ConnectedNet",
    "ConnectedSpec",
    "DiracConv2d",
    "DiracLinear",
    "Moments",
    "ResNet",
    "ResNetSpec",
    "Samples",
    "ShortcutHessian",
    "ShortcutNet",
    "ShortcutSpec",
    "Source",
    "build",
    "initial_weights",
    "loss_and_gradient",
    "resolve",
    "shortcut_hessian",
]

defer(
    __name__,
    {
        "alignment": "AlignmentNet",
        "alignment_specification": "AlignmentSpec",
        "blocks": "DiracConv2d DiracLinear",
        "connected": "ConnectedNet",
        "connected_specification": "ConnectedSpec",
        "names": "build",
        "resnet": "ResNet",
        "resnet_specification": "ResNetSpec",
        "shortcut_hessian": "ShortcutHessian shortcut_hessian",
        "shortcut_loss": "Moments Samples loss_and_gradient",
        "shortcuts": "ShortcutNet ShortcutSpec initial_weights",
        "source": "Source resolve",
    },
)
