"""The residual unit inside a named module, by an export of the module alone.

A graph holds no weights, so modules that differ in their weights only have one graph: it is exported once.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from skipscope.errors import InputError, TraceError
from skipscope.trace.export import export
from skipscope.trace.graph_trunk import GraphTrunk, GraphUnit
from skipscope.trace.inputs import Inputs
from skipscope.trace.program import Program
from skipscope.trace.structure import Structure

NO_SUM = "no single sum in it joins its input with a branch"  # why a named module is no residual unit
PLAIN_TYPES = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)


class Exports:
    """The graphs of modules at their inputs, one for all that are alike."""

    def __init__(self) -> None:
        self._known: dict[Any, Program | str] = {}

    def unit_inside(self, module: nn.Module, inputs: Inputs) -> GraphUnit | str:
        """The unit whose entry and exit are the module's own, at a point with its inputs; else why there is none."""
        likeness = (_likeness(module), _form(inputs))
        if likeness not in self._known:
            try:
                self._known[likeness] = export(module, inputs)[0]
            except (TraceError, InputError) as error:
                self._known[likeness] = str(error).split(". Name the modules")[0]
        found = self._known[likeness]
        if isinstance(found, str):
            return found
        trunk = GraphTrunk(Structure(found.of(module)), inputs.axis, [], None)
        for part in trunk.structure.parts:
            whole = trunk.structure.ended_at_output(part)
            if part.region.entry in found.inputs and whole is not None:
                if not inputs.is_meta(module):
                    trunk.at(inputs)
                return GraphUnit(trunk, 0, whole)
        return NO_SUM


def _likeness(module: nn.Module) -> Any:
    """Equal for modules whose code is the same and has the same settings: all that an export can depend on."""
    parts = []
    tensors: dict[int, int] = {}  # which weights are one and the same
    for name, child in module.named_modules(remove_duplicate=False):
        held = [(key, value) for kind in (child._parameters, child._buffers) for key, value in kind.items()]
        weights = tuple(
            (key, None if value is None else (*_tensor(value), tensors.setdefault(id(value), len(tensors))))
            for key, value in held
        )
        names = ("_parameters", "_buffers", "_modules", "training")
        settings = tuple((key, _plain(value)) for key, value in sorted(vars(child).items()) if key not in names)
        parts.append((name, type(child), weights, settings))
    return tuple(parts)


def _form(inputs: Inputs) -> Any:
    leaves, structure = pytree.tree_flatten((inputs.args, inputs.kwargs))
    form = tuple((*_tensor(leaf), leaf.stride()) if isinstance(leaf, Tensor) else _plain(leaf) for leaf in leaves)
    return form, str(structure), inputs.axis, inputs.batch


def _tensor(value: Tensor) -> tuple[Any, ...]:
    return tuple(value.shape), value.dtype, str(value.device), isinstance(value, nn.Parameter)


def _plain(value: Any) -> Any:
    """A setting that can be compared by its value; anything else is like itself alone."""
    if isinstance(value, PLAIN_TYPES):
        return type(value).__name__, repr(value)
    if isinstance(value, list | tuple | set | frozenset):
        return type(value).__name__, tuple(_plain(part) for part in value)
    if isinstance(value, dict):
        return "dict", tuple((_plain(key), _plain(part)) for key, part in value.items())
    return id(value)
