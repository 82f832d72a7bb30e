"""Training the networks that are measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skipscope.deferred import defer

if TYPE_CHECKING:
    from skipscope.training.ensemble import Ensemble, Member, grid, member_weights, train_ensemble
    from skipscope.training.evaluation import accuracy
    from skipscope.training.history import History
    from skipscope.training.hooks import At
    from skipscope.training.loop import train
    from skipscope.training.settings import Settings
    from skipscope.training.trackers import Tracker, distributions

__all__ = [
    "At",
    "Ensemble",
    "History",
    "Member",
    "Settings",
    "Tracker",
    "accuracy",
    "distributions",
    "grid",
    "member_weights",
    "train",
    "train_ensemble",
]

defer(
    __name__,
    {
        "ensemble": "Ensemble Member grid member_weights train_ensemble",
        "evaluation": "accuracy",
        "history": "History",
        "hooks": "At",
        "loop": "train",
        "settings": "Settings",
        "trackers": "Tracker distributions",
    },
)
