"""Where in a tensor the positions of a sequence lie, and what the tensor is for some of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor


@dataclass(frozen=True)
class Along:
    """The positions lie along one axis, of size outer x positions x inner: a reshape may have folded the batch or the
    heads into it."""

    axis: int
    outer: int = 1
    inner: int = 1

    @property
    def is_plain(self) -> bool:
        return self.outer == self.inner == 1

    def moved(self, axis: int) -> Along:
        return Along(axis, self.outer, self.inner)

    def size(self, positions: int) -> int:
        return self.outer * positions * self.inner

    def shape(self, whole: Sequence[int], positions: int) -> tuple[int, ...]:
        """Of the tensor for so many positions, where for all of them it is `whole`."""
        return (*whole[: self.axis], self.size(positions), *whole[self.axis + 1 :])

    def reshaped(self, before: Sequence[int], after: Sequence[int], positions: int) -> Along | None:
        """In a tensor of another shape with the same entries in the same order; None where the axis is split."""
        leading, trailing = prod(before[: self.axis]) * self.outer, prod(before[self.axis + 1 :]) * self.inner
        found: list[Along] = []
        for axis in range(len(after)):
            outside, inside = prod(after[:axis]), prod(after[axis + 1 :])
            if outside and inside and leading % outside == 0 and trailing % inside == 0:
                one = Along(axis, leading // outside, trailing // inside)
                if one.size(positions) == after[axis]:
                    found.append(one)
        return min(found, key=lambda one: one.outer * one.inner, default=None)

    def rows(self, value: Tensor, positions: Tensor, count: int) -> Tensor:
        """The part of a tensor for all `count` positions that belongs to some of them."""
        if self.is_plain:
            return value.index_select(self.axis, positions)
        apart = value.unflatten(self.axis, (self.outer, count, self.inner))
        return apart.index_select(self.axis + 1, positions).flatten(self.axis, self.axis + 2)

    def others(self, value: Tensor, positions: Tensor) -> Tensor:
        """The tensor with zeros at some positions; they lie along an axis of their own."""
        assert self.is_plain, "only products that mix positions need it, and these have an axis for them"
        kept = torch.ones(value.shape[self.axis], dtype=torch.bool, device=value.device)
        kept[positions] = False
        return torch.where(kept.reshape([-1 if axis == self.axis else 1 for axis in range(value.dim())]), value, 0)
