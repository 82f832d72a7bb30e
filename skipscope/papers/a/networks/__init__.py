"""The networks of paper A: three types of residual networks whose states keep their size."""

from typing import TYPE_CHECKING

from skipscope.deferred import defer

if TYPE_CHECKING:
    from skipscope.papers.a.networks.names import AlignmentSpec as AlignmentSpec
    from skipscope.papers.a.networks.network import AlignmentNet as AlignmentNet

__all__ = defer(__name__, {"names": "AlignmentSpec", "network": "AlignmentNet"})
