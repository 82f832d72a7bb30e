"""A batch as the model takes it: positional and keyword arguments, and which tensors carry the batch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from skipscope.errors import InputError
from skipscope.trace.read_weights import is_on_disk


@dataclass(frozen=True)
class Inputs:
    """Arguments of one call of a model; tensors whose `axis` has size `batch` carry the batch."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    axis: int
    batch: int

    @classmethod
    def of(cls, model: nn.Module, x: Any, axis: int = 0) -> Inputs:
        """Bind `x` to the model's forward: a tensor, a tuple of positional or a mapping of keyword arguments."""
        if not isinstance(axis, int) or axis < 0:
            raise InputError(f"batch_axis={axis!r}: expected the number of an axis, counted from 0")
        args, kwargs = _bind(model, x)
        carriers = [t for t in tensors_of((args, kwargs)) if t.dim() > axis]
        if not carriers:
            raise InputError(
                f"expected a batch with at least one tensor of {axis + 1} or more dimensions, got "
                f"{_describe(x)}; pass a batch such as torch.randn(2, 3, 224, 224)"
            )
        batch = carriers[0].shape[axis]
        if batch == 0:
            raise InputError(
                f"expected a batch of at least one sample, got an empty one: {_describe(x)} with samples on axis {axis}"
            )
        return cls(args, kwargs, axis, batch).map(in_own_memory)

    def tensors(self) -> list[Tensor]:
        return tensors_of((self.args, self.kwargs))

    def carries(self, tensor: Tensor) -> bool:
        return tensor.dim() > self.axis and tensor.shape[self.axis] == self.batch

    def about_the_axis(self) -> str:
        """What to do where the axis that was taken for the batch is none."""
        first = next(tensor for tensor in self.tensors() if tensor.dim() > self.axis)
        if first.dim() == 1:
            return (
                f"the first input, of shape {tuple(first.shape)}, seems to be one sample and no batch; pass a batch, "
                "for one sample x[None]"
            )
        return (
            f"axis {self.axis} of the first input, of shape {tuple(first.shape)}, seems not to be the batch; pass "
            "batch_axis=, the axis that runs over samples (1 for sequences as (steps, batch, features)), and first the "
            "input that has it. The nodes of one graph are no batch"
        )

    def map(self, change: Callable[[Tensor], Tensor]) -> Inputs:
        args, kwargs = pytree.tree_map_only(Tensor, change, (self.args, self.kwargs))
        return Inputs(tuple(args), dict(kwargs), self.axis, self.batch)

    def at_least_two(self) -> Inputs:
        """The same batch, repeated when it has one sample: an example of size 1 specialises an exported graph."""
        return self if self.batch >= 2 else self.doubled()

    def doubled(self) -> Inputs:
        """Every sample twice."""
        twice = self.map(lambda t: torch.cat([t, t], self.axis) if self.carries(t) else t)
        return replace(twice, batch=2 * self.batch)

    def with_samples(self, count: int) -> Inputs:
        """So many of the samples, from the first on and over again."""
        places = torch.arange(count) % self.batch
        some = self.map(lambda t: t.index_select(self.axis, places.to(t.device)) if self.carries(t) else t)
        return replace(some, batch=count)

    def rolled(self) -> Inputs:
        """The samples moved on by one place, the last one to the front."""
        return self.map(lambda t: t.roll(1, self.axis) if self.carries(t) else t)

    def floating(self, dtype: torch.dtype) -> Inputs:
        return self.map(lambda t: t.to(dtype) if t.is_floating_point() else t)

    def is_meta(self, model: nn.Module) -> bool:
        """Is there anything without values among the weights and the batch?"""
        return any(tensor.is_meta for tensor in (*_weights(model), *self.tensors()))

    def check_values(self, model: nn.Module) -> None:
        if self.is_meta(model):
            raise InputError(
                f"{type(model).__name__} or its batch is on the meta device, which holds shapes and no values: its "
                "units can be listed, not measured; make the model on a device that holds values, and load its weights"
            )

    def check_device(self, model: nn.Module) -> None:
        if is_on_disk(model):
            return  # its weights go where the batch is
        homes = {t.device.type for t in _weights(model)}
        for tensor in self.tensors():
            if homes and tensor.device.type not in homes:
                raise InputError(
                    f"the model's weights are on {', '.join(sorted(homes))} but the batch is on {tensor.device.type}; "
                    "move one of them with .to(device)"
                )


def tensors_of(tree: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]


def in_own_memory(tensor: Tensor) -> Tensor:
    """A copy where that is needed: a view that shows one number in several places (`expand`) cannot be written to, as
    some models do, and a tensor of inference mode cannot be differentiated at."""
    shared = any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True))
    return tensor.clone(memory_format=torch.contiguous_format) if shared or tensor.is_inference() else tensor


def _weights(model: nn.Module) -> Iterable[Tensor]:
    yield from model.parameters()
    yield from model.buffers()


def _bind(model: nn.Module, x: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(x, Inputs):
        return x.args, x.kwargs
    signature = signature_of(model)
    if isinstance(x, Tensor):
        _check_positional(model, signature)
        return (x,), {}
    if isinstance(x, Mapping):
        named = {str(key): value for key, value in x.items()}
        if _binds(signature, (), named):
            return (), named
        if _binds(signature, (x,), {}):
            return (x,), {}
        expected = [name for name, p in signature.parameters.items() if p.kind is not p.VAR_KEYWORD]
        raise InputError(
            f"{type(model).__name__}.forward takes ({', '.join(expected)}), got keyword inputs "
            f"({', '.join(named)}); rename or drop the ones it does not take"
        )
    if isinstance(x, list | tuple):
        if _binds(signature, tuple(x), {}):
            return tuple(x), {}
        if _binds(signature, (x,), {}):
            return (x,), {}
        _check_positional(model, signature)
        raise InputError(
            f"{type(model).__name__}.forward takes {signature}, got {len(x)} positional inputs; "
            "pass a tuple of its positional inputs or a dict of its keyword inputs"
        )
    raise InputError(f"expected a tensor, a tuple or a dict as the batch, got {_describe(x)}")


def signature_of(model: nn.Module) -> inspect.Signature:
    try:
        return inspect.signature(model.forward)
    except ValueError:  # a forward that is not written in Python
        return inspect.signature(lambda *args, **kwargs: None)


def _check_positional(model: nn.Module, signature: inspect.Signature) -> None:
    """A forward without positional arguments takes a dict."""
    parameters = signature.parameters.values()
    if any(p.kind not in (p.KEYWORD_ONLY, p.VAR_KEYWORD) for p in parameters):
        return
    named = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    raise InputError(
        f"{type(model).__name__}.forward takes keyword inputs only ({', '.join(named)}), got a positional one; pass a "
        f"dict such as {{{(named or ['name'])[0]!r}: batch}}"
    )


def _binds(signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def _describe(x: Any) -> str:
    shapes = [tuple(tensor.shape) for tensor in tensors_of(x)]
    return f"{type(x).__name__} with tensors of shapes {shapes}" if shapes else type(x).__name__
