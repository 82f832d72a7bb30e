"""A model as a functional graph that can be run whole or in pieces.

The graph holds no weights: parameters and buffers are looked up by name in the user's model each time it runs,
so a changed or replaced weight is seen by the next run; on the way they may be converted (`read_weights`). Sizes are
not computed along the graph either: each is an expression in the batch symbol and is evaluated from the batch size, so
a piece can run without the tensors that its sizes were once read from. A device named in the graph follows the data.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from skipscope.errors import InputError
from skipscope.trace import operations
from skipscope.trace.batch_statistics import with_own_statistics
from skipscope.trace.given_inputs import check_indices, check_structure
from skipscope.trace.operations import expression
from skipscope.trace.read_weights import ReadWeights

Values = dict[fx.Node, Any]
NUMBERS = int | float | bool | torch.SymInt | torch.SymFloat | torch.SymBool


class Program:
    """The exported graph of `model`, with the meaning of each of its placeholders."""

    def __init__(
        self,
        model: nn.Module,
        graph: fx.Graph,
        *,
        inputs: Sequence[fx.Node],
        weights: Mapping[fx.Node, str],
        constants: Mapping[fx.Node, Any],
        in_spec: pytree.TreeSpec,
        out_spec: pytree.TreeSpec,
        batch_symbol: Any,
        traced_batch: int,
    ) -> None:
        self.model = model
        self.graph = graph
        self.inputs = list(inputs)
        self.weights = dict(weights)  # placeholder -> qualified name of a parameter or buffer
        self.constants = dict(constants)
        self.in_spec = in_spec
        self.out_spec = out_spec
        self.batch_symbol = batch_symbol
        self.traced_batch = traced_batch
        self.fixed_axes: dict[fx.Node, int | None] = {}  # the batch axes, where no symbol says which they are
        self.reading: ReadWeights | None = None  # how weights are converted, where they are not read as they are
        self._sizes: dict[tuple[fx.Node, int], Any] = {}
        self._evaluated: dict[tuple[Any, int], Any] = {}  # expressions in the batch symbol
        floats = [w.dtype for w in model.parameters() if w.is_floating_point()]
        floats += [n.meta["val"].dtype for n in inputs if _is_floating(n.meta.get("val"))]
        self.dtype = floats[0] if floats else torch.get_default_dtype()
        self.refresh()

    def refresh(self) -> None:
        """Read the graph again after it was changed."""
        computed = (node for node in self.graph.nodes if node.op not in ("placeholder", "output"))
        self.nodes = [node for node in computed if not self.is_free(node)]
        self.outputs = list(self.graph.output_node().args[0])  # type: ignore[arg-type]

    def of(self, model: nn.Module) -> Program:
        """The same graph on the weights of another model of the same structure."""
        twin = copy.copy(self)
        twin.model = model
        return twin

    def fixed_parts(self) -> list[Any]:
        """What a copy of the program shares with it."""
        return [self.graph, *self.graph.nodes, self.batch_symbol, self.in_spec, self.out_spec]

    # -- what a node is

    def parameter(self, node: fx.Node) -> Tensor | None:
        """The parameter behind a placeholder, None for buffers, inputs and computed values."""
        name = self.weights.get(node)
        value = None if name is None else self.lookup(name)
        return value if isinstance(value, nn.Parameter) else None

    def is_free(self, node: fx.Node) -> bool:
        """Does the node need nothing but the batch size: a size, or a tensor made in the shape of another?"""
        return isinstance(node.meta.get("val"), NUMBERS) or operations.name(node) in operations.SHAPE_ONLY

    def shape(self, node: fx.Node, batch: int) -> tuple[int, ...]:
        return tuple(self._evaluate(size, batch) for size in node.meta["val"].shape)

    def batch_axis(self, node: fx.Node) -> int | None:
        """The axis of a tensor that is exactly the batch; None where there is none or it is folded into another."""
        value = node.meta.get("val")
        if not isinstance(value, Tensor):
            return None
        if self.batch_symbol is None:
            return self.fixed_axes.get(node)
        axes = [axis for axis, size in enumerate(value.shape) if expression(size) == self.batch_symbol]
        return axes[0] if len(axes) == 1 and len(self._axes_with_batch(value)) == 1 else None

    def folds_batch(self, node: fx.Node) -> bool:
        """Does the value depend on the batch size without an axis of its own for it?"""
        value = node.meta.get("val")
        return not isinstance(value, Tensor) or (self.batch_axis(node) is None and bool(self._axes_with_batch(value)))

    def _axes_with_batch(self, value: Tensor) -> list[int]:
        sizes = [getattr(expression(size), "free_symbols", ()) for size in value.shape]
        return [axis for axis, symbols in enumerate(sizes) if self.batch_symbol in symbols]

    # -- running

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Values:
        """The values of the input placeholders for one call of the model."""
        leaves, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
        check_structure(self.in_spec, spec)
        values: Values = {}
        for node, leaf in zip(self.inputs, leaves, strict=True):
            example = node.meta.get("val")
            if isinstance(example, Tensor):
                self._check_input(node, example, leaf)
            values[node] = leaf
        check_indices(self, values)
        return values

    def batch_of(self, values: Values) -> int:
        for node in self.inputs:
            axis = self.batch_axis(node)
            if axis is not None and isinstance(values.get(node), Tensor):
                return int(values[node].shape[axis])
        return self.traced_batch

    def run(
        self,
        nodes: Iterable[fx.Node],
        values: Values,
        batch: int,
        *,
        drop: Mapping[fx.Node, Sequence[fx.Node]] | None = None,
        zero: Mapping[fx.Node, frozenset[fx.Node]] | None = None,
        dtype: torch.dtype | None = None,
        in_training: Collection[fx.Node] = (),
    ) -> None:
        """Run `nodes` in order, adding to `values`.

        drop: after the key has run, the values no longer needed. zero: arguments that the key sees as zeros.
        dtype: run in another floating type than the model's; weights and constants are converted as they are read.
        in_training: batch norms that have the statistics of their input.
        """
        dtype = None if dtype == self.dtype else dtype
        device = next((v.device for v in values.values() if isinstance(v, Tensor)), None)
        for node in nodes:
            if node.op == "get_attr":
                constant = self.constants[node]
                moves = self.reading is not None and isinstance(constant, Tensor) and device is not None
                values[node] = constant.to(device) if moves else constant
                continue
            hidden = zero.get(node, frozenset()) if zero else frozenset()

            def value(argument: fx.Node, hidden: frozenset[fx.Node] = hidden) -> Any:
                if argument in hidden:
                    like = argument.meta["val"]
                    return torch.zeros(self.shape(argument, batch), dtype=dtype or like.dtype, device=device)
                if argument in values:
                    return values[argument]
                result = self._outside(argument, batch, device, dtype)
                result = in_type(result, dtype)
                if isinstance(result, Tensor) and self.is_free(argument):
                    values[argument] = result  # made once, so that random ones agree wherever they are read
                return result

            args = fx.node.map_arg(node.args, value)
            kwargs = fx.node.map_arg(node.kwargs, value)
            args, kwargs = self.adapted(args, kwargs, device, dtype)
            target: Any = node.target
            if node in in_training:
                target, args = with_own_statistics(target, args)
            values[node] = target(*args, **kwargs)
            for dead in drop.get(node, ()) if drop else ():
                values.pop(dead, None)

    def adapted(
        self, args: Any, kwargs: Mapping[str, Any], device: torch.device | None, dtype: torch.dtype | None
    ) -> tuple[Any, Any]:
        """The arguments of a call on another device, or in another floating type than the graph's own (None)."""
        if device is not None and kwargs.get("device") is not None:
            kwargs = {**kwargs, "device": device}
        # Types are arguments of their own, never inside a list; few calls have one.
        if dtype is not None and any(isinstance(one, torch.dtype) for one in (*args, *kwargs.values())):
            args = tuple(self._other_type(one, dtype) if isinstance(one, torch.dtype) else one for one in args)
            kwargs = {k: self._other_type(v, dtype) if isinstance(v, torch.dtype) else v for k, v in kwargs.items()}
        return args, kwargs

    def outside(self, node: fx.Node, batch: int, device: torch.device, dtype: torch.dtype) -> Any:
        """A weight, a constant or a size in a floating type."""
        other = None if dtype == self.dtype else dtype
        return in_type(self._outside(node, batch, device, other), other)

    def _other_type(self, named: torch.dtype, dtype: torch.dtype) -> torch.dtype:
        """A floating type that the graph names, in a run in another type than the model's: a coarser one (autocast)
        gives way too, since a float64 run through bfloat16 would be no more exact than that."""
        if named.is_floating_point and named.itemsize <= self.dtype.itemsize:
            return dtype
        return dtype.to_complex() if named == self.dtype.to_complex() else named

    def unflatten(self, values: Values, batch: int) -> Any:
        """The model's own output structure from the values of the output nodes."""
        leaves = [
            (values[leaf] if leaf in values else self._outside(leaf, batch, None))
            if isinstance(leaf, fx.Node)
            else leaf
            for leaf in self.outputs
        ]
        return pytree.tree_unflatten(leaves, self.out_spec)

    def _outside(self, node: fx.Node, batch: int, device: torch.device | None, dtype: torch.dtype | None = None) -> Any:
        """The value of a node that is not computed along the graph: a weight, a constant, a size."""
        if (name := self.weights.get(node)) is not None:
            return self.weight(name, dtype, device)
        if node in self.constants:
            constant = self.constants[node]
            return constant.to(device) if isinstance(constant, Tensor) and device is not None else constant
        if operations.name(node) in operations.SHAPE_ONLY and isinstance(node.meta["val"], Tensor):
            return self._made(node, batch, device)
        if self.is_free(node):
            key = (node, batch)
            if key not in self._sizes:
                self._sizes[key] = self._evaluate(node.meta["val"], batch)
            return self._sizes[key]
        raise KeyError(f"node {node.name} was needed before it was computed")

    def _made(self, node: fx.Node, batch: int, device: torch.device | None) -> Tensor:
        like, shape = node.meta["val"], self.shape(node, batch)
        what = operations.name(node).removeprefix("new_").removesuffix("_like")
        if what in ("rand", "randn"):
            return getattr(torch, what)(shape, dtype=like.dtype, device=device)
        fill: Any = node.args[-1] if what == "full" else {"zeros": 0, "ones": 1, "empty": 0}[what]
        value = self._outside(fill, batch, device) if isinstance(fill, fx.Node) else fill
        return torch.full(shape, value, dtype=like.dtype, device=device)

    def weight(self, name: str, dtype: torch.dtype | None = None, device: torch.device | None = None) -> Any:
        """A weight as the graph reads it. dtype: another type than the graph's own."""
        value = self.lookup(name)
        return value if self.reading is None else self.reading.read(value, dtype or self.dtype, device)

    def lookup(self, name: str) -> Any:
        """The model's own tensor."""
        try:
            return operator.attrgetter(name)(self.model)
        except AttributeError:
            raise InputError(
                f"the model no longer has {name!r}, which it had when it was traced; trace it again"
            ) from None

    def _evaluate(self, size: Any, batch: int) -> Any:
        value = expression(size)
        if isinstance(value, int | float | bool):
            return value
        if (value, batch) not in self._evaluated:
            self._evaluated[value, batch] = self._number(size, value, batch)
        return self._evaluated[value, batch]

    def _number(self, size: Any, value: Any, batch: int) -> Any:
        result = value.subs({self.batch_symbol: batch}) if self.batch_symbol is not None else value
        if isinstance(size, torch.SymBool):
            return bool(result)
        return float(result) if isinstance(size, torch.SymFloat) else int(result)

    def _check_input(self, node: fx.Node, example: Tensor, leaf: Any) -> None:
        if not isinstance(leaf, Tensor):
            raise InputError(f"input {node.name!r}: expected a tensor, got {type(leaf).__name__}")
        free = self.batch_axis(node) if self.batch_symbol is not None else None
        expected = [None if axis == free else size for axis, size in enumerate(example.shape)]
        matches = leaf.dim() == len(expected) and all(
            e is None or e == s for e, s in zip(expected, leaf.shape, strict=True)
        )
        if not matches:
            wanted = ", ".join("batch" if e is None else str(e) for e in expected)
            raise InputError(
                f"input {node.name!r}: the trunk was traced with shape ({wanted}), got {tuple(leaf.shape)}; "
                "pass that shape, or trace again with this batch"
            )
        if leaf.dtype != example.dtype and (leaf.is_floating_point() or example.is_floating_point()):
            raise InputError(
                f"input {node.name!r}: the trunk was traced with {example.dtype}, got {leaf.dtype}; convert the batch "
                "with .to(...), or trace again with this batch"
            )


def last_uses(nodes: Sequence[fx.Node], kept: Collection[fx.Node]) -> dict[fx.Node, list[fx.Node]]:
    """For each node, the values that nothing after it reads: what a run can drop once the node has run."""
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


def in_type(value: Any, dtype: torch.dtype | None) -> Any:
    """Real or complex numbers in the precision of another type, also the parts of a split; anything else as it is."""
    if isinstance(value, list | tuple):
        return type(value)(in_type(part, dtype) for part in value)
    if dtype is None or not isinstance(value, Tensor):
        return value
    if value.is_complex():
        return value.to(dtype.to_complex())
    return value.to(dtype) if value.is_floating_point() else value


def _is_floating(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()
