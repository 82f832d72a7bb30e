"""Models by name: from the MODEL of the command line to a module and a batch that it accepts."""

from __future__ import annotations

from skipscope.models.names import build
from skipscope.models.resnet import ResNet
from skipscope.models.source import Source, resolve

__all__ = ["ResNet", "Source", "build", "resolve"]
