"""The loss of the training as a function of the model's output, at the batch that the monitor looks at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from skipscope.errors import InputError
from skipscope.measure.layers import main_tensor
from skipscope.monitor.untouched import on_copies


@dataclass(frozen=True)
class Objective:
    """loss: of the output, and of the targets where there are some; None: the cross-entropy with the targets."""

    loss: Callable[..., Tensor] | None
    targets: Any

    @classmethod
    def of(cls, loss: Callable[..., Tensor] | None, targets: Any) -> Objective | None:
        """None where neither is given."""
        if loss is not None and not callable(loss):
            raise InputError(f"Monitor: expected loss= to be a function of the model's output, got {loss!r}")
        return None if loss is None and targets is None else cls(loss, targets)

    def __call__(self, output: Any) -> Tensor:
        value = self._value(output)
        if not isinstance(value, Tensor) or value.numel() != 1:
            got = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise InputError(f"Monitor: expected loss to return one number as a tensor, got {got}")
        return value.reshape(())

    def _value(self, output: Any) -> Any:
        if self.loss is None:
            scores = main_tensor(output)
            if not isinstance(self.targets, Tensor) or scores is None or scores.dim() < 2:
                raise InputError(
                    "Monitor: expected labels as a tensor and scores (N, classes) as the model's output, got "
                    f"{type(self.targets).__name__} and {'none' if scores is None else tuple(scores.shape)}; pass loss="
                )
            if self.targets.dim() == 0 or len(self.targets) != len(scores):
                raise InputError(
                    f"Monitor: expected a label for each of the {len(scores)} samples of the output, got targets of "
                    f"shape {tuple(self.targets.shape)}"
                )
            return F.cross_entropy(scores, self.targets.to(scores.device))
        with on_copies(_module_of(self.loss)):
            return self.loss(output) if self.targets is None else self.loss(output, self.targets)

    def map(self, change: Callable[[Tensor], Tensor]) -> Objective:
        """With other targets, where they are a tensor."""
        return Objective(self.loss, change(self.targets) if isinstance(self.targets, Tensor) else self.targets)


def _module_of(loss: Any) -> nn.Module | None:
    """Whose forward or other method the loss is."""
    if isinstance(loss, partial):
        return _module_of(loss.func)
    owner = getattr(loss, "__self__", loss)
    return owner if isinstance(owner, nn.Module) else None
