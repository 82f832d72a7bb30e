"""Which blocks of a model are alike: the same code and weights of the same forms.

Children of a `ModuleList` or `Sequential` that differ in their weights, and perhaps in some settings (the number of a
layer), are blocks of one kind. What stands in two places, is hooked, or has no weights is none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from skipscope.trace.operations import expression

FEWEST = 3  # blocks of one kind: for fewer it is not worth the trouble
CONTAINERS = (nn.ModuleList, nn.Sequential)
PLAIN_TYPES = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
HELD = ("_parameters", "_buffers", "_modules")
Setting = tuple[str, str]  # the path in the block and the name


class UnlikeError(Exception):
    """A block is no plain repetition of another. Not for users: the model is then exported as it is."""


@dataclass
class Kind:
    """Blocks of the same code with weights of the same forms, by their paths."""

    blocks: dict[str, nn.Module]
    differing: dict[Setting, dict[str, Any]]  # settings that are not the same: their values by the block's path


def kinds_of(model: nn.Module) -> list[Kind]:
    modules = list(model.named_modules(remove_duplicate=False))
    times = Counter(id(module) for _, module in modules)
    tensors = Counter(id(value) for _, module in modules for value in _weights(module).values())
    kinds: list[Kind] = []
    taken: set[str] = set()  # paths of blocks: what repeats itself inside one is not looked at
    for path, container in modules:
        parts = path.split(".")
        if not isinstance(container, CONTAINERS) or len(container) < FEWEST:
            continue
        if any(".".join(parts[: i + 1]) in taken for i in range(len(parts))):
            continue
        groups: dict[Any, dict[str, nn.Module]] = {}
        for name, block in container.named_children():
            if _stands_alone(block, times, tensors):
                groups.setdefault(_likeness(block), {})[f"{path}.{name}" if path else name] = block
        for group in groups.values():
            if len(group) >= FEWEST:
                kinds.append(Kind(group, _differing(group)))
                taken |= group.keys()
    return kinds


def _weights(module: nn.Module) -> dict[str, Tensor]:
    places = (module._parameters, module._buffers)
    return {key: value for place in places for key, value in place.items() if value is not None}


def _stands_alone(block: nn.Module, times: Counter[int], tensors: Counter[int]) -> bool:
    """Is it made of modules, with weights, none of which are in another place, and is nothing attached to them?"""
    if next(block.children(), None) is None:
        return False
    modules = list(block.modules())
    for module in modules:
        settings = vars(module)
        if times[id(module)] > 1 or isinstance(module, torch.jit.ScriptModule) or "forward" in settings:
            return False
        if any(value for key, value in settings.items() if key.endswith("_hooks")):
            return False
    weights = [value for module in modules for value in _weights(module).values()]
    return bool(weights) and all(tensors[id(value)] == 1 and _is_usual(value) for value in weights)


def _is_usual(value: Tensor) -> bool:
    return type(value) in (Tensor, nn.Parameter) or hasattr(value, "fake_mode")


def _likeness(block: nn.Module) -> Any:
    parts = []
    for name, module in block.named_modules():
        weights = _weights(module)
        forms = tuple((key, type(value), value.requires_grad, form_of(value)) for key, value in weights.items())
        none = tuple(key for place in (module._parameters, module._buffers) for key in place if key not in weights)
        parts.append((name, type(module), forms, none, tuple(vars(module))))
    return tuple(parts)


def _differing(blocks: Mapping[str, nn.Module]) -> dict[Setting, dict[str, Any]]:
    found: dict[Setting, dict[str, Any]] = {}
    for together in zip(*(block.named_modules() for block in blocks.values()), strict=True):
        settings = [vars(module) for _, module in together]
        for key, first in settings[0].items():
            if key not in HELD and any(other[key] is not first for other in settings):
                values = dict(zip(blocks, (_plain(other[key]) for other in settings), strict=True))
                if any(value != values[next(iter(blocks))] for value in values.values()):
                    found[together[0][0], key] = values
    return found


def _plain(value: Any) -> Any:
    """A setting that can be compared by its value; anything else is like itself alone."""
    if isinstance(value, PLAIN_TYPES):
        return type(value), repr(value)
    if isinstance(value, list | tuple):
        return type(value), tuple(_plain(part) for part in value)
    if isinstance(value, set | frozenset):
        return type(value), frozenset(_plain(part) for part in value)
    if isinstance(value, dict):
        return type(value), tuple((_plain(key), _plain(part)) for key, part in value.items())
    return id(value)


def form_of(value: Any) -> Any:
    """Of a tensor all that an export can depend on, of a plain value itself. Sizes as expressions: comparing sizes adds
    guards."""
    if isinstance(value, Tensor) and _is_usual(value):
        sizes = tuple(expression(size) for size in (*value.shape, *value.stride(), value.storage_offset()))
        return sizes, value.dtype, value.device, value.layout, value.is_conj(), value.is_neg()
    if isinstance(value, SYMBOLIC):
        return type(value), str(value)
    if isinstance(value, PLAIN_TYPES):
        return type(value), repr(value)
    raise UnlikeError(f"a value of class {type(value).__name__}")


def form_of_call(args: Any, kwargs: Any) -> Any:
    leaves, structure = pytree.tree_flatten((args, kwargs))
    tensors = {id(leaf): i for i, leaf in reversed([*enumerate(leaves)]) if isinstance(leaf, Tensor)}
    which = [tensors.get(id(leaf)) for leaf in leaves]  # are one and the same: code may ask `key is query`
    return [form_of(leaf) for leaf in leaves], structure, which


def each_once(leaves: Iterable[Any]) -> list[Tensor]:
    """An argument may be given twice (query and key)."""
    return list({id(leaf): leaf for leaf in leaves if isinstance(leaf, Tensor)}.values())


def state_of(block: nn.Module) -> Any:
    """What a call may leave behind in a block."""
    held = [(key, value) for module in block.modules() for key, value in vars(module).items()]
    held += [item for module in block.modules() for kind in HELD for item in vars(module)[kind].items()]
    sizes = [len(value) for _, value in held if isinstance(value, list | dict | set)]
    return [(key, id(value)) for key, value in held], sizes
