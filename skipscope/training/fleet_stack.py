"""One stack of a fleet, from epoch to epoch: batches of all members, tests, histories, and members that diverge.

All that is random in an epoch of a member is drawn as in its training alone (`loop.py`): the order of the samples, the
augmentation, and what the network itself draws have each a generator, seeded from the member's seed and the epoch.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from skipscope.data.augmentation import augmentation
from skipscope.data.dataset import AS_THEY_ARE, Images, Split
from skipscope.numerics import seed_of
from skipscope.training.fleet_member import FleetMember
from skipscope.training.history import History
from skipscope.training.settings import rate_at
from skipscope.training.stacked import Stack
from skipscope.training.stacked_step import StackedUpdate

TESTED_AT_ONCE = 512  # images, as in the training of one network


class StoppedError(Exception):
    """Another stack, or who called, has ended the training."""


class FleetStack:
    """Some members of a fleet. Those that have diverged keep their last weights and are not in the stack any more."""

    def __init__(self, members: Sequence[FleetMember], histories: Sequence[History]) -> None:
        self._all = list(zip(members, histories, strict=True))
        self._results: tuple[Tensor, Tensor, list[float], Tensor | None] | None = None
        self._seconds = 0.0
        self._stack: Stack | None = None
        self._update: StackedUpdate | None = None
        self._build()

    def _build(self, momenta: Mapping[str, Tensor] | None = None) -> None:
        """Stack those that go on. momenta: of exactly these."""
        self._going = [(member, history) for member, history in self._all if history.diverged_at is None]
        self._stack = self._update = None
        if self._going:
            self._stack = Stack([member.model for member in self.members])
            self._update = StackedUpdate(self._stack, [member.settings for member in self.members])
            for name, momentum in (momenta or {}).items():
                self._update.momenta[name].copy_(momentum)

    @property
    def members(self) -> list[FleetMember]:
        """Those that go on."""
        return [member for member, _ in self._going]

    @property
    def size(self) -> int:
        return len(self._going)

    def release(self) -> None:
        """Each network has its own memory again."""
        if self._stack is not None and self._update is not None:
            self._update.forget_gradients()
            self._stack.release()

    # -- an epoch

    def next(self, epoch: int, steps: int, tested: bool, made: Callable[[int], None], stop: threading.Event) -> None:
        """Trains for an epoch; what came out waits for `close_epoch`. made: called with the members of each step."""
        start = time.perf_counter()
        assert self._update is not None
        settings = [member.settings for member in self.members]
        losses = torch.zeros(self.size, steps)
        right = torch.zeros(self.size, dtype=torch.int64)
        draws = [_generator("epoch", one.seed, epoch) for one in settings]
        rates: list[float] = []
        for step, (images, labels) in enumerate(self._batches(epoch, steps)):
            if stop.is_set():
                raise StoppedError
            rates = [rate_at(one, epoch * steps + step, steps) for one in settings]
            loss, answers = self._update.step(images, labels, rates, draws)
            losses[:, step] = loss
            right += answers
            made(self.size)
        self._seconds = time.perf_counter() - start
        self._results = losses.double(), right, rates, self._tested() if tested else None

    def close_epoch(self, epoch: int, steps: int, threads: int) -> None:
        """Writes the histories. A member that diverged leaves. threads: that trained stacks at the same time."""
        assert self._results is not None
        losses, right, rates, tested = self._results
        for row, (member, history) in enumerate(self._going):
            values = losses[row]
            bad = (~values.isfinite()).nonzero()
            if len(bad):
                history.diverged_at = epoch * steps + int(bad[0])
            history.loss.append(float(values.mean()))
            history.rate.append(rates[row])
            history.seconds.append(self._seconds / self.size / threads)
            history.train_accuracy.append(int(right[row]) / (steps * member.settings.batch))
            share = None if tested is None or len(bad) or member.test is None else int(tested[row]) / len(member.test)
            history.test_accuracy.append(share)
        self._results = None
        kept = [row for row, (_, history) in enumerate(self._going) if history.diverged_at is None]
        if len(kept) < self.size and self._update is not None:
            momenta = {name: momentum[kept] for name, momentum in self._update.momenta.items()}
            self.release()
            self._build(momenta)

    def _batches(self, epoch: int, steps: int) -> Iterator[tuple[Tensor, Tensor]]:
        """(K, B, C, H, W) and (K, B)."""
        members, batch = self.members, self.members[0].settings.batch
        splits = [member.split for member in members]
        orders = torch.stack(
            [
                torch.randperm(len(member.split), generator=_generator("order", member.settings.seed, epoch))
                for member in members
            ]
        )
        changes = [_generator("augmentation", member.settings.seed, epoch, 0) for member in members]
        changed = [
            augmentation(member.settings.augmentation, getattr(member.split, "normalisation", AS_THEY_ARE))
            for member in members
        ]
        as_they_are = all(member.settings.augmentation == "none" for member in members)
        for chosen in orders[:, : steps * batch].split(batch, dim=1):
            images = self._images(splits, chosen)
            if not as_they_are:
                images = torch.stack([f(own, g) for f, own, g in zip(changed, images, changes, strict=True)])
            yield images, torch.stack([split.labels[own] for split, own in zip(splits, chosen, strict=True)])

    def _images(self, splits: Sequence[Split], chosen: Tensor) -> Tensor:
        """The chosen images (K, B) of each member; members that share their images are served at once."""
        assert self._stack is not None
        if all(_same_images(split, splits[0]) for split in splits):
            return splits[0].images(chosen.flatten()).to(self._stack.dtype).unflatten(0, chosen.shape)
        return torch.stack([split.images(own) for split, own in zip(splits, chosen, strict=True)]).to(self._stack.dtype)

    @torch.no_grad()
    def _tested(self) -> Tensor | None:
        """(K,) numbers of right answers to the test images."""
        tests = [member.test for member in self.members if member.test is not None]
        if not tests:
            return None
        assert self._stack is not None
        shared = all(_same_images(test, tests[0]) for test in tests)
        right = torch.zeros(self.size, dtype=torch.int64)
        for part in torch.arange(len(tests[0])).split(TESTED_AT_ONCE):
            everywhere = part.expand(self.size, -1)
            if shared:
                images = tests[0].images(part).to(self._stack.dtype).expand(self.size, -1, *tests[0].shape)
            else:
                images = self._images(tests, everywhere)
            labels = torch.stack([test.labels[part] for test in tests])
            right += (self._stack(images).argmax(1) == labels).sum(1)
        return right

    # -- its state, for a checkpoint

    def tensors(self) -> dict[str, Tensor]:
        """By their names in the file; the stack's own, not copies."""
        if self._stack is None or self._update is None:
            return {}
        return {
            **{f"model/{name}": tensor.detach() for name, tensor in self._stack.weights.items()},
            **{f"model/{name}": tensor for name, tensor in self._stack.buffers.items()},
            **{f"momentum/{name}": tensor for name, tensor in self._update.momenta.items()},
        }

    def left(self) -> dict[int, dict[str, Tensor]]:
        """The weights and buffers of members that have diverged, by their places in this stack."""
        return {
            place: {**dict(member.model.named_parameters()), **dict(member.model.named_buffers())}
            for place, (member, history) in enumerate(self._all)
            if history.diverged_at is not None
        }

    def stack_again(self) -> None:
        """After the histories were changed from outside."""
        self.release()
        self._build()


def _same_images(one: Split, other: Split) -> bool:
    """Their labels may differ."""
    if one is other:
        return True
    if not isinstance(one, Images) or not isinstance(other, Images):
        return False
    return one.pixels is other.pixels and one.normalisation == other.normalisation


def _generator(*content: Any) -> torch.Generator:
    return torch.Generator("cpu").manual_seed(seed_of(*content))
