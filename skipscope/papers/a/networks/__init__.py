"""The networks of paper A: three types of residual networks whose states keep their size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skipscope.deferred import defer

if TYPE_CHECKING:
    from skipscope.papers.a.networks.network import AlignmentNet
    from skipscope.papers.a.networks.specification import AlignmentSpec

__all__ = ["AlignmentNet", "AlignmentSpec"]

defer(__name__, {"network": "AlignmentNet", "specification": "AlignmentSpec"})
