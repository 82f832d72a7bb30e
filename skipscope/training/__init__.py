"""Training the networks that are measured."""

from typing import TYPE_CHECKING

from skipscope.deferred import defer
from skipscope.renamed import keep_old_names

if TYPE_CHECKING:
    from skipscope.training.fleet import train_fleet as train_fleet
    from skipscope.training.fleet_member import FleetMember as FleetMember
    from skipscope.training.history import History as History
    from skipscope.training.hooks import At as At
    from skipscope.training.loop import accuracy as accuracy
    from skipscope.training.loop import train as train
    from skipscope.training.settings import Settings as Settings
    from skipscope.training.trackers import Tracker as Tracker
    from skipscope.training.trackers import distributions as distributions

__all__ = defer(
    __name__,
    {
        "fleet": "train_fleet",
        "fleet_member": "FleetMember",
        "history": "History",
        "hooks": "At",
        "loop": "accuracy train",
        "settings": "Settings",
        "trackers": "Tracker distributions",
    },
)

keep_old_names(__name__)
