"""From a program to the structure of its trunk: which units there are, their order, stages and segments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import prod
from operator import or_

from torch import Tensor, fx

from skipscope.trace import operations
from skipscope.trace.flow import Calls, Flow
from skipscope.trace.naming import name_units, parameters_read
from skipscope.trace.piece import Piece
from skipscope.trace.program import Program
from skipscope.trace.region import LeftOut, Region
from skipscope.trace.rule import Rule
from skipscope.trace.tails import find_tails, run_after


@dataclass(frozen=True)
class Part:
    """What is known of one unit before it can be called."""

    name: str
    region: Region
    tail: list[fx.Node]
    exit: fx.Node
    parent: int | None  # the smallest unit around it
    stage: int | None  # counted from 1
    parameter_names: list[str]


class Structure:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.flow = Flow(program)
        self.calls = Calls(program)
        rule = Rule(self.flow, self.calls)
        self.left_out: list[LeftOut] = []
        self.needed: dict[tuple[fx.Node, fx.Node], tuple[list[fx.Node], list[fx.Node]]] = {}  # by entry and exit
        regions = self._measurable(sorted(rule.regions.values(), key=lambda r: self.flow.position[r.end]))
        held = _held(self.flow, regions)
        owned = self._owned(regions, held)
        self.own = frozenset(node for nodes in owned for node in nodes)
        tails = find_tails(self.flow, self.calls, regions)
        exits = [tail[-1] if tail else region.end for region, tail in zip(regions, tails, strict=True)]
        parents = _smallest_around(regions, held)
        weights = [self._parameters(region, tails[i], owned[i]) for i, region in enumerate(regions)]
        self.line = self._line(regions, parents, weights)
        names = name_units(program, self.flow, self.calls, regions, held, first=self.line)
        # What lies inside a unit is part of its branch; only what is outside was left out.
        inside = [regions[i].nodes for i in self.line]
        refused = [left for node, left in rule.refused.items() if not any(self.flow.bit(node) & m for m in inside)]
        self.left_out = refused + self.left_out
        self.stages = self._stages(regions, exits)
        stage_of = {unit: number for number, run in enumerate(self.stages, 1) for unit in run}
        self.parts = [
            Part(names[i], region, tails[i], exits[i], parents[i], _stage(i, stage_of, parents), list(weights[i]))
            for i, region in enumerate(regions)
        ]

    def _measurable(self, regions: Sequence[Region]) -> list[Region]:
        """A state without a batch axis of its own cannot be taken apart into samples: reported, not measured."""
        kept = []
        for region in regions:
            if self.program.batch_axis(region.entry) is None or self.program.batch_axis(region.end) is None:
                shape = tuple(str(size) for size in region.entry.meta["val"].shape)
                reason = f"its state of shape ({', '.join(shape)}) has no batch axis of its own"
                self.left_out.append(LeftOut("unmeasurable", self.calls.path(region.end), reason))
            else:
                kept.append(region)
        return kept

    def _owned(self, regions: Sequence[Region], held: Sequence[Sequence[int]]) -> list[list[fx.Node]]:
        """What each unit makes of its context by itself (the keys and values of a cross-attention): nodes that only it
        reads, in calls of modules that hold nodes of this unit and the end of no other but those inside it."""
        calls = [set(self.calls.of(region.end)) for region in regions]
        ends = Counter(key for keys in calls for key in keys)  # in a call of a module, the ends of so many units
        owned = []
        for i, region in enumerate(regions):
            own = Counter(key for k in (i, *held[i]) for key in calls[k])
            members = set(self.flow.unmask(region.nodes))
            home = {key for node in members for key in self.calls.of(node)[1:]}
            only = self._read_only_by(region, members, {key for key in home if ends[key] == own[key]})
            owned.append(sorted(only, key=self.flow.position.__getitem__))
        return owned

    def _read_only_by(self, region: Region, members: set[fx.Node], home: set[str]) -> set[fx.Node]:
        """The nodes that only this region reads, in calls of modules in `home`."""
        owned: set[fx.Node] = set()
        waiting = [argument for node in members for argument in self.flow.arguments[node]]
        while waiting:
            node = waiting.pop()
            if node in members or node in owned or node not in self.flow.from_inputs or node is region.entry:
                continue
            if home & set(self.calls.of(node)) and all(user in members or user in owned for user in node.users):
                owned.add(node)
                waiting += self.flow.arguments[node]
        return owned

    def _parameters(self, region: Region, tail: Sequence[fx.Node], own: Sequence[fx.Node]) -> dict[str, int]:
        """The sizes of a unit's own parameters."""
        found: dict[str, int] = {}
        nodes = [*self.flow.unmask(region.nodes), *tail, *own]
        for node in (*nodes, *self._deciding(region, nodes)):
            for name, parameter in parameters_read(self.program, self.flow, node).items():
                found[name] = parameter.numel()
        return found

    def _deciding(self, region: Region, nodes: Iterable[fx.Node]) -> list[fx.Node]:
        """What a unit computes from its entry to make indices or masks, on no path: the scores of a router of which
        only the choice is used."""
        arguments = (argument for node in nodes for argument in self.flow.arguments[node])
        decided = (self.flow.reads[one] for one in arguments if not self.flow.on_path(one))
        entry = self.flow.bit(region.entry)
        made = reduce(or_, (reads for reads in decided if reads & entry), 0)
        after = -(entry << 1)  # the bits above that of the entry: what comes after it in the graph
        return [node for node in self.flow.unmask(made & after) if self.flow.reads[node] & entry]

    def _line(
        self, regions: Sequence[Region], parents: Sequence[int | None], weights: Sequence[dict[str, int]]
    ) -> list[int]:
        """The units that the segments follow: none inside another. A unit whose inner units hold most of its weights
        is a long skip around a part of the trunk, which then goes through the inner ones."""
        children: dict[int | None, list[int]] = {}
        for unit, parent in enumerate(parents):
            children.setdefault(parent, []).append(unit)

        def descend(unit: int) -> list[int]:
            inner = children.get(unit, [])
            held = {name for child in inner for name in weights[child]}
            share = sum(size for name, size in weights[unit].items() if name in held)
            if inner and 2 * share > sum(weights[unit].values()):
                return [leaf for child in inner for leaf in descend(child)]
            return [unit]

        return sorted(leaf for unit in children.get(None, []) for leaf in descend(unit))

    def _stages(self, regions: Sequence[Region], exits: Sequence[fx.Node]) -> list[list[int]]:
        stages: list[list[int]] = []
        for unit in self.line:
            last = stages[-1][-1] if stages else None
            follows = last is not None and bool(self.flow.ancestors[regions[unit].entry] & self.flow.bit(exits[last]))
            if last is not None and follows and self._same_size(exits[last], exits[unit]):
                stages[-1].append(unit)
            else:
                stages.append([unit])
        return stages

    def _same_size(self, a: fx.Node, b: fx.Node) -> bool:
        """Have two states one shape, or the same entries in another layout: (channels, height, width) and (places,
        channels)?"""
        batch = self.program.traced_batch
        one, other = (self.program.shape(node, batch) for node in (a, b))
        if one == other:
            return True
        axes = (self.program.batch_axis(a), self.program.batch_axis(b))
        first, second = (
            {size for axis, size in enumerate(shape) if axis != own and size > 1}
            for shape, own in zip((one, other), axes, strict=True)
        )
        return prod(one) == prod(other) and bool(first & second)

    # -- what a trunk asks for

    def branch_nodes(self, region: Region) -> list[fx.Node]:
        sums = self.flow.mask(region.sums)
        return list(self.flow.unmask(region.nodes & ~region.skip_nodes & ~sums))

    def skip_nodes(self, region: Region) -> list[fx.Node]:
        return list(self.flow.unmask(region.skip_nodes))

    def origin(self, node: fx.Node) -> str:
        """Where a value comes from, as a reader would say it: the input's name or the module's path."""
        if node.op == "placeholder":
            return node.name
        if not self.flow.on_path(node):  # a mask or an index: named by the inputs that it is made of
            return ", ".join(n.name for n in self.program.inputs if self.flow.reads[node] & self.flow.bit(n))
        return self.calls.path(node) or operations.display(node)

    def ended_at_output(self, part: Part) -> Part | None:
        """The same unit with its tail going on to an output of the program; None if it does not lead to one."""
        outputs = set(self.program.outputs)
        tail = run_after(self.flow, part.region)
        ends = [i for i, node in enumerate(tail) if node in outputs]
        if ends:
            return replace(part, tail=tail[: ends[0] + 1], exit=tail[ends[0]])
        return replace(part, tail=[], exit=part.region.end) if part.region.end in outputs else None

    def segments(self) -> list[tuple[str, str, list[fx.Node], fx.Node | None, fx.Node | None]]:
        """(kind, name, nodes, entry, exit) of each segment: every node is in exactly one, in an order that runs."""
        line = [self.parts[i] for i in self.line]
        gaps, members = self._places([self._members(part) for part in line])
        first = next(
            (n for n in self.program.inputs if self.flow.on_path(n) and isinstance(n.meta["val"], Tensor)), None
        )
        result: list[tuple[str, str, list[fx.Node], fx.Node | None, fx.Node | None]] = []
        state = first
        for i, gap in enumerate(gaps):
            follows = line[i].region.entry if i < len(line) else self.flow.sink
            kind = "stem" if i == 0 and line else "head" if i == len(line) else "transition"
            if gap:
                name = kind if kind != "transition" else f"after {line[i - 1].name}"
                result.append((kind, name, gap, state, follows))
            if i < len(line):
                result.append(("unit", line[i].name, members[i], line[i].region.entry, line[i].exit))
                state = line[i].exit
        return result

    def _places(self, members: Sequence[Sequence[fx.Node]]) -> tuple[list[list[fx.Node]], list[list[fx.Node]]]:
        """All nodes: those before each unit and after the last, and those of each unit. A node that several units have
        (an attention that two streams share) is in the first of them, and one that needs a later value after that."""
        home: dict[fx.Node, int] = {}
        for unit, nodes in enumerate(members):
            for node in nodes:
                home.setdefault(node, 2 * unit + 1)
        place: dict[fx.Node, int] = {}  # even: before a unit, odd: in one
        every: list[list[fx.Node]] = [[] for _ in range(2 * len(members) + 1)]
        for node in self.program.nodes:
            needs = max((place[argument] for argument in self.flow.arguments[node] if argument in place), default=0)
            own = home.get(node, 0)
            place[node] = own if own >= needs else needs + needs % 2
            every[place[node]].append(node)
        return every[::2], every[1::2]

    def _members(self, part: Part) -> list[fx.Node]:
        """The nodes that a unit computes from its entry, also those that are no paths (masks made from a state)."""
        entry = self.flow.bit(part.region.entry)
        piece = Piece(self.program, self.flow, part.name, part.region.entry, part.exit, own=self.own)
        self.needed[part.region.entry, part.exit] = piece.nodes, piece.context
        return [node for node in piece.nodes if self.flow.reads[node] & entry or node in self.own]


