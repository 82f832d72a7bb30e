"""How a piece of a graph is run for some positions of a sequence: for every node, where the positions lie in its value
and what is called in its place.

What does not depend on the entry is constant: it is taken from a run for the whole sequence, once, and cut to the
chosen positions where it is as long as the sequence (rotations, masks). What acts on each position alone runs on the
chosen ones. Products that mix positions take the rows of the others from the run for the whole sequence (`attention`).

That is the derivative with respect to the chosen positions if nothing of the others that is read depends on them. The
rows of the others that a first product reads are functions of the others' own entries: with one layer of attention,
as in a unit or a block, that always holds. Where a later product reads what an earlier one made (several
blocks), it holds if every product is causal and all positions from the first to the last of the chosen ones are
followed: what comes before them does not depend on them, and what comes after them is not read.

Anything else (a convolution along the sequence, a recurrence, a gate from a mean over positions) is refused, with the
reason; the whole sequence is differentiated then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal

from torch import Tensor, fx

from skipscope.trace import operations
from skipscope.trace.program import Program
from skipscope.trace.tokens.along import Along


class RefusedError(Exception):
    """Why positions cannot be followed alone."""


@dataclass(frozen=True)
class Taken:
    """A constant: the value at a node in the run for the whole sequence, or a weight; whole, its rows of the chosen
    positions, or with zeros there."""

    node: fx.Node
    part: Literal["whole", "rows", "others"] = "whole"
    along: Along | None = None


@dataclass(frozen=True)
class Zeros:
    shape: tuple[int, ...]


PLACES = object()  # stands for the chosen positions among the arguments of a step


@dataclass(frozen=True)
class Step:
    """One call. Nodes among the arguments are values of earlier steps; `Taken`, `Zeros` and `PLACES` are filled in."""

    node: fx.Node
    target: Callable[..., Any]
    args: Any
    kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Mixing:
    """A product that mixes positions, and what decides which of them it mixes: the mask that it is under, or the
    weights themselves. There is none where it is causal by its own option or sees everything. "later": the product
    itself, of queries times keys, which later becomes the weights."""

    node: fx.Node | None
    by: Literal["mask", "weights", "causal", "everything", "later"]


@dataclass(frozen=True)
class Sizes:
    count: int  # of all positions
    chosen: int  # of those that are followed


class Plan:
    """For a batch of so many samples."""

    def __init__(
        self, program: Program, entry: fx.Node, zero: Mapping[fx.Node, frozenset[fx.Node]], batch: int, sizes: Sizes
    ) -> None:
        self.program, self.entry, self.zero, self.batch, self.sizes = program, entry, zero, batch, sizes
        self.steps: list[Step] = []
        self.mixing: list[Mixing] = []
        self.mixes_again = False  # does a product read what an earlier one mixed?
        self._along: dict[fx.Node, Along | list[Along]] = {entry: Along(token_axis(program, entry))}
        self._mixed: set[fx.Node] = set()

    def add(self, step: Step, along: Along | list[Along]) -> None:
        self.steps.append(step)
        self._along[step.node] = along
        if any(argument in self._mixed for argument in self.read(step.node)):
            self._mixed.add(step.node)

    def read(self, node: fx.Node) -> list[fx.Node]:
        """The arguments of a node that it does not see as zeros."""
        hidden = self.zero.get(node, frozenset())
        return [argument for argument in node.all_input_nodes if argument not in hidden]

    @property
    def largest(self) -> int:
        """How many numbers the largest value has on the way."""
        found = [self.sizes.count]
        for step in self.steps:
            if isinstance(along := self._along[step.node], Along):
                found.append(prod(self.cut(step.node, along)))
        return max(found)

    # -- what rules ask

    def is_followed(self, argument: Any) -> bool:
        return isinstance(argument, fx.Node) and argument in self._along

    def along(self, node: fx.Node) -> Along:
        found = self._along[node]
        if isinstance(found, list):
            raise RefusedError(f"{operations.display(node)} is used whole")
        return found

    def parts(self, node: fx.Node) -> list[Along]:
        found = self._along[node]
        return found if isinstance(found, list) else [found]

    def shape(self, node: fx.Node) -> tuple[int, ...]:
        """For the whole sequence."""
        return self.program.shape(node, self.batch)

    def cut(self, node: fx.Node, along: Along) -> tuple[int, ...]:
        """The shape of a value for the chosen positions."""
        return along.shape(self.shape(node), self.sizes.chosen)

    def constant(self, node: fx.Node, from_the_end: int | None = None, like: Along | None = None) -> Taken:
        """A value that does not depend on the entry, cut where its axis meets that of the positions in a broadcast.
        from_the_end: that axis, counted from the last, as a negative number. like: how positions are folded there."""
        if from_the_end is not None and isinstance(node.meta.get("val"), Tensor):
            shape = self.shape(node)
            axis = len(shape) + from_the_end
            if axis >= 0 and shape[axis] != 1:
                along = (like or Along(axis)).moved(axis)
                if shape[axis] != along.size(self.sizes.count):
                    raise RefusedError(f"{node.name} meets the tokens with an axis of another size")
                return Taken(node, "rows", along)
        return Taken(node)

    def filled(self, node: fx.Node) -> tuple[fx.Node, Taken]:
        """The two parts of an operand whose other positions are read too."""
        along = self.along(node)
        if not along.is_plain:
            raise RefusedError(f"{node.name} has its tokens folded into another axis")
        self.mixes_again |= node in self._mixed
        return node, Taken(node, "others", along)

    def mix(self, node: fx.Node, mixing: Mixing) -> None:
        self._mixed.add(node)
        self.mixing.append(mixing)


def token_axis(program: Program, node: fx.Node) -> int:
    """Of a state (tokens, channels) of each sample: the first axis that is not that of the samples."""
    return 1 if program.batch_axis(node) == 0 else 0


def map_nodes(arguments: Any, change: Callable[[fx.Node], Any]) -> Any:
    """Arguments of a call, however nested, with other things in the place of nodes."""
    return fx.node.map_arg(arguments, change)
