"""The training step of stacked networks: each member has its own rate, decay and clip.

The update is that of `step.py`, stochastic gradient descent with momentum, weight by weight: a stacked weight, its
gradient and its momentum are then in the cache together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from skipscope.training.settings import Settings
from skipscope.training.stacked import Stack

# What members of a stack must have in common. What is not here each of them has for itself.
COMMON = ("epochs", "batch", "momentum", "nesterov", "decay_norms", "label_smoothing", "precision")
LEAST_NORM = 1e-6  # that `torch.nn.utils.clip_grad_norm_` adds to a norm before it divides by it


class StackedUpdate:
    """The optimiser of a stack, with all that it remembers from step to step."""

    def __init__(self, stack: Stack, settings: Sequence[Settings]) -> None:
        self._stack, self._settings = stack, settings[0]
        self.momenta = {n: torch.zeros_like(w) for n, w in stack.weights.items()} if self._settings.momentum else {}
        self._rates = self._each(one.rate for one in settings)  # written in place: a captured step reads it
        self.draws: Sequence[torch.Generator] = ()  # one per member, for what the networks draw themselves
        self._decays = self._each(one.weight_decay for one in settings)
        clips = [math.inf if one.clip is None else one.clip for one in settings]
        self._clips = None if min(clips) == math.inf else self._each(clips)

    def _each(self, values: Iterable[float]) -> Tensor:
        return torch.tensor(list(values), dtype=self._stack.dtype, device=self._stack.device)

    def set_rates(self, rates: Sequence[float]) -> None:
        self._rates.copy_(torch.tensor(rates, dtype=self._stack.dtype))

    def step(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """images (K, B, ...), labels (K, B). The losses (K,) before the update, and the numbers of right answers."""
        outputs = self._stack(images, self.draws)  # K, classes, B
        each = F.cross_entropy(outputs, labels, reduction="none", label_smoothing=self._settings.label_smoothing)
        losses = each.mean(1)
        # The gradient of a sum: no member's loss depends on the weights of another.
        losses.sum().backward()
        with torch.no_grad():
            self._update()
        return losses.detach(), (outputs.detach().argmax(1) == labels).sum(1)

    def _update(self) -> None:
        shares = self._shares()
        for name, weight in self._stack.weights.items():
            gradient, weight.grad = weight.grad, None
            assert gradient is not None
            shape = (-1, *[1] * (weight.dim() - 1))
            if shares is not None:
                gradient.mul_(shares.view(shape))
            if weight.dim() > 2 or self._settings.decay_norms:  # the first dimension is that of the members
                gradient.addcmul_(weight, self._decays.view(shape))
            if name in self.momenta:
                momentum = self.momenta[name].mul_(self._settings.momentum).add_(gradient)
                gradient = (
                    gradient.add_(momentum, alpha=self._settings.momentum) if self._settings.nesterov else momentum
                )
            weight.addcmul_(gradient, self._rates.view(shape), value=-1)

    def _shares(self) -> Tensor | None:
        """(K,) by which gradients are multiplied, so that none is longer than its member's clip."""
        if self._clips is None:
            return None
        gradients = [weight.grad.flatten(1) for weight in self._stack.weights.values() if weight.grad is not None]
        norms = torch.stack([gradient.norm(dim=1) for gradient in gradients]).norm(dim=0)
        return (self._clips / (norms + LEAST_NORM)).clamp(max=1.0)

    def forget_gradients(self) -> None:
        for weight in self._stack.weights.values():
            weight.grad = None
