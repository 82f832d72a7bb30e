"""The epochs of one network's training, step by step: of a training alone, and of one beside others in a fleet."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from skipscope.training.batches import Batches
from skipscope.training.checkpoint import Run
from skipscope.training.history import History
from skipscope.training.processes import Processes
from skipscope.training.settings import Settings, rate_at
from skipscope.training.step import Step


class Stopwatch:
    """The seconds between two places of the program; on a GPU between two places of the stream."""

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._start = self._now()
        self._end: Any = None

    def _now(self) -> Any:
        if not self._on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def stop(self) -> None:
        self._end = self._now()

    @property
    def seconds(self) -> float:
        """Waits for the device."""
        if not self._on_gpu:
            return float(self._end - self._start)
        self._end.synchronize()
        return float(self._start.elapsed_time(self._end)) / 1000


@dataclass
class _Open:
    """An epoch that is under way. The numbers stay on the device: a look at every step would make a GPU wait."""

    watch: Stopwatch
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
        self._open = now = _Open(Stopwatch(device), torch.zeros(steps, device=device), right)
        for step, (images, labels) in enumerate(self._batches.of(epoch)):
            now.rate = rate_at(self.settings, epoch * steps + step, steps)
            self._run.update.set_rate(now.rate)
            loss, answers = self._step(images, labels)
            now.losses[step].copy_(loss)
            now.right += answers
            if step + 1 == steps:
                now.watch.stop()
            yield epoch * steps + step + 1

    def close(self, share: int = 1) -> None:
        """share: how many networks had the device in this time."""
        now, self._open = self._open, None
        assert now is not None
        together = self._together
        losses = together.total(now.losses).cpu().double() / together.count
        right = int(together.total(now.right)) / (len(self._batches) * self.settings.batch)
        write_epoch(self._run.history, losses, right, now.rate, now.watch.seconds / share)


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
