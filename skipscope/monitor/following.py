"""The weights of a model that is trained in another form than the one that is looked at: sharded over processes.

A plain copy of the model, on the first process alone, gets the weights of the model that is trained before every look,
one unit (or other module) at a time, so that no process holds more than one of them beside its own part and the first
one's copy. All processes take part in that; the first one measures and writes.

    fully_shard         parameters are DTensors, each gathered by `full_tensor`
    FullyShardedDataParallel    flat parameters, of one wrapped module at a time by `summon_full_params`
    anything else       parameters of the same names are copied
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, distributed, nn

from skipscope.errors import InputError
from skipscope.trace.undisturbed import unwrapped

WRAPPER = "_fsdp_wrapped_module."  # what FullyShardedDataParallel puts into names
CHECKPOINTED = "_checkpoint_wrapped_module."  # and torch's checkpointing of activations


def is_first() -> bool:
    """Whether this is the process that measures and writes."""
    return not in_several() or distributed.get_rank() == 0


def in_several() -> bool:
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


def decided_by_the_first(names: list[str]) -> list[str]:
    """The same list in every process, that of the first."""
    if not in_several():
        return names
    told: list[Any] = [names]
    distributed.broadcast_object_list(told, src=0)
    return list(told[0])


def plain_name(name: str) -> str:
    return name.replace(WRAPPER, "").replace(CHECKPOINTED, "").removeprefix("_orig_mod.").removeprefix("module.")


class Followed:
    """twin: the plain copy, None on all processes but the first. model: the one that is trained."""

    def __init__(self, twin: nn.Module | None, model: nn.Module) -> None:
        self.model = unwrapped(model)
        self.places: dict[str, Tensor] = {}
        if twin is not None:
            self.places = {**dict(twin.named_parameters()), **dict(twin.named_buffers())}
            known = {plain_name(name) for name, _ in self._named()}
            missing = [name for name in self.places if name not in known]
            if missing and not self._is_flat():
                raise InputError(
                    f"Monitor: follow= has no weight {missing[0]!r}, which the model has; pass a plain copy of the "
                    "model, made before it was wrapped or sharded"
                )

    def update(self) -> None:
        """Take over the weights of now. All processes have to call it."""
        with torch.no_grad():
            for whole in self._parts():
                with whole:
                    for name, value in self._named():
                        self._copy(plain_name(name), value)

    def _named(self) -> Iterator[tuple[str, Tensor]]:
        yield from self.model.named_parameters()
        yield from self.model.named_buffers()

    def _is_flat(self) -> bool:
        return any(isinstance(module, _fsdp()) for module in self.model.modules())

    def _parts(self) -> Iterator[Any]:
        """Contexts, one after another, in which some of the weights are whole."""
        flat = [module for module in self.model.modules() if isinstance(module, _fsdp())]
        if not flat:
            yield _whole()
        for module in flat:
            yield _fsdp().summon_full_params(module, recurse=False, writeback=False, rank0_only=True)

    def _copy(self, name: str, value: Tensor) -> None:
        whole = value.full_tensor() if hasattr(value, "full_tensor") else value.detach()  # full_tensor: all take part
        place = self.places.get(name)
        if place is not None and whole.shape == place.shape:
            place.copy_(whole)


def _fsdp() -> Any:
    from torch.distributed.fsdp import FullyShardedDataParallel

    return FullyShardedDataParallel


@contextmanager
def _whole() -> Iterator[None]:
    yield
