"""One training step: forward, backward, update. The same function runs eagerly and inside a CUDA graph.

Nothing in it waits for the device. On a GPU the update is torch's fused kernel, because that one reads the learning
rate from the device: a captured step then follows the schedule (the `foreach` update would fetch the rate to the host).
On the CPU it is the `foreach` update, which gives the numbers of a loop over the weights in less time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from skipscope.errors import InputError
from skipscope.training.settings import Settings

Step = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # images, labels -> loss, number of right answers


def trained_weights(model: nn.Module) -> dict[str, nn.Parameter]:
    weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    if not weights:
        raise InputError(f"training: {type(model).__name__} has no weight with requires_grad")
    return weights


class Update:
    """The optimiser with all that it remembers from step to step."""

    def __init__(self, model: nn.Module, settings: Settings, device: torch.device) -> None:
        self.weights = trained_weights(model)
        self.settings = settings
        self._autocast = None if settings.precision == "float32" else getattr(torch, settings.precision)
        self._device = device
        on_gpu = device.type == "cuda"
        self._rate = torch.tensor(settings.rate, dtype=torch.float32, device=device) if on_gpu else None
        self._optimizer = torch.optim.SGD(
            self._groups(),
            settings.rate if self._rate is None else self._rate,
            momentum=settings.momentum,
            nesterov=settings.nesterov,
            fused=on_gpu,
            foreach=not on_gpu,
        )
        # With buffers of zeros the first step is like every other, so that it can be captured and saved like them.
        self.momenta = {name: torch.zeros_like(w) for name, w in self.weights.items()} if settings.momentum else {}
        for name, buffer in self.momenta.items():
            self._optimizer.state[self.weights[name]]["momentum_buffer"] = buffer
        self.scaler = torch.amp.GradScaler(device.type) if settings.precision == "float16" else None

    def _groups(self) -> list[dict[str, Any]]:
        free = [w for w in self.weights.values() if w.dim() < 2 and not self.settings.decay_norms]
        decaying = [w for w in self.weights.values() if w.dim() >= 2 or self.settings.decay_norms]
        groups = [
            {"params": decaying, "weight_decay": self.settings.weight_decay},
            {"params": free, "weight_decay": 0.0},
        ]
        return [group for group in groups if group["params"]]

    def set_rate(self, rate: float) -> None:
        for group in self._optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def forget_gradients(self) -> None:
        self._optimizer.zero_grad(set_to_none=True)

    def step(self, model: nn.Module, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The loss before the update, and how many answers were right."""
        # Not zeros but nothing: in a graph the backward pass then writes the gradients, and does not add to them.
        self.forget_gradients()
        # The cache of cast weights must not outlive a capture; with one forward pass there is little to keep in it.
        with torch.autocast(self._device.type, self._autocast, self._autocast is not None, cache_enabled=False):
            outputs = model(images)
            loss = F.cross_entropy(outputs, labels, label_smoothing=self.settings.label_smoothing)
        if self.scaler is None:
            loss.backward()
            self._clip()
            self._optimizer.step()
        else:
            self.scaler.scale(loss).backward()
            if self.settings.clip is not None:
                self.scaler.unscale_(self._optimizer)
                self._clip()
            self.scaler.step(self._optimizer)
            self.scaler.update()
        return loss.detach(), (outputs.detach().argmax(1) == labels).sum()

    def _clip(self) -> None:
        if self.settings.clip is not None:
            nn.utils.clip_grad_norm_(self.weights.values(), self.settings.clip)
