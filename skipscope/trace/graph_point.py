"""The values inside a graph at one batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx

from skipscope.errors import TraceError
from skipscope.numerics import measuring
from skipscope.trace.freshness import WeightsSeen
from skipscope.trace.program import Values, last_uses
from skipscope.trace.trunk import Point

if TYPE_CHECKING:
    from skipscope.trace.graph_trunk import GraphUnit
    from skipscope.trace.structure import Structure

OF_ANOTHER = "this point is of another trunk; use one that trunk.at(x) of the same trunk returned"


class GraphPoint(Point):
    """States and contexts at one batch; what was not kept is computed again when it is asked for."""

    def __init__(
        self,
        structure: Structure,
        inputs: Values,
        units: Sequence[GraphUnit],
        known: tuple[Values, WeightsSeen] | None = None,
    ) -> None:
        """known: values that need not be computed, and the weights that they were computed with."""
        self.structure, self.program = structure, structure.program
        program = self.program
        self.batch = program.batch_of(inputs)
        self._inputs = inputs
        self._units = units
        kept = {node for unit in units for node in (unit.entry, unit.end, unit.exit, *unit.piece.context)}
        kept |= {leaf for leaf in program.outputs if isinstance(leaf, fx.Node)}
        if known is None:
            self.seen = WeightsSeen(program.model, (name for node, name in program.weights.items() if node.users))
            self._values = self._computed(kept)
        else:
            values, self.seen = known
            self._values = {**inputs, **values}

    @property
    def units(self) -> Sequence[GraphUnit]:
        return self._units

    def entry(self, unit: GraphUnit) -> Tensor:  # type: ignore[override]
        return self.value(unit.entry)

    def sum(self, unit: GraphUnit) -> Tensor:  # type: ignore[override]
        return self.value(unit.end)

    def exit(self, unit: GraphUnit) -> Tensor:  # type: ignore[override]
        return self.value(unit.exit)

    @property
    def output(self) -> Any:
        self.seen.check()
        return self.program.unflatten(self._values, self.batch)

    def value(self, node: fx.Node) -> Any:
        return self.values([node])[node]

    def values(self, nodes: Sequence[fx.Node]) -> Values:
        self.seen.check()
        if missing := set(nodes) - self._values.keys():
            if any(node.graph is not self.program.graph for node in missing):
                raise TraceError(OF_ANOTHER)
            self._values.update(self._computed(missing))
        return {node: self._values[node] for node in nodes}

    def take(self, samples: Sequence[int]) -> GraphPoint | None:
        """The same point for some of the samples."""
        if self.program.batch_symbol is None:
            return None  # the graph holds for the traced batch alone
        self.seen.check()
        index = torch.as_tensor(list(samples), device="cpu")

        def some(node: fx.Node, value: Any) -> Any:
            axis = self.program.batch_axis(node)
            return value if axis is None else value.index_select(axis, index.to(value.device))

        # Taken out of the values that are there, not computed again: another batch size rounds in another way.
        inputs = {node: some(node, value) for node, value in self._inputs.items()}
        known = {node: some(node, value) for node, value in self._values.items() if not self.program.folds_batch(node)}
        return GraphPoint(self.structure, inputs, self.units, (known, self.seen))

    def gradients(self, scalar: Callable[[Any], Tensor], *, exits: bool = False) -> list[Tensor | None]:
        self.seen.check()
        values = {node: self._leaf(node, value) for node, value in self._inputs.items()}
        reading = self.program.reading
        with torch.enable_grad(), measuring(), nullcontext() if reading is None else reading.left_out_of_graphs():
            for node in self.program.nodes:
                self.program.run([node], values, self.batch)
                values[node] = self._leaf(node, values[node])
            left = self.units if exits else self.units[-1:]
            states = [values[unit.entry] for unit in self.units] + [values[unit.exit] for unit in left]
            return list(
                torch.autograd.grad(scalar(self.program.unflatten(values, self.batch)), states, allow_unused=True)
            )

    def _leaf(self, node: fx.Node, value: Any) -> Any:
        """Paths start to be followed where they start: at float inputs and at embeddings."""
        return value.detach().requires_grad_() if node in self.structure.flow.sources else value

    def first_not_finite(self) -> str:
        for name in self.program.weights.values():
            weight = self.program.lookup(name)
            if isinstance(weight, Tensor) and not torch.isfinite(weight).all():
                return f"the weight {name}"
        values = dict(self._inputs)
        with torch.no_grad(), measuring():
            for node in self.program.nodes:
                self.program.run([node], values, self.batch)
                value = values[node]
                # Masks are made of minus infinities: only what the inputs' values flow through counts.
                if isinstance(value, Tensor) and self.structure.flow.on_path(node) and not torch.isfinite(value).all():
                    return self.structure.origin(node)
        return ""

    def _computed(self, wanted: set[fx.Node]) -> Values:
        values = dict(self._inputs)
        nodes = self._before(wanted)
        with torch.no_grad(), measuring():
            self.program.run(nodes, values, self.batch, drop=last_uses(nodes, wanted | set(self._inputs)))
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
