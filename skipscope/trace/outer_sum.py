"""A named module whose output is added to its own input by the code around it: `x = x + layer(x)`.

The sum is looked for in a recording of one pass. From the module's output on, up to the next named module, the calls
that join it with something from before the module decide:

- a sum with the module's input, or with a state that the input was computed from (`x + layer(norm(x))`): that state is
  the unit's entry, the sum its end, and what lies between is its branch;
- only others (a product, a concatenation, a sum with another path from the same state): no unit can be made of it,
  and the module alone is none either, so it is refused;
- none: the module is one of a plain chain.

Before the module the search ends at other named modules too: a skip around several of them is not this one's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from skipscope.errors import TraceError
from skipscope.trace.inputs import tensors_of
from skipscope.trace.operations import NORM, POINTWISE
from skipscope.trace.program import in_type
from skipscope.trace.recording import Made, NamedCall, Place, Recording

SUMS = frozenset("add add_ __add__ __radd__ __iadd__ sub sub_ __sub__ __isub__ __rsub__ rsub addcmul addcmul_".split())
TAILS = POINTWISE | NORM | {"relu_", "clamp", "clamp_min", "tanh_", "sigmoid_", "clamp_"}
CallModule = Callable[[str, Any, Any, torch.dtype], Any]


@dataclass(frozen=True)
class OuterSum:
    """Where a unit around a named module begins and ends in a recording."""

    entry: Place
    sum: int
    skip: frozenset[int]  # which tensors of the sum are the entry
    branch: frozenset[int]  # which of them come from the module
    tail: tuple[int, ...] = ()

    @property
    def exit(self) -> int:
        return self.tail[-1] if self.tail else self.sum


def outer_sum(recording: Recording, named: NamedCall) -> OuterSum | str | None:
    """The sum around a named module; in words why there is no unit; None where nothing is joined with its output."""
    calls = recording.calls
    entry = named.place
    if entry is None or named.call not in calls:
        return None
    modules = {call.call for call in recording.named}
    before = _ancestors(calls, entry, stop=modules)
    origins = {place.call for place in before}
    after = {named.call}
    refusal = None
    for index, made in calls.items():
        if index <= named.call or index in modules or not any(place.call in after for place in made.paths):
            continue
        others = {place for place in made.paths if place.call not in after and _origins(calls, place) & origins}
        if made.name in SUMS and len(others) == 1 and others <= before:
            return _outer(made, index, others.pop(), after)
        if others:  # a gate or a context, if a sum with the state comes later
            refusal = refusal or _refusal(made)
        after.add(index)
    return refusal


def _refusal(made: Made) -> str:
    if made.name not in SUMS:
        return f"the code around it joins its output with a value from before it by {made.name}, which is no sum"
    return "the code around it adds its output to a value that is neither its input nor what its input was made of"


def _outer(made: Made, index: int, skip: Place, after: set[int]) -> OuterSum:
    leaves = [leaf for leaf in pytree.tree_leaves((made.args, made.kwargs)) if isinstance(leaf, Place | Tensor)]
    places = {i: leaf for i, leaf in enumerate(leaves) if isinstance(leaf, Place)}
    return OuterSum(
        skip,
        index,
        frozenset(i for i, place in places.items() if place == skip),
        frozenset(i for i, place in places.items() if place.call in after),
    )


def _ancestors(calls: dict[int, Made], place: Place, stop: Collection[int] = ()) -> set[Place]:
    """The values that a value was made of, itself included; not through the calls in `stop`."""
    found: set[Place] = set()
    waiting = [place]
    while waiting:
        place = waiting.pop()
        if place not in found:
            found.add(place)
            if place.call in calls and place.call not in stop:
                waiting += calls[place.call].paths
    return found


def _origins(calls: dict[int, Made], place: Place) -> set[int]:
    return {some.call for some in _ancestors(calls, place)}


# -- tails


def with_tails(recording: Recording, sums: Sequence[OuterSum | None]) -> list[OuterSum | None]:
    """The same sums with what is done to each before it is another unit's entry; the last has what most have."""
    entries = {some.entry for some in sums if some} | {named.place for named in recording.named}
    runs = [None if some is None else _run_after(recording, some.sum) for some in sums]
    found: list[OuterSum | None] = []
    votes: Counter[tuple[str, ...]] = Counter()
    open_ = []
    for i, (some, run) in enumerate(zip(sums, runs, strict=True)):
        if some is None or run is None:
            found.append(None)
            continue
        reached = [k for k in range(len(run) + 1) if Place(run[k - 1] if k else some.sum) in entries]
        if reached:
            votes[tuple(recording.calls[call].name for call in run[: reached[0]])] += 1
            found.append(replace(some, tail=tuple(run[: reached[0]])))
        else:
            open_.append(i)
            found.append(some)
    usual = votes.most_common(1)[0][0] if votes else ()
    for i in open_:
        run, some = runs[i] or [], sums[i]
        if some is not None and tuple(recording.calls[call].name for call in run[: len(usual)]) == usual:
            found[i] = replace(some, tail=tuple(run[: len(usual)]))
    return found


