"""Measuring while training: a function called after chosen epochs, and what it returned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn

from skipscope.errors import InputError
from skipscope.training.history import History
from skipscope.training.modes import in_mode
from skipscope.training.randomness import seed_of, seeded
from skipscope.training.results import canonical

Measure = Callable[[nn.Module, int, History], Any]  # the model in evaluation mode, epochs done, the history so far


class At:
    """`At([0, 10], measure)`: call `measure` before the training and after ten epochs.

    It returns an xarray.Dataset, or a dict of numbers, texts, arrays and further dicts; `results` holds it by epoch,
    arrays as NumPy's. A checkpoint holds the results too. With several processes each of them measures the same.
    """

    def __init__(self, epochs: Iterable[int], function: Measure, name: str = "") -> None:
        self.epochs = tuple(sorted(set(epochs)))
        if not self.epochs or self.epochs[0] < 0:
            raise InputError(f"a hook needs epochs of at least 0 (before the training), got {self.epochs}")
        self.function = function
        self.name = name or getattr(function, "__name__", type(function).__name__)
        self.results: dict[int, Any] = {}

    def measure(self, model: nn.Module, epoch: int, history: History, device: torch.device, seed: int) -> None:
        """The random state that `function` finds depends on the run's seed and the epoch alone."""
        with in_mode(model, training=False), seeded(device, seed_of("hook", self.name, seed, epoch)):
            result = self.function(model, epoch, history)
        try:
            self.results[epoch] = canonical(result)
        except TypeError as error:
            raise InputError(
                f"the hook '{self.name}' returned {error} after {epoch} epochs; expected an xarray.Dataset or a "
                "dict of numbers, texts, arrays and further dicts"
            ) from error


def start_anew(hooks: Sequence[At], epochs: int) -> None:
    """Forget the results of former runs; refuse hooks with one name and hooks that would never be called."""
    names = [hook.name for hook in hooks]
    if len(set(names)) < len(names):
        raise InputError(f"training: two hooks have one name, got {', '.join(names)}; write At(..., name=...)")
    for hook in hooks:
        if hook.epochs[-1] > epochs:
            raise InputError(f"training: the hook '{hook.name}' waits for epoch {hook.epochs[-1]} of {epochs}")
        hook.results = {}
