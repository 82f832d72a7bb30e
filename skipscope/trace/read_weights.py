"""Weights that are converted as they are read: a half-precision model in float32, a model on disk on a GPU.

A copy of a model in another type takes two more times its memory. Here a weight is converted when a graph (or the
model's own forward, through `in_place`) reads it; those that were read last are kept, within a bound, so that the unit
in work does not convert its weights again for every product, and those of other units leave. Each reading asks whether
the weight is still the one that was converted.

Two things would keep every converted weight of a network alive, and are taken care of: the graph of a backward pass
(`left_out_of_graphs`: it reads them again) and the skeleton that the structure is exported from (its weights are
memory that is never touched).
"""

from __future__ import annotations

import copy
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from skipscope.memory_limit import smallest_limit
from skipscope.trace.freshness import fingerprint

HALF = (torch.float16, torch.bfloat16)
KEPT = 2 * 2**30  # bytes of converted weights, where no limit is set: a block of the largest common models
SHARE_OF_LIMIT = 0.25  # for the weights that are kept
BUFFER = 32 * 2**20  # bytes of page-locked memory that a weight goes through on its way to a GPU, twice
_on_disk: weakref.WeakSet[nn.Module] = weakref.WeakSet()

Key = tuple[int, torch.Size, tuple[int, ...], torch.dtype, torch.device]  # where and how the weight lies; as what


class Kept(NamedTuple):
    weight: Tensor  # held, so that no other weight gets its identity
    fingerprint: Any
    converted: Tensor


def mark_on_disk(model: nn.Module) -> None:
    """Its weights are pages of files: they go to the device that a batch is on, one by one."""
    _on_disk.add(model)


def is_on_disk(model: nn.Module) -> bool:
    return model in _on_disk


def halves_of(model: nn.Module) -> list[str]:
    """The names of the types of half precision that the model's weights have."""
    return sorted({str(weight.dtype).removeprefix("torch.") for weight in model.parameters() if weight.dtype in HALF})


