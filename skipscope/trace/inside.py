"""The residual units inside a named module, by an export (or a recording) of the module alone.

A graph holds no weights, so modules that differ in their weights only have one graph: it is exported once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from skipscope.errors import InputError, TraceError
from skipscope.numerics import measuring
from skipscope.trace.export import export, record
from skipscope.trace.graph_point import GraphPoint
from skipscope.trace.graph_trunk import GraphTrunk, GraphUnit
from skipscope.trace.inputs import Inputs
from skipscope.trace.piece import Piece
from skipscope.trace.program import Program
from skipscope.trace.recorded_program import RecordedProgram
from skipscope.trace.recording import NamedCall
from skipscope.trace.structure import Structure

NO_SUM = "no single sum in it joins its input with a branch"  # why a named module is no residual unit
PLAIN_TYPES = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)


@dataclass(frozen=True)
class Inner:
    """What was found inside a named module, in a trunk of its own."""

    trunk: GraphTrunk
    units: list[GraphUnit]
    whole: bool  # is the one unit all of the module, from its input to its output?
    entry: fx.Node  # the state that the module gets
    exit: fx.Node  # the state that it returns
    axis: int
    batch: int
    note: str | None  # what its graph holds for, where that is not every batch

    def at(self, call: NamedCall, batch: int) -> GraphPoint:
        return self.trunk.at(Inputs(call.args, call.kwargs, self.axis, batch))

    def until(self, unit: GraphUnit) -> Piece:
        return self.trunk.piece(f"the code before {unit.name}", self.entry, unit.exit)

    def after(self, unit: GraphUnit) -> Piece:
        return self.trunk.piece(f"the code from {unit.name} on", unit.entry, self.exit)

    def states(self, args: Any, kwargs: Any) -> tuple[dict[fx.Node, Any], Tensor]:
        """The values at every node, and the one that the module returns; gradients are recorded if they are wanted."""
        program = self.trunk.program
        values = program.bind(args, kwargs)
        with measuring():
            program.run(program.nodes, values, program.batch_of(values))
        return values, values[self.exit]


class Exports:
    """The graphs of modules at their inputs, one for all that are alike."""

    def __init__(self) -> None:
        # By likeness: a graph and its notes, why there is none to share, or why there is none at all.
        self._known: dict[Any, tuple[Program, list[str]] | str | Exception] = {}

    def inside(self, module: nn.Module, inputs: Inputs) -> Inner | str:
        """The unit that the module is, or the units that it holds, at a point with its inputs; else why there are none.

        A unit whose entry and exit are the module's own is all of it; elsewhere there are those on the way from the
        state that it gets to the state that it returns.
        """
        try:
            program, notes = self._program(module, inputs)
        except (TraceError, InputError) as error:
            return str(error).split(". Name the modules")[0]
        trunk = GraphTrunk(Structure(program), inputs.axis, [], None)
        entry, exit_ = _ends(program)
        if entry is None or exit_ is None:
            return NO_SUM
        units, whole = _whole(trunk), True
        if not units:
            units, whole = _on_the_way(trunk, entry, exit_), False
        if not units:
            return NO_SUM
        if not inputs.is_meta(module):
            trunk.at(inputs)
        note = notes[0] if program.batch_symbol is None else None
        return Inner(trunk, units, whole, entry, exit_, inputs.axis, inputs.batch, note)

    def _program(self, module: nn.Module, inputs: Inputs) -> tuple[Program, list[str]]:
        likeness = (_likeness(module), _form(inputs))
        known = self._known.get(likeness)
        if isinstance(known, Exception):
            raise known
        if isinstance(known, str):  # what a recording has depends on values, so each module has its own
            return record(module, inputs, known)
        if known is None:
            try:
                program, notes = export(module, inputs)
            except (TraceError, InputError) as error:
                self._known[likeness] = error
                raise
            if isinstance(program, RecordedProgram):
                self._known[likeness] = program.why
                return program, notes
            known = self._known[likeness] = (program, notes)
        return known[0].of(module), known[1]


def _whole(trunk: GraphTrunk) -> list[GraphUnit]:
    for part in trunk.structure.parts:
        whole = trunk.structure.ended_at_output(part)
        if part.region.entry in trunk.program.inputs and whole is not None:
            return [GraphUnit(trunk, 0, whole)]
    return []


def _on_the_way(trunk: GraphTrunk, entry: fx.Node, exit: fx.Node) -> list[GraphUnit]:
    line = [trunk.units[i] for i in trunk.structure.line]
    return [unit for unit in line if trunk.reaches(entry, unit.entry) and trunk.reaches(unit.exit, exit)]


def _ends(program: Program) -> tuple[fx.Node | None, fx.Node | None]:
    """The nodes of the states that the module gets and returns: its first float tensors, as `state_of` has them."""
    outputs = [leaf for leaf in program.outputs if isinstance(leaf, fx.Node)]
    return tuple(next((node for node in nodes if _is_state(node)), None) for nodes in (program.inputs, outputs))  # type: ignore[return-value]


def _is_state(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, Tensor) and value.is_floating_point() and value.dim() > 0


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
