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
from typing import Any

import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.linear.agreement import agreeing_routes
from skipscope.linear.derivative import ALL_ROWS, Derivative, Routes, attempt, flatten, unflatten
from skipscope.linear.known_spectrum import KnownSpectrum
from skipscope.linear.memory import in_blocks
from skipscope.linear.operator import Operator
from skipscope.numerics import measuring
from skipscope.renamed import renamed_parameters
from skipscope.trace.freshness import WhileFresh
from skipscope.trace.inputs import in_own_memory

ALONE = 1 / 8  # of the samples; so few of large states get a product of their own rather than go on with all
SMALL_STATES = 2**21  # numbers, of all samples: a product takes a GPU no longer than its launches, whoever is in it


class Jacobian(Operator):
    """The derivative of `function` at `state`; both have their samples on an axis of their own."""

    @renamed_parameters(again="in_other_form", where="first_not_finite")
    def __init__(
        self,
        function: Callable[[Tensor], Tensor],
        state: Tensor,
        axis: int = 0,
        *,
        name: str = "jacobian",
        in_other_form: Callable[[Sequence[int] | None, torch.dtype], Jacobian | None] | None = None,
        first_not_finite: Callable[[], str] | None = None,
        known_spectrum: Callable[[], KnownSpectrum | None] | None = None,
        exit_axis: int | None = None,
        routes: Routes | None = None,
    ) -> None:
        """in_other_form: the same Jacobian for some of the samples (None: for all), in a floating type; returns None
        where it cannot be evaluated so. first_not_finite: names the first module with a value that is not finite, for
        the error message. known_spectrum: called when a solver asks. routes: how products are taken, where that was
        found out before, with another form of the same Jacobian."""
        self.function, self.state, self.axis, self.name = function, in_own_memory(state.detach()), axis, name
        self._in_other_form, self._first_not_finite = in_other_form, first_not_finite
        self._known_spectrum = known_spectrum
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
        self.pushes_take_rows = self.routes.push == ALL_ROWS

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
        """A few values of the size of the largest are alive at a time in each pass."""
        inside = self.function.largest() if isinstance(self.function, WhileFresh) else 0
        return 8 * max(self.state.numel(), prod(self.output_shape), inside) * self.state.element_size()

    # -- other forms

    def take(self, samples: Sequence[int]) -> Operator:
        if list(samples) == list(range(self.shape[0])):
            return self
        alone = None if self._in_other_form is None else self._in_other_form(samples, self.dtype)
        return Among(self, samples) if alone is None else alone

    def go_on_with(self, samples: Sequence[int]) -> Operator:
        """On a GPU some samples go on in the company of the others: their products are captured already, and samples
        more cost less than another capture, unless few are left of large states."""
        small = self.shape[0] * max(self.shape[1:]) <= SMALL_STATES
        company = self.device.type == "cuda" and (small or len(samples) > ALONE * self.shape[0])
        return Among(self, samples) if company and len(samples) < self.shape[0] else self.take(samples)

    def double(self) -> Operator:
        if self.dtype == torch.float64:
            return self
        if self._in_other_form is not None:
            return self._in_other_form(None, torch.float64) or super().double()
        options: dict[str, Any] = {"name": self.name, "exit_axis": self.exit_axis, "routes": self.routes}
        found = attempt(lambda: Jacobian(self.function, self.state.double(), self.axis, **options))
        return super().double() if isinstance(found, str) else found  # a function may hold weights of one type

    def derivative_of(self) -> tuple[Jacobian, list[int]]:
        return self, list(range(self.shape[0]))

    def known_spectrum(self) -> KnownSpectrum | None:
        return None if self._known_spectrum is None else self._known_spectrum()

    # -- checks

    def _check_finite(self, output: Tensor) -> None:
        for what, tensor in (("entry", self.state), ("exit", output)):
            if not torch.isfinite(tensor).all():
                where = self._first_not_finite() if self._first_not_finite else ""
                first = f", first in {where}" if where else ""
                raise InputError(
                    f"the {what} state of {self.name} has NaN or infinite entries{first}; "
                    "a derivative there means nothing: check the weights and the batch"
                )


class Among(Operator):
    """Some samples of an operator that can only run with all of them: the others get zeros."""

    def __init__(self, whole: Operator, samples: Sequence[int]) -> None:
        self.whole, self.samples = whole, list(samples)
        if len({*self.samples} & {*range(whole.shape[0])}) < len(self.samples):
            raise InputError(
                f"take: expected different samples, numbers from 0 to {whole.shape[0] - 1}, got {self.samples}"
            )
        self.places = torch.tensor(self.samples, dtype=torch.long, device=whole.device)
        self.shape = (len(self.samples), *whole.shape[1:])
        self.dtype, self.device, self.name = whole.dtype, whole.device, whole.name
        self.token_route, self.pushes_take_rows = whole.token_route, whole.pushes_take_rows

    @property
    def eps(self) -> float:
        return self.whole.eps

    def _matmat(self, V: Tensor) -> Tensor:
        return self.whole._matmat(self._spread(V)).index_select(0, self.places)

    def _rmatmat(self, U: Tensor) -> Tensor:
        return self.whole._rmatmat(self._spread(U)).index_select(0, self.places)

    def derivative_of(self) -> tuple[Jacobian, list[int]] | None:
        found = self.whole.derivative_of()
        return None if found is None else (found[0], [found[1][sample] for sample in self.samples])

    def _spread(self, block: Tensor) -> Tensor:
        whole = block.new_zeros(self.whole.shape[0], *block.shape[1:])
        return whole.index_add_(0, self.places, block)

    def take(self, samples: Sequence[int]) -> Operator:
        return self.whole.take([self.samples[i] for i in samples])

    def go_on_with(self, samples: Sequence[int]) -> Operator:
        return self.whole.go_on_with([self.samples[i] for i in samples])

    def double(self) -> Operator:
        return Among(self.whole.double(), self.samples)


def _batch_axis(output: Tensor, batch: int, axis: int) -> int:
    if output.dim() > axis and output.shape[axis] == batch:
        return axis
    for other, size in enumerate(output.shape):
        if size == batch:
            return other
    raise InputError(f"expected an output with an axis for a batch of {batch}, got shape {tuple(output.shape)}")
