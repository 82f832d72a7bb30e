"""Models by name: from the MODEL of the command line to a module and a batch that it accepts."""

from __future__ import annotations

from skipscope.models.alignment import AlignmentNet, AlignmentSpec
from skipscope.models.blocks import DiracConv2d, DiracLinear
from skipscope.models.connected import ConnectedNet, ConnectedSpec
from skipscope.models.names import build
from skipscope.models.resnet import ResNet, ResNetSpec
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
