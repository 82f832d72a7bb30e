"""One training step: forward, backward, update. The same function runs eagerly and inside a CUDA graph.

Nothing in it waits for the device. On a GPU the update is torch's fused kernel, because that one reads the learning
rate from the device: a captured step then follows the schedule (the `foreach` update would fetch the rate to the host).
On the CPU it is the `foreach` update, which gives the numbers of a loop over the weights in less time.

A CUDA graph is one launch instead of hundreds: a small network's step on a GPU takes as long as launching its kernels
does. The first steps of a training run as they are, on the stream that will be captured; then one is captured (which
computes nothing) and from there on replayed, on input buffers that stay in place. Dropout stays random: torch's
generators know about graphs. A choice made on the host does not: the graph would repeat the one that it saw. Draws from
the host's generators are noticed in the first steps, and such a network runs eagerly; host code that changes from step
to step in another way (a counter) is not noticed.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from skipscope.errors import InputError
from skipscope.training.settings import Settings

Step = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # images, labels -> loss, number of right answers
WARM_UP = 3  # steps before a capture: libraries choose their algorithms and take their work space in the first ones


def trained_weights(model: nn.Module) -> dict[str, nn.Parameter]:
    weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    if not weights:
        raise InputError(f"training: {type(model).__name__} has no weight with requires_grad")
    return weights


def autocast(device: torch.device, settings: Settings) -> torch.autocast:
    """Of the forward pass and the loss, in the precision of the settings."""
    precision = None if settings.precision == "float32" else getattr(torch, settings.precision)
    # The cache of cast weights must not outlive a capture; with one forward pass there is little to keep in it.
    return torch.autocast(device.type, precision, precision is not None, cache_enabled=False)


class Update:
    """The optimiser with all that it remembers from step to step."""

    def __init__(self, weights: Mapping[str, Tensor], settings: Settings, device: torch.device) -> None:
        """weights: that are trained, by name."""
        self.weights = dict(weights)
        self.settings = settings
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
        with autocast(self._device, self.settings):
            outputs = model(images)
            loss = F.cross_entropy(outputs, labels, label_smoothing=self.settings.label_smoothing)
        self.descend(loss)
        return loss.detach(), (outputs.detach().argmax(1) == labels).sum()

    def descend(self, loss: Tensor) -> None:
        """The backward pass and the update of the weights."""
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

    def _clip(self) -> None:
        if self.settings.clip is not None:
            nn.utils.clip_grad_norm_(self.weights.values(), self.settings.clip)


class HasGradients(Protocol):
    """The update of one network, or of a stack."""

    def forget_gradients(self) -> None: ...


class GraphedStep:
    """A `Step` that captures itself. Its results are overwritten by the next call."""

    def __init__(self, step: Step, update: HasGradients, device: torch.device, *, required: bool) -> None:
        """required: an error where the step cannot be captured; otherwise a warning, and it runs eagerly."""
        self._step = step
        self._update = update
        self._device = device
        self._required = required
        self._stream = torch.cuda.Stream(device)
        self._warmed = 0
        self._eager = False
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: tuple[Tensor, Tensor] | None = None
        self._results: tuple[Tensor, Tensor] | None = None

    @property
    def captured(self) -> bool:
        return self._graph is not None

    def __call__(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        if not self._eager and self._graph is None:
            if self._warmed < WARM_UP:
                return self._warm_up(images, labels)
            self._capture(images, labels)
        if self._graph is None or self._inputs is None or self._results is None:
            return self._step(images, labels)
        self._inputs[0].copy_(images)
        self._inputs[1].copy_(labels)
        self._graph.replay()
        return self._results

    def _warm_up(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """A step like any other, but on the stream of the capture: autograd remembers where gradients were made."""
        before = _host_randomness()
        here = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(here)
        with torch.cuda.stream(self._stream):
            results = self._step(images, labels)
        here.wait_stream(self._stream)
        self._warmed += 1
        if _host_randomness() != before:
            self._give_up("the model draws random numbers on the host, and a graph would repeat one choice for ever")
        return results

    def _capture(self, images: Tensor, labels: Tensor) -> None:
        inputs = images.clone(), labels.clone()
        graph = torch.cuda.CUDAGraph()
        self._update.forget_gradients()
        try:
            with torch.cuda.graph(graph, stream=self._stream):
                results = self._step(*inputs)
        except RuntimeError as error:
            self._update.forget_gradients()
            _leave_capture(self._device)
            self._give_up(str(error).strip().partition("\n")[0], error)
            return
        self._graph, self._inputs, self._results = graph, inputs, results

    def _give_up(self, reason: str, cause: Exception | None = None) -> None:
        self._eager = True
        if self._required:
            raise InputError(f"training: the step cannot be a CUDA graph ({reason}); leave out graph=True") from cause
        warnings.warn(f"training runs without a CUDA graph, more slowly: {reason}", RuntimeWarning, stacklevel=2)


def _host_randomness() -> list[Any]:
    """The states of the host's generators, to be compared."""
    return [random.getstate(), torch.default_generator.get_state().tolist(), repr(numpy.random.get_state(legacy=False))]


def _leave_capture(device: torch.device) -> None:
    """A capture that fails leaves the device's generator in its capturing state; a copy of it is not in that state."""
    index = torch.cuda.current_device() if device.index is None else device.index
    generator = torch.cuda.default_generators[index]
    generator.graphsafe_set_state(generator.clone_state())
