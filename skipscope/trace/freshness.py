"""Are the weights still those that a point was computed with?

A point holds states; a unit reads its weights from the model each time it runs. After a step of training the two belong
to different networks, and a Jacobian of the one at the states of the other is of neither. Torch counts the writes to a
tensor (`_version`), but not those of fused optimizers, of batch norms or through `.data`: so of each weight the middle
entry is compared too. The question costs a comparison of numbers for each weight and one transfer from each device. It
is asked at every product; inside of `asked_once`, which a measurement of many products opens, at the first and again at
the end, so that a measurement during which the weights changed is refused too.
"""

from __future__ import annotations

import copy
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from skipscope.errors import InputError


class _Measurement:
    def __init__(self) -> None:
        self.asked: dict[int, WeightsSeen] = {}  # by their id
        self.open = True


class _Thread(threading.local):
    measurement: _Measurement | None = None  # that this thread is in


_thread = _Thread()


@contextmanager
def asked_once() -> Iterator[None]:
    """Around a measurement: its many products ask for the weights at the first of them and, of all, in the end.

    One inside of another belongs to it.
    """
    if _thread.measurement is not None:
        yield
        return
    _thread.measurement = own = _Measurement()
    try:
        yield
    finally:
        own.open, _thread.measurement = False, None
    for seen in own.asked.values():
        seen.check()


class WeightsSeen:
    """The identity and version of some parameters and buffers of a model, by name."""

    def __init__(self, model: nn.Module, names: Iterable[str]) -> None:
        self.model, self.names = model, list(names)
        owners = {path: model.get_submodule(path) for path in {name.rpartition(".")[0] for name in self.names}}
        self._owners = [(path.split(".") if path else [], owner) for path, owner in owners.items()]
        self._seen = [self._one(name, owners[name.rpartition(".")[0]]) for name in self.names]
        # Views of the weights' own memory, where bytes can be viewed, so that they show what is written later.
        self._middles = [None if _is_odd(home[own]) else _middle(home[own]) for _, home, own, *_ in self._seen]
        self._entries: list[bytes | None] = [*self._probed()]

    @staticmethod
    def _one(name: str, owner: nn.Module) -> tuple[str, Mapping[str, Any], str, Any, int, int]:
        own = name.rpartition(".")[2]
        home = owner._parameters if own in owner._parameters else owner._buffers
        value = home[own]
        assert value is not None, "names are those of weights that are there"
        return name, home, own, weakref.ref(value), version_of(value), _pointer(value)

    def changed(self) -> str | None:
        """The name of the first weight or module that is not as it was; None if all are."""
        for path, owner in self._owners:
            module: Any = self.model
            for part in path:
                module = None if module is None else module._modules.get(part)
            if module is not owner:
                return ".".join(path)
        for name, home, own, reference, version, pointer in self._seen:
            value = home.get(own)
            if value is None or value is not reference() or version_of(value) != version or _pointer(value) != pointer:
                return name
        now = self._probed()
        return next(
            (name for name, *pair in zip(self.names, self._entries, now, strict=True) if pair[0] != pair[1]), None
        )

    def check(self) -> None:
        if (measurement := _thread.measurement) is not None:
            if id(self) in measurement.asked:
                return
            measurement.asked[id(self)] = self
        if (name := self.changed()) is not None:
            raise InputError(
                f"the weights have changed since this point was computed (first {name}): its states belong to the old "
                "ones; call trunk.at(x) again and use the new point"
            )

    def __deepcopy__(self, memo: dict[int, Any]) -> WeightsSeen:
        """Of a copy of the model; one that had changed before stays so."""
        changed = self.changed()
        twin = WeightsSeen(copy.deepcopy(self.model, memo), self.names)
        twin._entries = twin._entries if changed is None else [None] * len(twin._entries)
        return twin

    def _probed(self) -> list[bytes]:
        """The middle entry of each weight as bytes, in which NaN equals NaN; of an empty one none."""
        pairs = zip(self._middles, self._seen, strict=True)
        return _read([_middle(home[own]) if view is None else view for view, (_, home, own, *_) in pairs])


def _is_odd(value: Tensor) -> bool:
    """Is what the memory holds not the number itself?"""
    return value.is_quantized or value.is_conj() or value.is_neg()


def _middle(value: Tensor) -> Tensor:
    """The bytes of the middle entry; of a weight without entries none."""
    if not value.numel() or value.is_meta:
        return torch.empty(0, dtype=torch.uint8, device="cpu")
    middle = value.detach()[tuple(size // 2 for size in value.shape)]
    if middle.is_quantized:  # its bytes cannot be looked at
        middle = torch.tensor(middle.item(), device="cpu")
    return middle.resolve_conj().resolve_neg().reshape(1).view(torch.uint8)


def _read(entries: Sequence[Tensor]) -> list[bytes]:
    """The values, with one transfer from each device: each waits for all that the device has still to do."""
    by_device: dict[torch.device, list[int]] = {}
    for index, entry in enumerate(entries):
        by_device.setdefault(entry.device, []).append(index)
    found = [b""] * len(entries)
    for indices in by_device.values():
        read, start = bytes(torch.cat([entries[index] for index in indices]).tolist()), 0
        for index in indices:
            stop = start + len(entries[index])
            found[index], start = read[start:stop], stop
    return found


class WhileFresh:
    """A function of a state, refused once the weights have changed, also in a derivative that was recorded before."""

    def __init__(
        self,
        function: Callable[[Tensor], Tensor],
        seen: WeightsSeen,
        weights: int | None = None,
        largest: Callable[[], int] = lambda: 0,
    ) -> None:
        """weights: how many numbers the function multiplies by, where that is known. largest: of a value on the way."""
        self.function, self.check, self.weights, self.largest = function, seen.check, weights, largest
        self.check()

    def __call__(self, state: Tensor) -> Tensor:
        self.check()
        value: Tensor = _Checked.apply(self.function(state), self.check, _thread.measurement)
        return value


class _Checked(torch.autograd.Function):
    """The identity, whose derivative asks before it runs, and the derivative of that."""

    generate_vmap_rule = True

    @staticmethod
    def forward(value: Tensor, check: Callable[[], None], recorded_in: _Measurement | None) -> Tensor:
        return value.view_as(value)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, ctx.check, ctx.recorded_in = inputs

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        if ctx.recorded_in is None or not ctx.recorded_in.open:  # torch may be in another thread than the measurement
            ctx.check()
        return _Checked.apply(gradient, ctx.check, ctx.recorded_in), None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, check: None, recorded_in: None) -> Tensor:
        return tangent.view_as(tangent)


def fingerprint(value: Tensor) -> tuple[int, int, bytes]:
    """Of one weight, what shows that it was changed: the count of writes, where it lies, its middle entry."""
    return version_of(value), _pointer(value), bytes(_middle(value).tolist())


def version_of(value: Tensor) -> int:
    """How often torch has seen it written to; it does not count the writes to inference tensors."""
    return 0 if value.is_inference() else value._version


def _pointer(value: Tensor) -> int:
    try:
        return value.data_ptr()
    except RuntimeError:  # a tensor without memory of its own
        return 0
