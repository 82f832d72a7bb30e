"""What the parts of a fleet have in common, whether their networks are stacked or trained side by side."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from skipscope.data.dataset import Images, Split
from skipscope.training.fleet_member import FleetMember

AT_A_TIME = 8  # networks side by side on a GPU: more hardly gain, and each needs memory for its captured step

T = TypeVar("T")
Made = Callable[[int], None]  # called with the number of members that made a step


class StoppedError(Exception):
    """Another part of the fleet, or who called, has ended the training."""


class FleetPart(Protocol):
    """Some members of a fleet. Those that have diverged keep their last weights and take no part any more."""

    @property
    def size(self) -> int:
        """How many are still trained."""

    def next(self, epoch: int, steps: int, tested: bool, made: Made, stop: threading.Event) -> None:
        """Trains for an epoch; what came out waits for `close_epoch`."""

    def close_epoch(self, epoch: int, steps: int, threads: int) -> None:
        """Writes the histories. A member that diverged leaves. threads: that trained parts at the same time."""

    def release(self) -> None:
        """The networks are as those of any other training again."""

    def tensors(self) -> dict[str, Tensor]:
        """All that changes from step to step, by its name in a checkpoint; its own tensors, not copies."""

    def begin_again(self) -> None:
        """After the histories were changed from outside."""


def even_groups(things: Sequence[T], largest: int, fewest: int = 1) -> list[list[T]]:
    """In their order, in as few groups as possible that have nearly the same size; fewest: at least so many groups."""
    count = max(math.ceil(len(things) / largest), fewest)
    sizes = [len(things) // count + (number < len(things) % count) for number in range(count)]
    ends = list(accumulate(sizes))
    return [list(things[end - size : end]) for size, end in zip(sizes, ends, strict=True)]


def on_device(members: Sequence[FleetMember], device: torch.device) -> list[FleetMember]:
    """The members with their images on the device; pixels that members share are there once."""
    moved: dict[int, Split] = {}

    def there(split: Split | None) -> Split | None:
        if split is None or split.device == device:
            return split
        shared = split.pixels if isinstance(split, Images) else split
        if id(shared) not in moved:
            moved[id(shared)] = split.to(device)
        found = moved[id(shared)]
        if isinstance(split, Images) and isinstance(found, Images):
            return replace(split, pixels=found.pixels, labels=split.labels.to(device))
        return found

    there_too = [(there(member.split), there(member.test)) for member in members]
    return [
        replace(member, split=split, test=test)
        for member, (split, test) in zip(members, there_too, strict=True)
        if split is not None
    ]
