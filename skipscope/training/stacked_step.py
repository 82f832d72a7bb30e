"""The training step of stacked networks: each member has its own rate, decay and clip.

The update is that of `step.py`, stochastic gradient descent with momentum, matrix by matrix: a stacked matrix, its
gradient and its momentum are then in the cache together. Vectors, of which there are more, are updated at once, since
theirs are hundreds of short calls, in which stacks in several threads wait for each other. Where members differ in
their seeds alone, a GPU updates all weights with torch's fused kernel, as for one network.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from skipscope.training.settings import Settings
from skipscope.training.step import Update, autocast

# What members of a stack must have in common. What is not here each of them has for itself.
COMMON = ("epochs", "batch", "momentum", "nesterov", "decay_norms", "label_smoothing", "precision")
LEAST_NORM = 1e-6  # that `torch.nn.utils.clip_grad_norm_` adds to a norm before it divides by it


class Stack(Protocol):
    """Networks of one architecture that are computed together: `stacked_matrices.py`, `stacked_convolutions.py`."""

    weights: dict[str, Tensor]
    buffers: dict[str, Tensor]

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def device(self) -> torch.device: ...

    def __call__(self, images: Tensor, draws: Sequence[torch.Generator] | None = None) -> Tensor:
        """(K, B, ...) -> (K, classes, B). draws: one per member, in training; None: evaluation."""

    def by_member(self, tensor: Tensor) -> Tensor:
        """(K, ...), a view of one of its weights, or of a tensor of that form."""

    def release(self) -> None:
        """Each member owns its memory again."""


class StackedUpdate(Protocol):
    """The optimiser of a stack, with all that it remembers from step to step."""

    momenta: dict[str, Tensor]
    draws: Sequence[torch.Generator]  # one per member, for what the networks draw themselves

    def set_rates(self, rates: Sequence[float]) -> None: ...

    def step(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """images (K, B, ...), labels (K, B). The losses (K,) before the update, and the numbers of right answers."""

    def forget_gradients(self) -> None: ...


def stacked_update(stack: Stack, settings: Sequence[Settings]) -> StackedUpdate:
    """settings: of the members, alike in what is in COMMON."""
    alike = {dataclasses.replace(one, seed=0) for one in settings}
    # What the fused kernel takes for a vector is one here only if members do not have a dimension of their own.
    flat = all(stack.by_member(weight).dim() > weight.dim() for weight in stack.weights.values())
    if stack.device.type == "cuda" and len(alike) == 1 and settings[0].clip is None and flat:
        return AlikeUpdate(stack, settings[0])
    return EachUpdate(stack, settings)


def stacked_losses(outputs: Tensor, labels: Tensor, settings: Settings) -> Tensor:
    """(K,): the gradient of their sum has each member's own, since no loss depends on the weights of another."""
    return F.cross_entropy(outputs, labels, reduction="none", label_smoothing=settings.label_smoothing).mean(1)