def sent(weight: Tensor, device: torch.device) -> Tensor:
    """The weight on a device. To a GPU through two buffers of page-locked memory in turn: all cores read the pages of a
    file, and the next part is read while one is on its way."""
    if device.type != "cuda" or weight.device.type != "cpu" or not weight.is_contiguous():
        return weight.to(device)
    there = torch.empty_like(weight, device=device)
    source, target = weight.view(-1), there.view(-1)
    part = max(1, BUFFER // max(1, weight.element_size()))
    try:
        buffers = [
            torch.empty(min(part, len(source)), dtype=weight.dtype, device="cpu", pin_memory=True) for _ in range(2)
        ]
    except RuntimeError:  # no such memory here
        return weight.to(device)
    arrived = [torch.cuda.Event() for _ in range(2)]
    for number, start in enumerate(range(0, len(source), part)):
        turn, size = number % 2, min(part, len(source) - start)
        arrived[turn].synchronize()
        buffers[turn][:size].copy_(source[start : start + size])
        target[start : start + size].copy_(buffers[turn][:size], non_blocking=True)
        arrived[turn].record(torch.cuda.current_stream(device))
    return there


class ReadWeights:
    """How the weights of a model are read. dtype: what they are converted to; None leaves them as they are."""

    def __init__(self, model: nn.Module, dtype: torch.dtype | None) -> None:
        self.model, self.dtype = model, dtype
        self._kept: OrderedDict[Key, Kept] = OrderedDict()
        self._pointers: dict[int, Key] = {}  # of the memory of those that are kept
        self._bytes = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> ReadWeights:
        return ReadWeights(copy.deepcopy(self.model, memo), self.dtype)

    @property
    def room(self) -> int:
        """Bytes that the weights that are kept may take together."""
        limit = smallest_limit()
        return KEPT if limit is None else int(SHARE_OF_LIMIT * limit)

    def read(self, weight: Any, dtype: torch.dtype | None, device: torch.device | None) -> Any:
        """A weight or buffer in a floating type and on a device; it takes part in no derivative."""
        if not isinstance(weight, Tensor):
            return weight
        # Inside a derivative the result would be a wrapper that ends with it, and it is kept for longer.
        with torch._C._DisableFuncTorch(), torch.no_grad():
            return self._read(weight.detach(), dtype, device)

    def _read(self, weight: Tensor, dtype: torch.dtype | None, device: torch.device | None) -> Tensor:
        home = weight.device if device is None else device
        kind = weight.dtype
        if dtype is not None:
            kind = dtype if weight.is_floating_point() else dtype.to_complex() if weight.is_complex() else kind
        if home == weight.device and kind == weight.dtype:
            return weight
        if weight.device.type != "cpu":
            return weight.to(home, kind)  # on a GPU that is quicker than to ask whether it has changed
        if home.type == "cuda" and torch.cuda.is_current_stream_capturing():
            raise RuntimeError("a captured graph would go on reading a weight that may have left the memory")
        return self._converted(weight, kind, home)

    def _converted(self, weight: Tensor, dtype: torch.dtype, device: torch.device) -> Tensor:
        key = (weight.data_ptr(), weight.shape, weight.stride(), dtype, device)
        seen = fingerprint(weight)
        kept = self._kept.get(key)
        if kept is not None and kept.fingerprint == seen:
            self._kept.move_to_end(key)
            return kept.converted
        if kept is not None:
            self._drop(key)
        size = weight.numel() * dtype.itemsize
        room = self.room
        while self._kept and self._bytes + size > room:
            self._drop(next(iter(self._kept)))
        converted = sent(weight, device).to(dtype)  # a half is sent as a half
        if weight.numel():
            self._kept[key] = Kept(weight, seen, converted)
            self._pointers[converted.untyped_storage().data_ptr()] = key
            self._bytes += size
        return converted

    def _drop(self, key: Key) -> None:
        converted = self._kept.pop(key).converted
        self._pointers.pop(converted.untyped_storage().data_ptr(), None)
        self._bytes -= converted.numel() * converted.element_size()

    def skeleton(self) -> nn.Module:
        """A copy on the CPU in the type of the reading, of which only the structure is used: its weights are memory
        that is never touched, and so never taken. Buffers and other tensors have their values."""
        memo: dict[int, Any] = {}
        for weight in self.model.parameters():
            dtype = self.dtype if self.dtype is not None and weight.is_floating_point() else weight.dtype
            empty = torch.empty_like(weight, dtype=dtype, device="cpu", requires_grad=False)
            memo[id(weight)] = nn.Parameter(empty, requires_grad=weight.requires_grad)
        twin = copy.deepcopy(self.model, memo)
        return twin.to("cpu") if self.dtype is None else twin.to("cpu", self.dtype)

    @contextmanager
    def in_place(self, device: torch.device | None) -> Iterator[None]:
        """The model's own code reads converted weights too, wherever it asks a module for one."""
        modules = list(self.model.modules())
        places = [(vars(m), name, vars(m)[name]) for m in modules for name in ("_parameters", "_buffers")]
        try:
            for home, name, weights in places:
                home[name] = _Reading(weights, self, device)
            yield
        finally:
            for home, name, weights in places:
                home[name] = weights

    @contextmanager
    def left_out_of_graphs(self) -> Iterator[None]:
        """Graphs of derivatives that are recorded inside hold the names of converted weights, not the weights."""
        with torch.autograd.graph.saved_tensors_hooks(self._packed, self._unpacked):
            yield

    def _packed(self, value: Tensor) -> Any:
        key = self._pointers.get(value.untyped_storage().data_ptr())
        if key is None:
            return value
        return self._kept[key].weight, key, value.shape, value.stride(), value.storage_offset()

    def _unpacked(self, packed: Any) -> Tensor:
        if isinstance(packed, Tensor):
            return packed
        weight, (*_, dtype, device), shape, stride, offset = packed
        with torch.no_grad():
            value: Tensor = self._converted(weight, dtype, device).as_strided(shape, stride, offset)
        return value


class _Reading(dict[str, Any]):
    """A module's weights or buffers by name; what is asked for is converted."""

    def __init__(self, weights: dict[str, Any], reading: ReadWeights, device: torch.device | None) -> None:
        super().__init__(weights)
        self._reading, self._device = reading, device

    def __getitem__(self, name: str) -> Any:
        return self._reading.read(super().__getitem__(name), self._reading.dtype, self._device)
