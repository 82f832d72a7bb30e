"""One stack of a fleet, from epoch to epoch: batches of all members, tests, histories, and members that diverge.

All that is random in an epoch of a member is drawn as in its training alone (`loop.py`): the order of the samples, the
augmentation, and what the network itself draws have each a generator, seeded from the member's seed and the epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from skipscope.data.dataset import Images, Split
from skipscope.numerics import seed_of
from skipscope.training.batches import augmentation_of, changes_of, order_of
from skipscope.training.epochs import Stopwatch, write_epoch
from skipscope.training.fleet_member import FleetMember, is_convolutional
from skipscope.training.fleet_part import OwnStream
from skipscope.training.history import History
from skipscope.training.settings import rate_at
from skipscope.training.stacked_convolutions import StackedConvolutions
from skipscope.training.stacked_matrices import StackedMatrices
from skipscope.training.stacked_step import Stack, StackedUpdate, stacked_update
from skipscope.training.step import GraphedStep, Step

TESTED_AT_ONCE = 512  # images, as in the training of one network


@dataclass
class _Open:
    """An epoch that is under way."""

    watch: Stopwatch
    losses: Tensor  # (K, steps)
    right: Tensor  # (K,)
    rates: list[float]
    tested: Tensor | None = None  # (K,)


class FleetStack:
    """Some members of a fleet. Those that have diverged keep their last weights and are not in the stack any more."""

    def __init__(
        self,
        members: Sequence[FleetMember],
        histories: Sequence[History],
        numbers: Sequence[int],
        *,
        compiled: bool = False,
    ) -> None:
        """numbers: of the members in their fleet. compiled: blocks of convolutional networks."""
        self.about = f"stack of networks {', '.join(map(str, numbers))}"
        self._all = list(zip(members, histories, strict=True))
        self._device = members[0].device
        self._compiled = compiled
        self._stream = OwnStream(self._device)
        self._open: _Open | None = None
        self._stack: Stack | None = None
        self._update: StackedUpdate | None = None
        self._step: Step = _nothing_to_do
        self._left_behind: list[GraphedStep] = []
        self._build()

    def _build(self, momenta: Mapping[str, Tensor] | None = None) -> None:
        """Stack those that go on. momenta: of exactly these, by member."""
        self._going = [(member, history) for member, history in self._all if history.diverged_at is None]
        if isinstance(self._step, GraphedStep):
            self._left_behind.append(self._step)  # a captured step that is freed while another runs takes it down
        self._stack = self._update = None
        if self._going:
            models = [member.model for member in self.members]
            stack: Stack
            if is_convolutional(self.members[0]):
                stack = StackedConvolutions(models)
                if self._compiled:
                    stack.compile()
            else:
                stack = StackedMatrices(models)
            self._stack = stack
            self._update = update = stacked_update(stack, [member.settings for member in self.members])
            for name, momentum in (momenta or {}).items():
                stack.by_member(update.momenta[name]).copy_(momentum)
            on_gpu = self._device.type == "cuda"
            self._step = GraphedStep(update.step, update, self._device, required=False) if on_gpu else update.step

    @property
    def members(self) -> list[FleetMember]:
        """Those that go on."""
        return [member for member, _ in self._going]

    @property
    def size(self) -> int:
        return len(self._going)

    def inside(self) -> AbstractContextManager[Any]:
        return self._stream.inside()

    def release(self) -> None:
        self._stream.finish()
        if self._stack is not None and self._update is not None:
            self._update.forget_gradients()
            self._stack.release()

    # -- an epoch

    def steps(self, epoch: int) -> Iterator[int]:
        self._stream.follow()
        return self._steps(epoch)

    def _steps(self, epoch: int) -> Iterator[int]:
        assert self._update is not None
        if self._device.type == "cpu":
            torch.set_num_threads(1)  # of the thread of Python that trains this stack: each has its own number
        settings = [member.settings for member in self.members]
        steps = len(self.members[0].split) // settings[0].batch
        right = torch.zeros(self.size, dtype=torch.int64, device=self._device)
        losses = torch.zeros(self.size, steps, device=self._device)
        self._open = now = _Open(Stopwatch(self._device), losses, right, [])
        # What the networks draw themselves, they draw on the CPU; none that would draw on a GPU is stacked.
        self._update.draws = [torch.Generator("cpu").manual_seed(seed_of("epoch", one.seed, epoch)) for one in settings]
        for step, (images, labels) in enumerate(self._batches(epoch, steps)):
            now.rates = [rate_at(one, epoch * steps + step, steps) for one in settings]
            self._update.set_rates(now.rates)
            loss, answers = self._step(images, labels)
            now.losses[:, step] = loss
            now.right += answers
            if step + 1 == steps:
                now.watch.stop()
            yield self.size

    def close_epoch(self, share: int) -> None:
        now, self._open = self._open, None
        assert now is not None
        with self.inside():
            losses, right = now.losses.cpu().double(), now.right.cpu()  # waits for the device
            tested = None if now.tested is None else now.tested.cpu()
        seconds = now.watch.seconds / share
        for row, (member, history) in enumerate(self._going):
            accuracy = int(right[row]) / (losses.shape[1] * member.settings.batch)
            write_epoch(history, losses[row], accuracy, now.rates[row], seconds)
            known = tested is not None and member.test is not None and history.diverged_at is None
            correct = int(tested[row]) / len(member.test) if known else None  # type: ignore[index, arg-type]
            history.test_accuracy.append(correct)
        kept = [row for row, (_, history) in enumerate(self._going) if history.diverged_at is None]
        if len(kept) < self.size and self._update is not None and self._stack is not None:
            momenta = {name: self._stack.by_member(own)[kept] for name, own in self._update.momenta.items()}
            self.release()
            self._build(momenta)

    def _batches(self, epoch: int, steps: int) -> Iterator[tuple[Tensor, Tensor]]:
        """(K, B, C, H, W) and (K, B)."""
        members, batch = self.members, self.members[0].settings.batch
        splits = [member.split for member in members]
        orders = torch.stack([order_of(len(member.split), member.settings, epoch) for member in members])
        changes = [changes_of(member.settings, epoch, self._device) for member in members]
        changed = [augmentation_of(member.settings, member.split) for member in members]
        as_they_are = all(member.settings.augmentation == "none" for member in members)
        for chosen in orders[:, : steps * batch].to(self._device).split(batch, dim=1):
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
    def test(self) -> None:
        """(K,) numbers of right answers to the test images."""
        tests = [member.test for member in self.members if member.test is not None]
        if not tests:
            return
        assert self._stack is not None
        assert self._open is not None
        shared = all(_same_images(test, tests[0]) for test in tests)
        right = torch.zeros(self.size, dtype=torch.int64, device=self._device)
        for part in torch.arange(len(tests[0]), device=self._device).split(TESTED_AT_ONCE):
            everywhere = part.expand(self.size, -1)
            if shared:
                images = tests[0].images(part).to(self._stack.dtype).expand(self.size, -1, *tests[0].shape)
            else:
                images = self._images(tests, everywhere)
            labels = torch.stack([test.labels[part] for test in tests])
            right += (self._stack(images).argmax(1) == labels).sum(1)
        self._open.tested = right

    # -- its state, for a checkpoint

    def tensors(self) -> dict[str, Tensor]:
        """Stacked, and by itself what a member had that has diverged."""
        if self._stack is None or self._update is None:
            return self._left()
        return {
            **{f"model/{name}": tensor.detach() for name, tensor in self._stack.weights.items()},
            **{f"model/{name}": tensor for name, tensor in self._stack.buffers.items()},
            **{f"momentum/{name}": tensor for name, tensor in self._update.momenta.items()},
            **self._left(),
        }

    def _left(self) -> dict[str, Tensor]:
        """Weights and buffers of members that have diverged, by their places."""
        return {
            f"member {place}/model/{name}": tensor.detach()
            for place, (member, history) in enumerate(self._all)
            if history.diverged_at is not None
            for name, tensor in [*member.model.named_parameters(), *member.model.named_buffers()]
        }

    def begin_again(self) -> None:
        self.release()
        self._build()


def _same_images(one: Split, other: Split) -> bool:
    """Their labels may differ."""
    if one is other:
        return True
    if not isinstance(one, Images) or not isinstance(other, Images):
        return False
    return one.pixels is other.pixels and one.normalisation == other.normalisation


def _nothing_to_do(images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    raise RuntimeError("all members of the stack have diverged")
