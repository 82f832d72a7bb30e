"""The values inside a graph at one batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx

from skipscope.numerics import measuring
from skipscope.trace.program import Program, Values
from skipscope.trace.trunk import Point

if TYPE_CHECKING:
    from skipscope.trace.graph_trunk import GraphUnit


class GraphPoint(Point):
    """States and contexts at one batch; what was not kept is computed again when it is asked for."""

    def __init__(self, program: Program, inputs: Values, units: Sequence[GraphUnit]) -> None:
        self.program = program
        self.batch = program.batch_of(inputs)
        self._inputs = inputs
        self.units: Sequence[GraphUnit] = units
        kept = {node for unit in units for node in (unit.entry, unit.end, unit.exit, *unit.piece.context)}
        kept |= {leaf for leaf in program.outputs if isinstance(leaf, fx.Node)}
        self._values = self._computed(kept)

    def entry(self, unit: GraphUnit) -> Tensor:  # type: ignore[override]
        return self.value(unit.entry)

    def sum(self, unit: GraphUnit) -> Tensor:  # type: ignore[override]
        return self.value(unit.end)

    def exit(self, unit: GraphUnit) -> Tensor:  # type: ignore[override]
        return self.value(unit.exit)

    @property
    def output(self) -> Any:
        return self.program.unflatten(self._values, self.batch)

    def value(self, node: fx.Node) -> Any:
        if node not in self._values:
            self._values.update(self._computed({node}))
        return self._values[node]

    def _computed(self, wanted: set[fx.Node]) -> Values:
        values = dict(self._inputs)
        nodes = self._before(wanted)
        with torch.no_grad(), measuring():
            self.program.run(nodes, values, self.batch, drop=_last_uses(nodes, wanted | set(self._inputs)))
        return {node: value for node, value in values.items() if node in wanted or node in self._inputs}

    def _before(self, wanted: set[fx.Node]) -> list[fx.Node]:
        needed: set[fx.Node] = set()
        waiting = list(wanted)
        while waiting:
            node = waiting.pop()
            if node not in needed and node.op != "placeholder" and not self.program.is_free(node):
                needed.add(node)
                waiting += node.all_input_nodes
        return [node for node in self.program.nodes if node in needed]


def _last_uses(nodes: list[fx.Node], kept: set[fx.Node]) -> dict[fx.Node, list[fx.Node]]:
    """For each node, the values that nothing after it reads."""
    last: dict[fx.Node, fx.Node] = {}
    for node in nodes:
        last[node] = node
        for argument in node.all_input_nodes:
            last[argument] = node
    drops: dict[fx.Node, list[fx.Node]] = {}
    for node, user in last.items():
        if node not in kept and node.op != "placeholder":
            drops.setdefault(user, []).append(node)
    return drops
