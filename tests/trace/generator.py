"""Random residual networks, and the units that must be found in each.

A `Plan` is drawn, `Net` builds it, and `known_units` says what the plan's units are. The answers come from the plan
alone, never from a graph, so that they are independent of how units are found. A plan prints as the code that makes
it: a failing one can be pasted into a regression test.

The same plan can be written in different styles of code, and the rule must not care:
  module   every unit is a module of its own
  flat     the sum and the tail are executed by the module around the unit, often the model itself
  wrapped  the unit is a module that ends with its sum, and the tail follows outside: Sequential(Residual, ReLU)

What is not drawn, because its answer is a matter of taste:
  - `x + (2 * x + f(x))` in one forward: two nested units, or one unit with a scaled skip, or with two branches. With a
    module, a norm or a tail between the two sums the answer is clear, and it is drawn.
  - Wrapped units with different tails, or beside units without a tail: which neighbours make the majority?
  - A flat unit before an operation that could be its tail but as well belong to what follows: a unit that is alone
    in its forward before a final norm, and an inner unit whose exit the outer one scales.
  - A flat unit's tail before a plain layer, the head or the end of a branch, where no other flat unit beside it has
    the same tail.
  - A pre-norm that skip and branch share, in flat code: it could be the tail of the unit before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import Tensor, nn

CONTEXT = 5  # width of a time embedding, and of a memory
MEMORY = 4  # tokens of a memory

TAILS: dict[str, list[str]] = {
    "": [],
    "relu": ["relu"],
    "gelu": ["gelu"],
    "norm": ["norm"],
    "norm relu": ["norm", "relu"],
}
RESCALING_JOINS = ("reversed sub", "lerp", "alpha on skip")  # these give the skip a factor other than one
SILENT_JOINS = ("add", "reversed add", "sub", "alpha", "in place")  # these leave the branch as it is before the sum
JOINS = (*SILENT_JOINS, *RESCALING_JOINS, "addcmul", "gain", "stack")
TWO_BRANCH_JOINS = ("add", "reversed add", "sub", "alpha", "grouped", "reversed sub")


# -- plans


@dataclass(frozen=True)
class State:
    """What flows along the trunk, without its batch axis."""

    kind: str  # vector | tokens | image
    width: int
    size: int = 1  # the number of tokens, the side of an image
    norm: str = "layer"  # layer | batch | group: the norm that this network puts on such states

    @property
    def shape(self) -> tuple[int, ...]:
        tokens = (self.size, self.width)
        return {"vector": (self.width,), "tokens": tokens, "image": (self.width, self.size, self.size)}[self.kind]


@dataclass(frozen=True)
class Plain:
    """A layer outside all units, or between the inner units of a unit's branch."""

    out: State
    norm: bool = False


@dataclass(frozen=True)
class Branch:
    """One branch of a unit: a single module, or a chain of layers and inner units."""

    out: State
    body: str  # mlp | gated | mixer | attention | chain
    context: str = ""  # how a time embedding or a memory enters: add | film | split film | attend
    steps: tuple[Plain | Unit, ...] = ()
    inline: bool = False  # the chain is executed by the unit's own forward

    @property
    def reads_context(self) -> bool:
        return bool(self.context) or any(isinstance(s, Unit) and s.reads_context for s in self.steps)


@dataclass(frozen=True)
class Unit:
    branches: tuple[Branch, ...]
    skip: str = "identity"  # identity | factor | gain | projection | normed projection | pool | pad
    join: str = "add"
    norm: str = ""  # before the branch: "" | own | shared (also before the skip)
    tail: str = ""
    style: str = "module"
    calls: int = 1

    @property
    def out(self) -> State:
        return self.branches[0].out

    @property
    def reads_context(self) -> bool:
        return any(branch.reads_context for branch in self.branches)

    @property
    def kind(self) -> str:
        if self.skip in ("factor", "gain"):
            return "scaled"
        if self.skip == "identity":
            return "scaled" if self.join in RESCALING_JOINS else "identity"
        return self.skip.removeprefix("normed ")


