"""One network of a fleet, and what all of a fleet must have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import nn

from skipscope.data.dataset import Split
from skipscope.training.hooks import At
from skipscope.training.settings import Settings
from skipscope.training.stacked import stacking_obstacle
from skipscope.training.stacked_step import COMMON


@dataclass(frozen=True)
class FleetMember:
    """A network and how it is trained: what `train` is called with. The model is trained in place."""

    model: nn.Module
    split: Split
    settings: Settings
    test: Split | None = None
    hooks: Sequence[At] = field(default=())


def fleet_obstacle(members: Sequence[FleetMember]) -> str:
    """Why these networks cannot be trained as a fleet, in words; an empty text if they can."""
    if not members:
        return "there are no members"
    first = members[0]
    for number, member in enumerate(members[1:], 1):
        for name in COMMON:
            own, common = getattr(member.settings, name), getattr(first.settings, name)
            if own != common:
                return f"network {number} has {name} = {own!r}, and network 0 has {common!r}"
        if (len(member.split), member.split.shape) != (len(first.split), first.split.shape):
            return f"network {number} has another number of training images, or images of another shape, than network 0"
        if _shape(member.test) != _shape(first.test):
            return f"network {number} has other test images than network 0: {_shape(member.test)}, {_shape(first.test)}"
    if len({id(member.model) for member in members}) < len(members):
        return "the same model is given more than once"
    if len({id(hook) for member in members for hook in member.hooks}) < sum(len(member.hooks) for member in members):
        return "members share a hook, which keeps the results of one network alone; give each its own"
    devices = {split.device.type for member in members for split in (member.split, member.test) if split is not None}
    if devices != {"cpu"}:
        return f"there are images on {', '.join(sorted(devices))}; fleets are trained on a CPU"
    if first.settings.precision != "float32":
        return f"precision {first.settings.precision!r} is not stacked; take 'float32'"
    return stacking_obstacle([member.model for member in members])


def _shape(test: Split | None) -> tuple[int, ...]:
    return () if test is None else (len(test), *test.shape)