def _held(flow: Flow, regions: Sequence[Region]) -> list[list[int]]:
    """For each region, the regions inside it. Only one whose end lies inside can be: most regions hold none, and are
    then compared with none."""
    place = {region.end: i for i, region in enumerate(regions)}
    ends = flow.mask(place)
    inside = ([place[end] for end in flow.unmask(region.nodes & ends)] for region in regions)
    return [[k for k in some if region.holds(regions[k])] for region, some in zip(regions, inside, strict=True)]


def _smallest_around(regions: Sequence[Region], held: Sequence[Sequence[int]]) -> list[int | None]:
    """For each region, the smallest that holds it."""
    parents: list[int | None] = [None] * len(regions)
    for around in sorted(range(len(regions)), key=lambda i: regions[i].nodes.bit_count()):
        for inner in held[around]:
            if parents[inner] is None:
                parents[inner] = around
    return parents


def _stage(unit: int, stage_of: dict[int, int], parents: Sequence[int | None]) -> int | None:
    """A unit off the line has the stage of the unit around it, or of the last one inside it."""
    if unit in stage_of:
        return stage_of[unit]
    around = parents[unit]
    while around is not None:
        if around in stage_of:
            return stage_of[around]
        around = parents[around]

    def within(other: int | None) -> bool:
        while other is not None and other != unit:
            other = parents[other]
        return other == unit

    inside = [stage for other, stage in stage_of.items() if within(parents[other])]
    return max(inside, default=None)
