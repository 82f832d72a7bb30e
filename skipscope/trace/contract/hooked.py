"""One pass of the user's own model, with forward hooks where the graph says that a value can be found.

A hook gives whatever the module really takes or returns: the graph has no part in it. It is compared with the value
that the graph has at that node, so that the right tensor of several is taken, and kept as it was at that moment.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from skipscope.module_hooks import Call, following
from skipscope.trace.contract.places import HookPlace, Side
from skipscope.trace.graph_point import GraphPoint
from skipscope.trace.inputs import Inputs
from skipscope.trace.model_output import REPLAY_TOLERANCE, relative_error


@dataclass(frozen=True)
class Request:
    """The value at a node, from the first of some modules that gives or takes it."""

    node: fx.Node
    homes: tuple[tuple[str, Side], ...]


@dataclass
class _Found:
    quality: tuple[int, bool, float]  # the number of its home among those wanted, another shape, the error
    place: HookPlace
    value: Tensor  # a copy, from that moment
    live: Tensor
    version: int


class Hooked:
    """What hooks found: for each request its place and its value; of modules, the first tensor of what they return."""

    def __init__(self, point: GraphPoint, requests: Iterable[Request], first_of: Iterable[str]) -> None:
        self._point, self._found = point, dict[Request, _Found]()
        self._wanted: dict[tuple[str, Side], list[tuple[int, Request]]] = defaultdict(list)
        for request in dict.fromkeys(requests):
            for rank, home in enumerate(request.homes):
                self._wanted[home].append((rank, request))
        self._first_of = set(first_of)
        self._firsts: dict[tuple[str, int], Tensor] = {}

    def run(self, model: nn.Module, inputs: Inputs) -> None:
        modules = {path: model.get_submodule(path) for path in {*(path for path, _ in self._wanted), *self._first_of}}
        own = inputs.map(Tensor.clone)  # a model may write into its input
        with following(modules, entered=self._entered, left=self._left):
            model(*own.args, **own.kwargs)

    def place(self, request: Request) -> HookPlace | None:
        found = self._found.get(request)
        if found is None:
            return None
        return replace(found.place, overwritten=found.live._version != found.version)

    def value(self, request: Request) -> Tensor:
        return self._found[request].value

    def first(self, path: str, call: int) -> Tensor | None:
        return self._firsts.get((path, call))

    def _entered(self, call: Call) -> None:
        self._look(call, "input", (call.args, call.kwargs))

    def _left(self, call: Call, output: Any) -> None:
        self._look(call, "output", output)
        if call.path in self._first_of:
            tensors = [leaf for leaf in pytree.tree_leaves(output) if _is_float(leaf)]
            if tensors:
                self._firsts[call.path, call.number] = tensors[0].clone()

    def _look(self, call: Call, side: Side, held: Any) -> None:
        wanted = self._wanted.get((call.path, side), [])
        if not wanted:
            return
        leaves = [(index, leaf) for index, leaf in pytree.tree_flatten_with_path(held)[0] if _is_float(leaf)]
        for rank, request in wanted:
            expected = self._point.value(request.node)
            for index, leaf in leaves:
                if leaf.numel() != expected.numel() or leaf.dtype != expected.dtype:
                    continue
                shape = None if leaf.shape == expected.shape else self._shape(request.node, expected)
                value = leaf if shape is None else leaf.reshape(expected.shape)
                error = relative_error(value, expected)
                quality = (rank, shape is not None, error)
                best = self._found.get(request)
                if error < REPLAY_TOLERANCE and (best is None or quality < best.quality):
                    place = HookPlace(call.path, side, tuple(_part(key) for key in index), call.number, shape=shape)
                    self._found[request] = _Found(quality, place, value.clone(), leaf, leaf._version)

    def _shape(self, node: fx.Node, value: Tensor) -> tuple[int, ...]:
        axis = self._point.program.batch_axis(node)
        return tuple(-1 if i == axis else size for i, size in enumerate(value.shape))


def _is_float(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.is_floating_point() and bool(leaf.numel())


def _part(key: Any) -> int | str:
    """A number, or the name of a field."""
    for name in ("idx", "key", "name"):
        if hasattr(key, name):
            return getattr(key, name)
    return str(key)