class AlikeUpdate(Update):
    """Of members that differ in their seeds alone."""

    def __init__(self, stack: Stack, settings: Settings) -> None:
        super().__init__(stack.weights, settings, stack.device)
        self._stack = stack
        self.draws: Sequence[torch.Generator] = ()

    def set_rates(self, rates: Sequence[float]) -> None:
        self.set_rate(rates[0])

    def step(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        self.forget_gradients()
        with autocast(self._stack.device, self.settings):
            outputs = self._stack(images, self.draws)
            losses = stacked_losses(outputs, labels, self.settings)
        self.descend(losses.sum())
        return losses.detach(), (outputs.detach().argmax(1) == labels).sum(1)


@dataclass(frozen=True)
class _Group:
    """Weights that are updated together, and what belongs to each of them; all but the first by member."""

    wholes: list[Tensor]
    weights: list[Tensor]
    momenta: list[Tensor]  # none where there is no momentum
    rates: list[Tensor]
    decays: list[Tensor]  # none where they do not decay


def _beside(each: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
    """(K,) in a form in which it can be multiplied by each of the weights (K, ...); views."""
    return [each.view(-1, *[1] * (weight.dim() - 1)) for weight in weights]


class EachUpdate:
    """Of members with rates, decays and clips of their own."""

    def __init__(self, stack: Stack, settings: Sequence[Settings]) -> None:
        self._stack, self._settings = stack, settings[0]
        self.momenta = {n: torch.zeros_like(w) for n, w in stack.weights.items()} if self._settings.momentum else {}
        self.draws: Sequence[torch.Generator] = ()
        self._rates = self._each(one.rate for one in settings)  # written in place: a captured step reads it
        self._decays = self._each(one.weight_decay for one in settings)
        clips = [math.inf if one.clip is None else one.clip for one in settings]
        self._clips = None if min(clips) == math.inf else self._each(clips)
        dimensions = {name: stack.by_member(weight).dim() for name, weight in stack.weights.items()}
        matrices = [name for name in dimensions if dimensions[name] > 2]  # the first dimension is that of the members
        vectors = [name for name in dimensions if dimensions[name] <= 2]
        self._groups = [self._group([name], decays=True) for name in matrices]
        self._groups += [self._group(vectors, decays=self._settings.decay_norms)] if vectors else []

    def _group(self, names: Sequence[str], decays: bool) -> _Group:
        wholes = [self._stack.weights[name] for name in names]
        weights = [self._stack.by_member(whole.detach()) for whole in wholes]
        momenta = [self._stack.by_member(self.momenta[name]) for name in names if name in self.momenta]
        return _Group(
            wholes, weights, momenta, _beside(self._rates, weights), _beside(self._decays, weights) if decays else []
        )

    def _each(self, values: Iterable[float]) -> Tensor:
        return torch.tensor(list(values), dtype=self._stack.dtype, device=self._stack.device)

    def set_rates(self, rates: Sequence[float]) -> None:
        """On a GPU in float32, as those of a network alone, and from memory that is copied without waiting."""
        on_gpu = self._stack.device.type == "cuda"
        dtype = torch.float32 if on_gpu else self._stack.dtype
        self._rates.copy_(torch.tensor(rates, dtype=dtype, device="cpu", pin_memory=on_gpu), non_blocking=True)

    def step(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        with autocast(self._stack.device, self._settings):
            outputs = self._stack(images, self.draws)  # K, classes, B
            losses = stacked_losses(outputs, labels, self._settings)
        losses.sum().backward()
        with torch.no_grad():
            self._update()
        answers = outputs.detach().max(1).indices  # argmax takes ten times as long on a CPU
        return losses.detach(), (answers == labels).sum(1)

    def _update(self) -> None:
        shares, settings = self._shares(), self._settings
        for group in self._groups:
            gradients = [self._gradient(whole) for whole in group.wholes]
            if shares is not None:
                torch._foreach_mul_(gradients, _beside(shares, gradients))
            if group.decays:
                torch._foreach_addcmul_(gradients, group.weights, group.decays)
            if group.momenta:
                torch._foreach_mul_(group.momenta, settings.momentum)
                torch._foreach_add_(group.momenta, gradients)
                if settings.nesterov:
                    torch._foreach_add_(gradients, group.momenta, alpha=settings.momentum)
            steps = group.momenta if group.momenta and not settings.nesterov else gradients
            torch._foreach_addcmul_(group.weights, steps, group.rates, value=-1)
        self.forget_gradients()

    def _gradient(self, whole: Tensor) -> Tensor:
        """(K, ...)."""
        assert whole.grad is not None
        return self._stack.by_member(whole.grad)

    def _shares(self) -> Tensor | None:
        """(K,) by which gradients are multiplied, so that none is longer than its member's clip."""
        if self._clips is None:
            return None
        gradients = [self._gradient(whole).flatten(1) for whole in self._stack.weights.values()]
        norms = torch.stack([gradient.norm(dim=1) for gradient in gradients]).norm(dim=0)
        return (self._clips / (norms + LEAST_NORM)).clamp(max=1.0)

    def forget_gradients(self) -> None:
        for weight in self._stack.weights.values():
            weight.grad = None
