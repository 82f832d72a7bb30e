"""The Jacobian of a span of the trunk with respect to its entry state, one matrix per sample.

    J[b] = d exit[b] / d entry[b],  rows and columns in the order of the flattened states of one sample

Products are exact derivatives: a block of k tangents is one forward-mode pass over k copies of the tangent (the state
itself is evaluated once), a block of cotangents one reverse-mode pass over a graph that is recorded once; operations
that lack one of these take another route (`derivative`). When a Jacobian is made, its products from the left and from
the right are compared, and its samples are seen to be apart (`agreement`). In float64 the span is evaluated in float64
with the model's weights converted on the way, so counts of exact zeros and ones do not depend on float32 rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, get_args

import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.linear.agreement import agreeing_routes
from skipscope.linear.derivative import Derivative, Routes
from skipscope.linear.layout import flatten, unflatten
from skipscope.linear.memory import in_blocks
from skipscope.linear.operator import Operator, Product
from skipscope.linear.positions import restricted
from skipscope.numerics import measuring
from skipscope.trace.inputs import in_own_memory
from skipscope.trace.trunk import Function, Part, Point, Span, Unit


class Jacobian(Operator):
    """The derivative of `function` at `state`; both have their samples on an axis of their own."""

    def __init__(
        self,
        function: Callable[[Tensor], Tensor],
        state: Tensor,
        axis: int = 0,
        *,
        name: str = "jacobian",
        again: Callable[[Sequence[int] | None, torch.dtype], Jacobian | None] | None = None,
        where: Callable[[], str] | None = None,
        source: tuple[Span, Point] | None = None,
        exit_axis: int | None = None,
        routes: Routes | None = None,
    ) -> None:
        """again: the same Jacobian for some of the samples (all: None), in a floating type; None where there is none.
        where: names the first module with a value that is not finite, for the error message. source: the span and the
        point that this is the Jacobian of, from which more may be known of its spectrum. routes: how products are
        taken, where that was found out before, with another form of the same Jacobian."""
        self.function, self.state, self.axis, self.name = function, in_own_memory(state.detach()), axis, name
        self._again, self._where, self.source = again, where, source
        batch = state.shape[axis]
        if not state.numel():
            raise InputError(
                f"the entry state of {name} is empty, of shape {tuple(state.shape)}; pass a batch of samples"
            )
        with torch.no_grad(), measuring():
            output = function(self.state)
        self._check_finite(output)
        self.exit_axis = _batch_axis(output, batch, axis) if exit_axis is None else exit_axis
        self.output_shape = output.shape
        self.shape = (batch, output.numel() // batch, state.numel() // batch)
        self.dtype, self.device = state.dtype, state.device
        self.derivative = Derivative(function, self.state, axis, self.output_shape, self.exit_axis)
        self.routes = routes or agreeing_routes(self.derivative, name)

    # -- products

    def _matmat(self, V: Tensor) -> Tensor:
        return in_blocks(self._push, V, self._bytes_per_vector())

    def _rmatmat(self, U: Tensor) -> Tensor:
        return in_blocks(self._pull, U, self._bytes_per_vector())

    def _push(self, V: Tensor) -> Tensor:
        return flatten(self.derivative.push(self.unflatten(V), self.routes.push), self.exit_axis)

    def _pull(self, U: Tensor) -> Tensor:
        return flatten(self.derivative.pull(self.unflatten_output(U), self.routes.pull), self.axis)

    def unflatten(self, block: Tensor) -> Tensor:
        """A block of vectors (B, n, k) as k tangents in the form of the state."""
        return unflatten(block, self.state.shape, self.axis)

    def unflatten_output(self, block: Tensor) -> Tensor:
        """A block of vectors (B, m, k) as k cotangents in the form of the output."""
        return unflatten(block, self.output_shape, self.exit_axis)

    def _bytes_per_vector(self) -> int:
        """A few states of the larger side are alive at a time in each pass."""
        return 8 * max(self.state.numel(), prod(self.output_shape)) * self.state.element_size()

    # -- other forms

    def take(self, samples: Sequence[int]) -> Operator:
        taken = self._again(samples, self.dtype) if self._again is not None else None
        return _Among(self, samples) if taken is None else taken

    def double(self) -> Operator:
        if self.dtype == torch.float64:
            return self
        if self._again is None:
            return Jacobian(
                self.function,
                self.state.double(),
                self.axis,
                name=self.name,
                exit_axis=self.exit_axis,
                routes=self.routes,
            )
        return self._again(None, torch.float64) or super().double()

    def derivative_of(self) -> tuple[Jacobian, list[int]]:
        return self, list(range(self.shape[0]))

    # -- checks

    def _check_finite(self, output: Tensor) -> None:
        for what, tensor in (("entry", self.state), ("exit", output)):
            if not torch.isfinite(tensor).all():
                where = self._where() if self._where else ""
                first = f", first in {where}" if where else ""
                raise InputError(
                    f"the {what} state of {self.name} has NaN or infinite entries{first}; "
                    "a derivative there means nothing: check the weights and the batch"
                )


class _Among(Operator):
    """Some samples of an operator that can only run with all of them: the others get zeros."""

    def __init__(self, whole: Operator, samples: Sequence[int]) -> None:
        self.whole, self.samples = whole, list(samples)
        self.shape = (len(self.samples), *whole.shape[1:])
        self.dtype, self.device, self.name = whole.dtype, whole.device, whole.name

    @property
    def eps(self) -> float:
        return self.whole.eps

    def _matmat(self, V: Tensor) -> Tensor:
        return self.whole._matmat(self._spread(V))[self.samples]

    def _rmatmat(self, U: Tensor) -> Tensor:
        return self.whole._rmatmat(self._spread(U))[self.samples]

    def derivative_of(self) -> tuple[Jacobian, list[int]] | None:
        found = self.whole.derivative_of()
        return None if found is None else (found[0], [found[1][sample] for sample in self.samples])

    def _spread(self, block: Tensor) -> Tensor:
        whole = block.new_zeros(self.whole.shape[0], *block.shape[1:])
        return whole.index_add_(0, torch.as_tensor(self.samples, device=block.device), block)

    def take(self, samples: Sequence[int]) -> Operator:
        return _Among(self.whole, [self.samples[i] for i in samples])

    def double(self) -> Operator:
        return _Among(self.whole.double(), self.samples)


def jacobian(
    span: Span,
    x: Any,
    *,
    of: Part = "unit",
    tail: bool = False,
    tokens: tuple[Any, Any] | None = None,
    channels: tuple[Any, Any] | None = None,
    dtype: torch.dtype | None = None,
) -> Operator:
    """What `span.jacobian(x, ...)` returns; its docstring says what the options mean."""
    parts = get_args(Part)
    if of not in parts or (of != "unit" and not isinstance(span, Unit)):
        raise InputError(f"of={of!r}: expected one of {', '.join(parts)}; branch and skip are parts of a unit")
    if tail and of == "unit":
        raise InputError("tail=True applies the tail to a branch or skip; the unit's own Jacobian has its tail already")
    point = x if isinstance(x, Point) else span.trunk.at(x)
    path: Function = span if of == "unit" else getattr(span, of)
    first = _linearised(path, span.batch_axis, point, dtype)
    operator: Operator = first
    if tail and isinstance(span, Unit) and span.tail:
        after = _linearised(span.tail, first.exit_axis, point, dtype, argument=_sum_in_state_type(span))
        operator = Product((after, first))
    return restricted(operator, span, tokens=tokens, channels=channels)


def _linearised(
    function: Function,
    axis: int,
    point: Point,
    dtype: torch.dtype | None,
    argument: Callable[[Point, torch.dtype | None], Tensor] | None = None,
) -> Jacobian:
    """argument: the state at a point in a floating type; the function's own argument, converted, by default."""

    def state_in(some: Point, type_: torch.dtype | None) -> Tensor:
        if argument is not None:
            return argument(some, type_)
        state = function.argument(some)
        return state if type_ is None else state.to(type_)

    def at(some: Point, type_: torch.dtype | None, routes: Routes | None = None) -> Jacobian:
        def again(samples: Sequence[int] | None, other: torch.dtype) -> Jacobian | None:
            part = some if samples is None else some.take(samples)
            if part is None or (other != made.dtype and not function.in_any_type):
                return None
            return at(part, other, made.routes)

        made = Jacobian(
            function.bound(some),
            state_in(some, type_),
            axis,
            name=function.name,
            again=again,
            where=some.first_not_finite,
            source=(function, some) if isinstance(function, Span) else None,
            exit_axis=function.exit_axis,
            routes=routes or some.remembered.get(function),
        )
        some.remembered[function] = made.routes  # found out once, however many measurements look at it
        return made

    return at(point, dtype)


def _sum_in_state_type(unit: Unit) -> Callable[[Point, torch.dtype | None], Tensor]:
    """The sum before the tail, computed in the wanted type from the entry: the unit's own activation pattern."""

    def argument(point: Point, dtype: torch.dtype | None) -> Tensor:
        entry = point.entry(unit) if dtype is None else point.entry(unit).to(dtype)
        with torch.no_grad():
            return unit.skip.bound(point)(entry) + unit.branch.bound(point)(entry)

    return argument


def _batch_axis(output: Tensor, batch: int, axis: int) -> int:
    if output.dim() > axis and output.shape[axis] == batch:
        return axis
    for other, size in enumerate(output.shape):
        if size == batch:
            return other
    raise InputError(f"expected an output with an axis for a batch of {batch}, got shape {tuple(output.shape)}")
