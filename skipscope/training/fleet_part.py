"""What the parts of a fleet have in common: stacks of networks and single ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import accumulate
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from skipscope.data.dataset import Images, Split
from skipscope.training.fleet_member import FleetMember

AT_A_TIME = 10  # convolutional networks on a GPU: more hardly gain, and each needs memory for its captured step

T = TypeVar("T")


class FleetPart(Protocol):
    """Members of a fleet that are computed together. One that has diverged takes no part any more."""

    about: str  # which members, and how

    @property
    def size(self) -> int:
        """How many are still trained."""

    def inside(self) -> AbstractContextManager[None]:
        """What surrounds every step and every test: a stream, random numbers, threads."""

    def steps(self, epoch: int) -> Iterator[int]:
        """One epoch: after each step the number of members that made it. The results stay on the device."""

    def test(self) -> None:
        """After an epoch; the results stay on the device."""

    def close_epoch(self, share: int) -> None:
        """Waits for the device and writes the histories. share: members that had the device at the same time."""

    def release(self) -> None:
        """The networks are as those of any other training again."""

    def tensors(self) -> dict[str, Tensor]:
        """All that changes from step to step, by its name in a checkpoint; its own tensors, not copies."""

    def begin_again(self) -> None:
        """After the histories were changed from outside."""


class OwnStream:
    """A stream of a GPU; nothing on a CPU."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def follow(self) -> None:
        """Wait for what was done on the stream of who calls: images, weights, measurements between epochs."""
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self._device))

    def inside(self) -> AbstractContextManager[Any]:
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def finish(self) -> None:
        """Nothing that a captured step uses may be freed before it ends."""
        if self._stream is not None:
            torch.cuda.synchronize(self._device)


def even_groups(things: Sequence[T], largest: int, fewest: int = 1) -> list[list[T]]:
    """In their order, in as few groups as possible that have nearly the same size; fewest: at least so many groups."""
    count = max(math.ceil(len(things) / largest), fewest)
    sizes = [len(things) // count + (number < len(things) % count) for number in range(count)]
    ends = list(accumulate(sizes))
    return [list(things[end - size : end]) for size, end in zip(sizes, ends, strict=True)]


def on_device(members: Sequence[FleetMember], device: torch.device) -> list[FleetMember]:
    """The members with their images on the device; pixels that members share are there once."""
    moved: dict[int, Split] = {}

    def there(split: Split) -> Split:
        if split.device == device:
            return split
        shared = split.pixels if isinstance(split, Images) else split
        if id(shared) not in moved:
            moved[id(shared)] = split.to(device)
        found = moved[id(shared)]
        if isinstance(split, Images) and isinstance(found, Images):
            return replace(split, pixels=found.pixels, labels=split.labels.to(device))
        return found

    return [
        replace(member, split=there(member.split), test=None if member.test is None else there(member.test))
        for member in members
    ]
