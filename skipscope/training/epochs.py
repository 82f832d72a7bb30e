"""The epochs of one network's training, step by step: of a training alone, and of one beside others in a fleet."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from skipscope.training.batches import Batches
from skipscope.training.checkpoint import Run
from skipscope.training.history import History
from skipscope.training.processes import Processes
from skipscope.training.settings import Settings, rate_at
from skipscope.training.step import Step


@dataclass
class _Open:
    """An epoch that is under way. The numbers stay on the device: a look at every step would make a GPU wait."""

    epoch: int
    start: float
    losses: Tensor  # (steps,)
    right: Tensor
    rate: float = 0.0


class Epochs:
    """`for done in epochs.steps(): ...`, then `epochs.close()`, which waits for the device and writes the history."""

    def __init__(self, batches: Batches, run: Run, step: Step, together: Processes) -> None:
        self._batches, self._run, self._step, self._together = batches, run, step, together
        self._open: _Open | None = None

    @property
    def settings(self) -> Settings:
        return self._run.update.settings

    @property
    def total(self) -> int:
        """Steps of the whole training."""
        return self.settings.epochs * len(self._batches)

    def steps(self) -> Iterator[int]:
        """One epoch. Gives, after each step, how many were made since the beginning of the training."""
        epoch, device, steps = self._run.history.epochs, self._together.device, len(self._batches)
        right = torch.zeros((), dtype=torch.int64, device=device)
        self._open = now = _Open(epoch, time.perf_counter(), torch.zeros(steps, device=device), right)
        for step, (images, labels) in enumerate(self._batches.of(epoch)):
            now.rate = rate_at(self.settings, epoch * steps + step, steps)
            self._run.update.set_rate(now.rate)
            loss, answers = self._step(images, labels)
            now.losses[step].copy_(loss)
            now.right += answers
            yield epoch * steps + step + 1

    def close(self, share: int = 1) -> None:
        """share: how many networks had the device in this time."""
        now, self._open = self._open, None
        assert now is not None
        together = self._together
        losses = together.total(now.losses).cpu().double() / together.count
        right = int(together.total(now.right)) / (len(self._batches) * self.settings.batch)
        write_epoch(self._run.history, losses, right, now.rate, (time.perf_counter() - now.start) / share)


def write_epoch(history: History, losses: Tensor, train_accuracy: float, rate: float, seconds: float) -> None:
    """losses: of its steps, on the CPU. The first that is not finite ends the training."""
    before = history.epochs * len(losses)
    history.loss.append(float(losses.mean()))
    history.rate.append(rate)
    history.train_accuracy.append(train_accuracy)
    history.seconds.append(seconds)
    bad = (~losses.isfinite()).nonzero()
    if len(bad):
        history.diverged_at = before + int(bad[0])
