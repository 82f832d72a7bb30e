"""One small training loop: SGD with momentum and weight decay, a cosine schedule, data that live on the device.

A loss that is not finite stops the training; that is a result, and the history says at which step.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from skipscope.errors import InputError

Progress = Callable[[int, int], None]  # steps done, steps in all


@dataclass(frozen=True)
class Settings:
    epochs: int
    batch: int = 64
    rate: float = 0.1  # of learning at the start; falls to zero along half a cosine
    momentum: float = 0.9
    weight_decay: float = 5e-4
    seed: int = 0  # of the order of the samples

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch < 2:
            raise InputError(f"training needs 1 epoch and 2 samples a batch at least, got {self.epochs}, {self.batch}")
        if not self.rate > 0 or not 0 <= self.momentum < 1 or self.weight_decay < 0:
            raise InputError(
                "training: expected rate > 0, 0 <= momentum < 1 and weight_decay >= 0, "
                f"got {self.rate}, {self.momentum}, {self.weight_decay}"
            )


@dataclass
class History:
    """One entry an epoch; the loss is the mean over its steps."""

    loss: list[float] = field(default_factory=list)
    rate: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    diverged_at: int | None = None  # the first step with a loss that is not finite, counted from 0

    @property
    def status(self) -> str:
        return "finished" if self.diverged_at is None else "diverged"

    def to_dict(self) -> dict[str, Any]:
        return {"status": self.status, **asdict(self)}


def train(
    model: nn.Module, images: Tensor, labels: Tensor, settings: Settings, *, progress: Progress | None = None
) -> History:
    """Minimise the cross-entropy; the model is left in the mode that it was found in.

    An epoch passes once over the samples in random order; what does not fill a last batch is left out of it.
    """
    if len(images) != len(labels) or len(images) < settings.batch:
        raise InputError(
            f"training: expected as many labels as images and at least {settings.batch} of them, "
            f"got {len(images)} images and {len(labels)} labels"
        )
    optimizer = torch.optim.SGD(
        model.parameters(), settings.rate, momentum=settings.momentum, weight_decay=settings.weight_decay
    )
    generator = torch.Generator().manual_seed(settings.seed)
    steps = len(images) // settings.batch
    total = settings.epochs * steps
    history = History()
    mode = model.training
    model.train()
    try:
        for epoch in range(settings.epochs):
            start = time.perf_counter()
            order = torch.randperm(len(images), generator=generator).to(images.device)
            losses = []
            for step in range(steps):
                done = epoch * steps + step
                for group in optimizer.param_groups:
                    group["lr"] = settings.rate * (1 + math.cos(math.pi * done / total)) / 2
                chosen = order[step * settings.batch : (step + 1) * settings.batch]
                loss = F.cross_entropy(model(images[chosen]), labels[chosen])
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                losses.append(loss.detach())
                if progress is not None:
                    progress(done + 1, total)
            # Once an epoch: a look at every step would make a GPU wait.
            values = torch.stack(losses)
            history.loss.append(float(values.mean()))
            history.rate.append(optimizer.param_groups[0]["lr"])
            history.seconds.append(time.perf_counter() - start)
            bad = (~values.isfinite()).nonzero()
            if len(bad):
                history.diverged_at = epoch * steps + int(bad[0])
                break
    finally:
        model.train(mode)
    return history


def accuracy(model: nn.Module, images: Tensor, labels: Tensor, *, batch: int = 512) -> float:
    """The share of images whose largest output is their label, in evaluation mode."""
    mode = model.training
    model.eval()
    try:
        with torch.no_grad():
            right = [
                (model(x).argmax(1) == y).sum() for x, y in zip(images.split(batch), labels.split(batch), strict=True)
            ]
    finally:
        model.train(mode)
    return int(torch.stack(right).sum()) / len(images)