@dataclass(frozen=True)
class Plan:
    start: State
    steps: tuple[Plain | Unit, ...]
    context: str = ""  # "" | time | memory
    source: str = "input"  # of the context: a second input | the first input | a residual encoder of the second
    inline: bool = True  # the trunk is executed by the model's own forward
    by_name: bool = False  # inputs in a dict
    final_norm: bool = False
    output: str = "head"  # head | state
    also: int | None = None  # the state after this step is returned too
    container: str = "tuple"  # of several outputs: tuple | dict
    seed: int = 0


# -- modules


def affine(inside: State, out: State, kernel: int = 3) -> nn.Module:
    if inside.kind != "image":
        return nn.Linear(inside.width, out.width)
    return nn.Conv2d(inside.width, out.width, kernel, stride=inside.size // out.size, padding=kernel // 2)


def norm(state: State) -> nn.Module:
    if state.norm == "layer":
        return nn.LayerNorm(state.width)
    return nn.BatchNorm2d(state.width) if state.norm == "batch" else nn.GroupNorm(2, state.width)


def spread(value: Tensor, like: Tensor) -> Tensor:
    """(batch, width) beside a state: one entry a channel."""
    if like.dim() == 4:
        return value[:, :, None, None]
    return value[:, None] if like.dim() == 3 else value


class Layer(nn.Module):
    def __init__(self, plan: Plain, inside: State) -> None:
        super().__init__()
        self.affine = affine(inside, plan.out)
        self.norm = norm(plan.out) if plan.norm else None

    def forward(self, x: Tensor) -> Tensor:
        x = self.affine(x)
        return F.gelu(x if self.norm is None else self.norm(x))


class Mlp(nn.Module):
    """Two affine maps; a time embedding enters in between."""

    def __init__(self, plan: Branch, inside: State) -> None:
        super().__init__()
        hidden = replace(plan.out, width=6)
        self.first, self.second = affine(inside, hidden), affine(hidden, plan.out)
        self.gate = affine(inside, hidden) if plan.body == "gated" else None
        self.shift = nn.Linear(CONTEXT, hidden.width) if plan.context in ("add", "film") else None
        self.scale = nn.Linear(CONTEXT, hidden.width) if plan.context == "film" else None
        self.both = nn.Linear(CONTEXT, 2 * hidden.width) if plan.context == "split film" else None
        self.dropout = nn.Dropout(0.2)

    def forward(self, x: Tensor, context: Tensor | None) -> Tensor:
        h = self.first(x)
        if self.both is not None:
            scale, shift = self.both(context).chunk(2, -1)
            h = h * (1 + spread(scale, h)) + spread(shift, h)
        if self.scale is not None:
            h = h * (1 + spread(self.scale(context), h))
        if self.shift is not None:
            h = h + spread(self.shift(context), h)
        h = F.silu(h) if self.gate is None else F.silu(h) * self.gate(x)
        return self.second(self.dropout(h))


class Mixer(nn.Module):
    """Mixes tokens, as in an MLP-Mixer."""

    def __init__(self, plan: Branch, inside: State) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(inside.size, 6), nn.Linear(6, inside.size)

    def forward(self, x: Tensor, context: Tensor | None) -> Tensor:
        return self.second(F.gelu(self.first(x.transpose(1, 2)))).transpose(1, 2)


class Attention(nn.Module):
    """Self-attention, or cross-attention to a memory."""

    def __init__(self, plan: Branch, inside: State) -> None:
        super().__init__()
        self.cross = plan.context == "attend"
        self.q, self.out = nn.Linear(inside.width, 6), nn.Linear(6, plan.out.width)
        self.kv = nn.Linear(CONTEXT if self.cross else inside.width, 12)

    def forward(self, x: Tensor, context: Tensor | None) -> Tensor:
        k, v = self.kv(context if self.cross else x).chunk(2, -1)
        return self.out(F.scaled_dot_product_attention(self.q(x), k, v))


class Chain(nn.Module):
    """Layers and units one after another; `run` executes them in the caller's forward."""

    def __init__(self, steps: tuple[Plain | Unit, ...], state: State) -> None:
        super().__init__()
        self.plan = steps
        self.steps = nn.ModuleList()
        for step in steps:
            self.steps.append(Layer(step, state) if isinstance(step, Plain) else Residual(step, state))
            state = step.out

    def forward(self, x: Tensor, context: Tensor | None) -> Tensor:
        return self.run(x, context)[-1]

    def run(self, x: Tensor, context: Tensor | None) -> list[Tensor]:
        """The state after every step."""
        states = []
        for plan, step in zip(self.plan, self.steps, strict=True):
            if isinstance(step, Residual):
                for _ in range(plan.calls):
                    x = step.in_style(x, context)
            else:
                x = step(x)
            states.append(x)
        return states


BODIES = {"mlp": Mlp, "gated": Mlp, "mixer": Mixer, "attention": Attention}


class Residual(nn.Module):
    """A unit in any style: `forward` is the whole unit, `run` and `end` are its parts for the caller's forward."""

    def __init__(self, plan: Unit, inside: State) -> None:
        super().__init__()
        self.plan, self.inside = plan, inside
        self.norm = norm(inside) if plan.norm else None
        self.branches = nn.ModuleList(
            Chain(b.steps, inside) if b.body == "chain" else BODIES[b.body](b, inside) for b in plan.branches
        )
        self.project = affine(inside, plan.out, kernel=1) if "projection" in plan.skip else None
        self.project_norm = norm(plan.out) if plan.skip == "normed projection" else None
        vector = (plan.out.width, 1, 1) if plan.out.kind == "image" else (plan.out.width,)
        self.skip_gain = nn.Parameter(torch.rand(vector) + 0.5) if plan.skip == "gain" else None
        self.gain = nn.Parameter(torch.rand(vector) + 0.5) if plan.join in ("addcmul", "gain") else None
        self.tail_norm = norm(plan.out) if "norm" in plan.tail else None
        self.tail_relu = nn.ReLU()

    # -- the three styles

    def forward(self, x: Tensor, context: Tensor | None) -> Tensor:
        total = self.run(self.before(x), context)
        return total if self.plan.style == "wrapped" else self.end(total)

    def in_style(self, x: Tensor, context: Tensor | None) -> Tensor:
        if self.plan.style == "module":
            return self(x, context)
        if self.plan.style == "wrapped":
            return self.end(self(x, context))
        return self.end(self.run(self.before(x), context))

    # -- the parts

    def before(self, x: Tensor) -> Tensor:
        return self.norm(x) if self.norm is not None and self.plan.norm == "shared" else x

    def run(self, x: Tensor, context: Tensor | None) -> Tensor:
        """From the entry to the sum."""
        h = self.norm(x) if self.norm is not None and self.plan.norm == "own" else x
        values = []
        for plan, branch in zip(self.plan.branches, self.branches, strict=True):
            values.append(branch.run(h, context)[-1] if plan.inline else branch(h, context))
        return self._joined(self._skip(x), *values)

    def end(self, total: Tensor) -> Tensor:
        for operation in TAILS[self.plan.tail]:
            if operation == "norm":
                assert self.tail_norm is not None
                total = self.tail_norm(total)
            else:
                total = F.gelu(total) if operation == "gelu" else self.tail_relu(total)
        return total

    def whole(self, entry: Tensor, context: Tensor | None) -> Tensor:
        """From the entry to the exit."""
        return self.end(self.run(entry, context))

    def skip_alone(self, entry: Tensor) -> Tensor:
        """What the sum takes from the skip."""
        factor = {"reversed sub": -1.0, "lerp": 0.7, "alpha on skip": 0.5}.get(self.plan.join, 1.0)
        return factor * self._skip(entry)

    def _skip(self, x: Tensor) -> Tensor:
        out, stride = self.plan.out, self.inside.size // self.plan.out.size
        if self.project is not None:
            x = self.project(x)
            return x if self.project_norm is None else self.project_norm(x)
        if self.skip_gain is not None:
            return self.skip_gain * x
        if self.plan.skip == "pool":
            return F.avg_pool2d(x, stride)
        if self.plan.skip == "pad":
            after = out.width - self.inside.width
            return F.pad(x[:, :, ::stride, ::stride], (0, 0, 0, 0, 0, after)) if x.dim() == 4 else F.pad(x, (0, after))
        return 0.5 * x if self.plan.skip == "factor" else x

    def _joined(self, skip: Tensor, value: Tensor, *more: Tensor) -> Tensor:
        (second,) = more or (None,)
        match self.plan.join:
            case "add":
                total = skip + value
                return total if second is None else total + second
            case "reversed add":
                return value + skip if second is None else value + second + skip
            case "grouped":
                return skip + (value + second)
            case "sub":
                total = skip - value
                return total if second is None else total - second
            case "reversed sub":
                return value - skip if second is None else value + second - skip
            case "alpha":
                return torch.add(skip, value, alpha=0.5) if second is None else torch.add(skip + value, second, alpha=2)
            case "alpha on skip":
                return torch.add(value, skip, alpha=0.5)
            case "in place":
                value += skip
                return value
            case "lerp":
                return torch.lerp(skip, value, 0.3)
            case "addcmul":
                return torch.addcmul(skip, self.gain, value, value=0.5)
            case "gain":
                return skip + self.gain * value
            case "stack":
                return torch.stack([skip, value]).sum(0)
        raise ValueError(self.plan.join)


class Net(nn.Module):
    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        self.stem = affine(plan.start, plan.start)
        self.trunk = Chain(plan.steps, plan.start)
        end = plan.steps[-1].out
        self.last = norm(end) if plan.final_norm else None
        self.head = nn.Linear(end.width, 3) if plan.output == "head" else None
        width = plan.start.width if plan.source == "first input" else CONTEXT
        self.prepare = nn.Linear(width, CONTEXT) if plan.context else None
        memory = _context_state(plan)
        self.encoder = Residual(Unit((Branch(memory, "mlp"),)), memory) if plan.source == "encoder" else None

    def forward(self, x: Tensor, context: Tensor | None = None) -> Any:
        context = self.context(x, context)
        x = self.stem(x)
        if self.plan.inline:
            states = self.trunk.run(x, context)
            x = states[-1]
        else:
            states, x = [], self.trunk(x, context)
        if self.last is not None:
            x = self.last(x)
        if self.head is not None:
            x = self.head(x.mean((2, 3)) if x.dim() == 4 else x)
        if self.plan.also is None:
            return x
        other = states[self.plan.also]
        return (x, other) if self.plan.container == "tuple" else {"middle": other, "end": (x, None)}

    def context(self, x: Tensor, context: Tensor | None) -> Tensor | None:
        """What enters the branches beside the state."""
        if self.prepare is None:
            return None
        if self.plan.source == "first input":
            context = x.mean((2, 3)) if x.dim() == 4 else x
            context = context.mean(1) if x.dim() == 3 and self.plan.context == "time" else context
        context = self.prepare(context)
        return context if self.encoder is None else self.encoder(context, None)

    def inputs(self, batch: int) -> Any:
        """A fresh batch in the form that the plan wants: a tensor, a tuple or a dict."""
        x = torch.randn(batch, *self.plan.start.shape, dtype=torch.float64)
        if not self.plan.context or self.plan.source == "first input":
            return {"x": x} if self.plan.by_name else x
        context = torch.randn(batch, *_context_state(self.plan).shape, dtype=torch.float64)
        return {"x": x, "context": context} if self.plan.by_name else (x, context)


def _context_state(plan: Plan) -> State:
    return State("tokens", CONTEXT, MEMORY) if plan.context == "memory" else State("vector", CONTEXT)


def build(plan: Plan) -> Net:
    """The plan's network in double precision, with modes, frozen weights and statistics that a trace could spoil."""
    with torch.random.fork_rng([]):
        torch.manual_seed(plan.seed)
        net = Net(plan).double()
        for module in net.modules():
            module.training = bool(torch.rand(()) < 0.5)
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_()
                module.running_var.uniform_(0.5, 2)
        for parameter in net.parameters():
            parameter.requires_grad_(bool(torch.rand(()) < 0.7))
        return net


# -- known answers


@dataclass
class Known:
    """What must be found of one unit."""

    module: Residual
    name: str | None  # without its number; None where two modules have equal claims to it
    kind: str
    tail: list[str]
    context: bool
    parent: int | None
    branches: int
    entry_shape: tuple[int, ...]
    exit_shape: tuple[int, ...]
    parameters: set[int]  # by identity


def known_units(net: Net) -> list[Known]:
    """In the order of the sums: inner units before the one around them."""
    found: list[_Located] = []
    serial = count()
    root = ((next(serial), ""),)
    if net.encoder is not None:
        _collect(net.encoder, "encoder", root, found, serial)
    scope = root if net.plan.inline else (*root, (next(serial), "trunk"))
    _collect_chain(net.trunk, "trunk", scope, found, serial)
    return [_known(found, i) for i in range(len(found))]


Scope = tuple[tuple[int, str], ...]  # the calls around something, outermost first: a number and the module's path


@dataclass
class _Located:
    module: Residual
    path: str
    owner: Scope  # the calls around its sum
    first: int  # index of its first inner unit; its own index if it has none


def _collect_chain(chain: Chain, path: str, scope: Scope, found: list[_Located], serial: Iterator[int]) -> None:
    for i, step in enumerate(chain.steps):
        if isinstance(step, Residual):
            for _ in range(step.plan.calls):
                _collect(step, f"{path}.steps.{i}", scope, found, serial)


def _collect(unit: Residual, path: str, scope: Scope, found: list[_Located], serial: Iterator[int]) -> None:
    first = len(found)
    if unit.plan.style != "flat":
        scope = (*scope, (next(serial), path))
    for i, (plan, branch) in enumerate(zip(unit.plan.branches, unit.branches, strict=True)):
        if isinstance(branch, Chain):
            where = f"{path}.branches.{i}"
            inner = scope if plan.inline else (*scope, (next(serial), where))
            _collect_chain(branch, where, inner, found, serial)
    found.append(_Located(unit, path, scope, first))


def _known(found: list[_Located], index: int) -> Known:
    located = found[index]
    unit, plan = located.module, located.module.plan
    parents = [k for k, other in enumerate(found) if other.first <= index < k]
    operations = [f"{plan.out.norm}_norm" if name == "norm" else name for name in TAILS[plan.tail]]
    outside = set() if plan.norm != "shared" or unit.norm is None else {id(p) for p in unit.norm.parameters()}
    return Known(
        module=unit,
        name=_name(found, index),
        kind=plan.kind,
        tail=operations,
        context=plan.reads_context,
        parent=min(parents, default=None),
        branches=len(plan.branches),
        entry_shape=unit.inside.shape,
        exit_shape=plan.out.shape,
        parameters={id(p) for p in unit.parameters()} - outside,
    )


def _name(found: list[_Located], index: int) -> str | None:
    """The path of the module that executes the unit; its child with most of the branch's weights where that module
    executes other units too, except those inside."""
    located = found[index]
    owner, path = located.owner, located.owner[-1][1]
    shared = any(other.owner[: len(owner)] == owner for k, other in enumerate(found) if not located.first <= k <= index)
    if path and not shared:
        return path
    if any(branch.body == "chain" for branch in located.module.plan.branches):
        return None
    sizes = [sum(p.numel() for p in branch.parameters()) for branch in located.module.branches]
    if (located.module.plan.reads_context and len(sizes) > 1) or sizes.count(max(sizes)) > 1:
        return None
    return f"{located.path}.branches.{sizes.index(max(sizes))}"


# -- drawing plans

Draw = Callable[[st.SearchStrategy[Any]], Any]


class _Drawing:
    """The choices that hold for a whole plan, and how many units may still be drawn."""

    def __init__(self, draw: Draw, context: str, wrapped: str | None, budget: int) -> None:
        self.draw, self.context, self.wrapped, self.budget = draw, context, wrapped, budget
        self.within = 0  # units that hold what is drawn now

    def one(self, *choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))

    def sometimes(self) -> bool:
        return self.one(False, False, True)

    def next_state(self, state: State) -> State:
        if not self.sometimes():
            return state
        state = replace(state, width=self.one(4, 6, 8))
        return replace(state, size=state.size // 2) if state.kind == "image" and state.size > 2 else state

    def plain(self, state: State) -> Plain:
        return Plain(self.next_state(state), self.one(False, True))

    def steps(
        self, state: State, depth: int, least: int, most: int, scope_tail: str | None = None
    ) -> tuple[Plain | Unit, ...]:
        """A chain that starts with `least` units.

        Its flat units have one tail, as code in a loop has, or each its own; then only those that lead straight to
        another unit have one.
        """
        tail = self.one(*TAILS) if scope_tail is None else scope_tail
        mixed = scope_tail is None and self.sometimes()
        steps: list[Plain | Unit] = []
        for i in range(self.draw(st.integers(least, most))):
            last = i >= least and self.budget <= 0
            if last or (i >= least and self.sometimes()):
                steps.append(self.plain(state))
            else:
                steps.append(self.unit(state, 0, self.one(*TAILS)) if mixed else self.unit(state, depth, tail))
            state = steps[-1].out
            if last:
                break
        if mixed:
            for i, (step, follower) in enumerate(zip(steps, (*steps[1:], None), strict=True)):
                if _is_flat(step) and not isinstance(follower, Unit):
                    steps[i] = replace(step, tail="")
        for i, (step, follower) in enumerate(zip(steps, (*steps[1:], None), strict=True)):
            alone = isinstance(step, Unit) and step.style == "module" and not isinstance(follower, Unit)
            if alone and step.tail == "norm relu":
                steps[i] = replace(step, tail="norm")  # blocks of a list are alike: after others with a norm, a ReLU
        return tuple(steps)  # that leads to no unit would not belong to the last one

    def unit(self, state: State, depth: int, flat_tail: str) -> Unit:
        self.budget -= 1
        style = "wrapped" if self.wrapped is not None else self.one("module", "flat")
        tail = {"wrapped": self.wrapped, "flat": flat_tail}.get(style) if style != "module" else self.one(*TAILS)
        pre_norm = self.one("", "own", "own", "")
        if depth and self.budget > 0 and self.sometimes():
            branches: tuple[Branch, ...] = (self.chain(state, depth, style, tail, pre_norm),)
        else:
            first = self.leaf(state, self.next_state(state))
            branches = (first, self.leaf(state, first.out)) if self.sometimes() else (first,)
        apart = bool(branches[0].steps) and (bool(pre_norm) or isinstance(branches[0].steps[0], Plain))
        # Otherwise (x + f(x)) + (x + g(x)) might come out: two units side by side, and no skip beside them.
        if len(branches) == 1 and branches[0].body == "chain" and not branches[0].inline and apart and self.sometimes():
            beside = self.leaf(state, branches[0].out)
            branches = self.one((beside, *branches), (*branches, beside))
        out = branches[0].out
        skip = self.skip(state, out)
        chain = branches[0]
        if style == "module" and "projection" in skip and pre_norm and not chain.inline and self.one(False, True):
            pre_norm = "shared"
        joins = TWO_BRANCH_JOINS if len(branches) == 2 else JOINS
        # f(x) - x inside a unit belongs to its branch.
        join = self.one(*(join for join in joins if join != "reversed sub" or not self.within))
        if chain.inline and _is_flat(chain.steps[-1]) and join not in SILENT_JOINS:
            join = "add"  # a factor on an inner flat unit's exit could be its tail
        # The same weights twice inside a unit take two steps of its branch (Runge-Kutta), and are no units.
        calls = 2 if out == state and self.budget > 0 and not self.within and self.sometimes() else 1
        self.budget -= calls - 1
        return Unit(branches, skip, join, pre_norm, tail or "", style, calls)

    def chain(self, state: State, depth: int, style: str, tail: str, pre_norm: str) -> Branch:
        self.within += 1
        steps = self.steps(state, depth - 1, 1, 2, tail if style == "flat" else None)
        self.within -= 1
        inline = self.one(False, True)
        if len(steps) == 1 and _is_flat(steps[0]) and steps[0].calls == 1 and not (steps[0].tail or pre_norm):
            inline = False  # one sum of three terms, otherwise
        flat = [step for step in steps if _is_flat(step)]
        if style == "module" and flat == [steps[-1]] and steps[-1].tail and steps[-1].calls == 1:
            inline = False  # its tail could as well be the last layer of the branch
        return Branch(steps[-1].out, "chain", steps=steps, inline=inline)

    def leaf(self, state: State, out: State) -> Branch:
        if self.context and self.one(False, True):
            if self.context == "memory":
                return Branch(out, "attention", "attend")
            return Branch(out, self.one("mlp", "gated"), self.one("add", "film", "split film"))
        bodies = ["mlp", "gated"]
        if state.kind == "tokens":
            bodies += ["attention"] + ["mixer"] * (out == state)
        return Branch(out, self.one(*bodies))

    def skip(self, state: State, out: State) -> str:
        choices = ["projection", "normed projection"]
        if out == state:
            choices = ["identity", "identity", "identity", "factor", "gain", *choices]
        if out.width > state.width:
            choices.append("pad")
        if out.width == state.width and out.size < state.size:
            choices.append("pool")
        return self.one(*choices)


def _is_flat(step: Plain | Unit) -> bool:
    return isinstance(step, Unit) and step.style == "flat"


STARTS = {
    "vector": [State("vector", 4), State("vector", 6)],
    "tokens": [State("tokens", 4, 3), State("tokens", 6, 3)],
    "image": [State("image", width, 8, norm) for norm in ("batch", "group") for width in (4, 6)],
}


@st.composite
def plans(draw: Draw, kind: str) -> Plan:
    """Plans of networks on one kind of state."""
    start = draw(st.sampled_from(STARTS[kind]))
    contexts = ["", "", "time"] + (["memory"] * 3 if kind == "tokens" else ["time"])
    context = draw(st.sampled_from(contexts))
    wrapped = draw(st.sampled_from([None, None, None, "relu", "norm", "gelu"]))
    # A residual encoder has no tail: among wrapped units, it would be a neighbour that disagrees.
    sources = ["input", "first input"] + ["encoder"] * (wrapped is None)
    source = draw(st.sampled_from(sources)) if context else "input"
    drawing = _Drawing(draw, context, wrapped, budget=draw(st.integers(2, 5)))
    # Wrapped units start with two in a row: what lies between them is what tells their tail.
    steps = drawing.steps(start, depth=2, least=1 if wrapped is None else 2, most=4)
    if source == "encoder" and not any(isinstance(step, Unit) and step.reads_context for step in steps):
        source = "input"  # nothing would lead from the encoder to an output
    inline = drawing.one(True, True, False)
    flat = [step for step in steps if _is_flat(step)]
    # A flat unit that leads to another tells that a final norm is no tail.
    leads = any(
        step.calls == 2 or isinstance(after, Unit)
        for step, after in zip(steps, (*steps[1:], None), strict=True)
        if _is_flat(step)
    )
    return Plan(
        start,
        steps,
        context,
        source,
        inline,
        by_name=drawing.sometimes(),
        final_norm=drawing.sometimes() and (not flat or leads) and len({s.tail for s in flat}) < 2,
        output=drawing.one("head", "head", "state"),
        also=drawing.one(None, *range(len(steps))) if inline else None,
        container=drawing.one("tuple", "dict"),
        seed=draw(st.integers(0, 3)),
    )
