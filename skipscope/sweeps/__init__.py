"""The same measurements on many models, checkpoints or training steps, as one labelled dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skipscope.deferred import defer

if TYPE_CHECKING:
    from skipscope.sweeps.sweeping import sweep

__all__ = ["sweep"]

defer(__name__, {"sweeping": "sweep"})
