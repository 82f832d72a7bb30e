"""A training step as a CUDA graph: one launch instead of hundreds.

A small network's step on a GPU takes as long as launching its kernels does. The first steps of a training run as they
are, on the stream that will be captured; then one is captured (which computes nothing) and from there on replayed, on
input buffers that stay in place. Dropout stays random: torch's generators know about graphs. A choice made on the host
does not: the graph would repeat the one that it saw. Draws from the host's generators are noticed in the first steps,
and such a network runs eagerly; host code that changes from step to step in another way (a counter) is not noticed.
"""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy
import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.training.step import Step, Update

WARM_UP = 3  # steps: libraries choose their algorithms and take their work space in the first ones


class GraphedStep:
    """A `Step` that captures itself. Its results are overwritten by the next call."""

    def __init__(self, step: Step, update: Update, device: torch.device, *, required: bool) -> None:
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
