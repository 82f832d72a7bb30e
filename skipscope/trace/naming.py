"""Names of units: the path of the module that owns one, as a reader of the model's code would say it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from itertools import takewhile

from torch import Tensor, fx

from skipscope.trace import operations
from skipscope.trace.flow import Calls, Flow
from skipscope.trace.program import Program
from skipscope.trace.region import Region

Stack = tuple[tuple[str, str], ...]


def name_units(
    program: Program,
    flow: Flow,
    calls: Calls,
    regions: Sequence[Region],
    held: Sequence[Sequence[int]],
    first: Collection[int],
) -> list[str]:
    """The owner is the innermost call that holds the whole unit. Where it is the model itself or holds other
    units too, the child with most of the branch's parameters names the unit; equal names are numbered `#2`, `#3`,
    those of the units in `first` before the others. held: for each unit, those inside it.
    """
    owners = [owner_of(flow, calls, region) for region in regions]
    # How many units each call holds: counted once, not by comparing each unit with all others.
    within = Counter(owner[:length] for owner in owners for length in range(1, len(owner) + 1))
    names: list[str] = []
    for i, region in enumerate(regions):
        own = 1 + sum(owners[k][: len(owners[i])] == owners[i] for k in held[i])
        shared = within[owners[i]] > own
        name = owners[i][-1][1]
        if shared or not name:
            name = _child(program, flow, calls, region, owners[i]) or name
        names.append(_readable(name) or region.end.name)
    return _numbered(names, first)


def owner_of(flow: Flow, calls: Calls, region: Region) -> Stack:
    """The innermost call that holds a whole unit, with those around it."""
    # A reshape before or after the unit's own module does not make a larger module its owner.
    working = [node for node in flow.unmask(region.nodes) if operations.kind(node) != "layout"]
    levels = zip(*(calls.stack(node) for node in working), strict=False)
    common = tuple(level[0] for level in takewhile(lambda level: len(set(level)) == 1, levels))
    return common or (("", ""),)


def _child(program: Program, flow: Flow, calls: Calls, region: Region, owner: Stack) -> str:
    """The child call of the owner that uses most parameters; the largest parameter's own home if it has none."""
    sizes: Counter[str] = Counter()
    raw: Counter[str] = Counter()
    for node in flow.unmask(region.nodes & ~region.skip_nodes):
        used = parameters_read(program, flow, node)
        size = sum(parameter.numel() for parameter in used.values())
        stack = calls.stack(node)
        if size and len(stack) > len(owner):
            sizes[stack[len(owner)][1]] += size
        for name, parameter in used.items():
            raw[name] += parameter.numel()
    if sizes:
        return sizes.most_common(1)[0][0]
    return raw.most_common(1)[0][0] if raw else ""


def parameters_read(program: Program, flow: Flow, node: fx.Node) -> dict[str, Tensor]:
    """The parameters that enter the paths at this node, directly or through a computation on weights alone. What an
    input or a state decides (the indices that a router chose, a mask) was made by other nodes, which read their own."""
    found: dict[str, Tensor] = {}
    for argument in flow.arguments[node]:
        if flow.on_path(argument) or argument in flow.from_inputs:
            continue
        for source in flow.unmask(flow.reads[argument] & flow.parameters):
            parameter = program.parameter(source)
            assert parameter is not None
            found[program.weights[source]] = parameter
    return found


def _readable(path: str) -> str:
    return ".".join(part for part in path.split(".") if part != "_orig_mod")


def _numbered(names: Sequence[str], first: Collection[int]) -> list[str]:
    seen: Counter[str] = Counter()
    result = list(names)
    for i in sorted(range(len(names)), key=lambda i: (i not in first, i)):
        seen[names[i]] += 1
        if seen[names[i]] > 1:
            result[i] = f"{names[i]}#{seen[names[i]]}"
    return result
