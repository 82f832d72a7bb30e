"""Training the networks that are measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skipscope.deferred import defer
from skipscope.renamed import keep_old_names

if TYPE_CHECKING:
    from skipscope.training.evaluation import accuracy
    from skipscope.training.history import History
    from skipscope.training.hooks import At
    from skipscope.training.loop import train
    from skipscope.training.settings import Settings
    from skipscope.training.trackers import Tracker, distributions

__all__ = [
    "At",
    "History",
    "Settings",
    "Tracker",
    "accuracy",
    "distributions",
    "train",
]

defer(
    __name__,
    {
        "evaluation": "accuracy",
        "history": "History",
        "hooks": "At",
        "loop": "train",
        "settings": "Settings",
        "trackers": "Tracker distributions",
    },
)

keep_old_names(__name__)