def _run_after(recording: Recording, index: int) -> list[int]:
    """The activations and norms after a call, each the only use of the one before."""
    run: list[int] = []
    while True:
        users = [i for i, made in recording.calls.items() if any(place.call == index for place in made.reads)]
        if len(users) != 1 or recording.calls[users[0]].name not in TAILS:
            return run
        made = recording.calls[users[0]]
        if made.function is None or len(made.paths) != 1:
            return run
        run.append(index := users[0])


# -- running


class OuterPiece:
    """The calls from one place to another, as a function of the tensor at the first. The rest is from the recording."""

    def __init__(self, recording: Recording, entry: Place, exit: int) -> None:
        self.recording, self.entry, self.exit = recording, entry, exit
        self.calls = self._between()
        if any(recording.calls[index].stale for index in self.calls):
            raise TraceError("a state is written to through a view of it, which cannot be followed; name other modules")

    def _between(self) -> list[int]:
        calls = self.recording.calls
        moved: set[int] = set()
        for index, made in calls.items():
            reads = made.reads
            if index <= self.exit and any(place == self.entry or place.call in moved for place in reads):
                moved.add(index)
        needed: set[int] = set()
        waiting = [self.exit]
        while waiting:
            index = waiting.pop()
            if index in moved and index not in needed:
                needed.add(index)
                waiting += [place.call for place in calls[index].reads if place != self.entry]
        return sorted(needed)

    def needed(self) -> set[int]:
        """The calls whose values it is made of."""
        reads = {place.call for index in self.calls for place in self.recording.calls[index].reads}
        return {self.entry.call, self.exit, *self.calls, *reads}

    def context(self) -> list[str]:
        """What it reads in addition to its entry, by where that was made."""
        own = set(self.calls)
        places = [place for index in self.calls for place in self.recording.calls[index].paths]
        others = dict.fromkeys(place for place in places if place != self.entry and place.call not in own)
        return [f"input {-place.call}" if place.call < 0 else self.recording.calls[place.call].name for place in others]

    def held(self) -> list[Tensor]:
        """The tensors that come from nowhere in the pass: weights that the code reads itself."""
        calls = [self.recording.calls[index] for index in self.calls]
        return [leaf for made in calls for leaf in tensors_of((made.args, made.kwargs))]

    def __call__(self, state: Tensor, module: CallModule, at: int | None = None, zero: Collection[int] = ()) -> Tensor:
        """module: calls a named one. zero: tensors of the call `at` that are read as zeros."""
        values = {self.entry: state}
        for index in self.calls:
            made = self.recording.calls[index]
            args, kwargs = self._arguments(made, values, state.dtype, zero if index == at else ())
            tensors = tensors_of((args, kwargs))
            if made.function is None:
                result = module(made.name, args, kwargs, state.dtype)
            else:
                result = made.function(*args, **kwargs)
            returned = tensors_of(result)
            written = [tensors[i] for i in made.written if not any(tensors[i] is value for value in returned)]
            values.update({Place(index, leaf): value for leaf, value in enumerate([*returned, *written])})
        return values[Place(self.exit)] if self.calls else state

    def _arguments(
        self, made: Made, values: dict[Place, Tensor], dtype: torch.dtype, zero: Collection[int]
    ) -> tuple[Any, Any]:
        count = -1

        def value(leaf: Any) -> Any:
            nonlocal count
            if not isinstance(leaf, Place | Tensor):
                return leaf
            count += 1
            if isinstance(leaf, Place):
                leaf = values[leaf] if leaf in values else self.recording.value(leaf)
            found = in_type(leaf, dtype)
            if count in zero:
                return torch.zeros_like(found)
            return found.clone() if count in made.written else found

        args, kwargs = pytree.tree_map(value, (made.args, made.kwargs), is_leaf=lambda leaf: isinstance(leaf, Place))
        return args, kwargs
