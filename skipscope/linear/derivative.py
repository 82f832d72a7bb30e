"""Products with the derivative of a function, by routes that were seen to give them.

Not every operation has every derivative. One that was registered with a plain backward alone drops a tangent in forward
mode without a word, and may fail under `vmap`. So there are several routes, tried in this order:

    to push a tangent v to J v        forward mode, a block of tangents at once (`vmap` of `jvp`)
                                      forward mode, one tangent at a time
                                      double backward, one tangent at a time: J v = d/du <J^T u, v>
                                      all rows of J, each pulled back once and kept, where they are few: at the
                                      first push, so that who needs pulls alone does not pay for them
    to pull a cotangent u to J^T u    reverse mode, a block at once (`vmap` of a recorded `vjp`)
                                      reverse mode, one cotangent at a time, by plain autograd

and a pair of them is taken only where <J v, u> = <v, J^T u> for random u and v, in every sample. What both of a pair
leave out (a `detach` in the model) stays unseen here; the Jacobian test of `verify` sees it.

Forward mode evaluates the function anew for every block, through many small calls. A solver that pushes a few tangents
again and again pays for that. A pull u -> J^T u is linear in u, so its own reverse mode is v -> J v: from the second
push of few tangents on it is recorded once, compared with forward mode, and used where both give the same to rounding.
Measured on one core of a CPU at units of a ResNet-20 and of a small GPT-2, recording costs as much as one push, and a
push of one to four tangents then takes a half to an eighth of the time. Functions with many weights stay with forward
mode, and so does a GPU, which takes three times as long for the second derivative of a convolution; there products with
few vectors are captured instead (`captured`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from skipscope.cores import threads_for
from skipscope.errors import InputError, SkipscopeError, first_line
from skipscope.linear.captured import CapturedProduct
from skipscope.linear.memory import SHARE_OF_FREE_MEMORY, free_bytes, out_of_memory
from skipscope.numerics import load_forward_mode, measuring, normal, random_numbers
from skipscope.trace.freshness import WhileFresh

Function = Callable[[Tensor], Tensor]
Result = TypeVar("Result")
MOST_KEPT_ROWS = 4096
FEW_TANGENTS = 8  # in a block up to which the function's own evaluation, and the calls, are a large part of a push
FEW_WEIGHTS = 200_000  # of a function whose push is recorded; units of ResNets for small images have up to 74,000
RECORD_AT = 2  # the number of the push of few tangents at which it is worth recording: there will be more
SAME_PRODUCT = 64.0  # times eps: by so much the same product may differ when it is added up in another order


class Derivative:
    """The derivative of `function` at `state`. Tangents (k, *state), cotangents (k, *output)."""

    def __init__(
        self, function: Function, state: Tensor, axis: int, output_shape: Sequence[int], exit_axis: int
    ) -> None:
        """axis, exit_axis: those of the samples, in the state and in the output."""
        self.function, self.state, self.axis = function, state, axis
        self.output_shape, self.exit_axis = torch.Size(output_shape), exit_axis
        self._pullback: Callable[[Tensor], tuple[Tensor]] | None = None
        self._pushforward: Callable[[Tensor], tuple[Tensor]] | None = None
        self._pushes = 0  # of few tangents
        self._captured_push, self._captured_pull = _captured_pair(function, state)
        self._recorded: tuple[Tensor, Tensor] | None = None
        self._rows: Tensor | None = None

    def double(self) -> Derivative:
        return Derivative(self.function, self.state.double(), self.axis, self.output_shape, self.exit_axis)

    def push(self, tangents: Tensor, route: str) -> Tensor:
        with measuring(), threads_for(tangents.numel(), tangents.device):
            return PUSHES[route](self, tangents)

    def pull(self, cotangents: Tensor, route: str) -> Tensor:
        with measuring(), threads_for(cotangents.numel(), cotangents.device):
            return PULLS[route](self, cotangents)

    def forget(self) -> None:
        """Drop the recorded graphs: they hold every intermediate value. Rows, which cost more, are kept."""
        self._pullback = self._recorded = self._pushforward = None
        for captured in (self._captured_push, self._captured_pull):
            if captured is not None:
                captured.forget()

    # -- routes

    def _push_block(self, tangents: Tensor) -> Tensor:
        load_forward_mode()
        with torch.no_grad():
            if self._captured_push is not None:
                return self._in_one_launch(self._captured_push, tangents, self._push_by_vmap, self.exit_axis)
            if len(tangents) > FEW_TANGENTS or not self._is_light:
                return self._push_by_vmap(tangents)
            self._pushes += 1
            if self._pushes == RECORD_AT:
                self._record_pushforward()
            return torch.func.vmap(self._jvp if self._pushforward is None else self._few)(tangents)

    @property
    def _is_light(self) -> bool:
        """Whether the calls cost more than the arithmetic. With many weights each tangent of a block takes as long as
        forward mode takes for all: a convolution's second derivative reads its weights anew for each."""
        weights = self.function.weights if isinstance(self.function, WhileFresh) else None
        return weights is not None and weights <= FEW_WEIGHTS

    def _few(self, tangent: Tensor) -> Tensor:
        assert self._pushforward is not None, "it is recorded before it is used"
        return self._pushforward(tangent)[0]

    def _record_pushforward(self) -> None:
        """As the derivative of the pull, where that can be had, fits in memory and gives what forward mode gives. They
        are compared by a random tangent: what a solver pushes may be zero, or too large to be squared."""

        def recorded() -> tuple[Callable[[Tensor], tuple[Tensor]], Tensor]:
            pull, anywhere = self._recorded_pullback(), self.state.new_zeros(self.output_shape)
            pushforward = torch.func.vjp(lambda cotangent: pull(cotangent)[0], anywhere)[1]
            return pushforward, torch.func.vmap(pushforward)(probe)[0]

        probe = normal((1, *self.state.shape), random_numbers("probes", 0)).to(self.state)
        try:
            made, expected = attempt(recorded), torch.func.vmap(self._jvp)(probe)
        except Exception as error:
            if not out_of_memory(error):
                raise
            self._pullback = None
            return
        if not isinstance(made, str) and self._same_product(made[1], expected, self.exit_axis):
            self._pushforward = made[0]

    def _same_product(self, found: Tensor, expected: Tensor, axis: int) -> bool:
        """Whether the first of some products (k, ...) is another one, to rounding in every sample."""
        if found.shape != expected.shape or found.dtype != expected.dtype:
            return False
        rows = by_sample(expected[0], axis)  # B, m
        off = (by_sample(found[0], axis) - rows).norm(dim=1)
        return bool((off <= SAME_PRODUCT * torch.finfo(expected.dtype).eps * rows.norm(dim=1)).all())

    def _in_one_launch(self, captured: CapturedProduct, vectors: Tensor, product: Function, axis: int) -> Tensor:
        """A product on a GPU, captured where it has few vectors and comes again. axis: of the samples in it."""
        if len(vectors) > FEW_TANGENTS:
            return product(vectors)
        found = captured.of(vectors, lambda found: self._same_product(found, product(vectors), axis))
        return product(vectors) if found is None else found

    def _push_by_vmap(self, tangents: Tensor) -> Tensor:
        return torch.func.vmap(self._jvp)(tangents)

    def _push_singly(self, tangents: Tensor) -> Tensor:
        load_forward_mode()
        with torch.no_grad():
            return torch.stack([self._jvp(tangent) for tangent in tangents])

    def _jvp(self, tangent: Tensor) -> Tensor:
        return _pushed(self.function, self.state, tangent)

    def _push_by_double_backward(self, tangents: Tensor) -> Tensor:
        with torch.enable_grad():
            leaf = self.state.detach().requires_grad_()
            output = self.function(leaf)
            if not output.requires_grad:
                return output.new_zeros(len(tangents), *output.shape)
            direction = torch.zeros_like(output, requires_grad=True)
            (pulled,) = torch.autograd.grad(output, leaf, direction, create_graph=True, materialize_grads=True)
            return torch.stack([_gradient(pulled, direction, tangent) for tangent in tangents]).detach()

    def _push_by_rows(self, tangents: Tensor) -> Tensor:
        if isinstance(self.function, WhileFresh):
            self.function.check()  # kept rows ask nobody else
        if self._rows is None:
            if reason := self.too_many_rows():
                raise InputError(f"a product from the left takes all rows of this derivative, and {reason}")
            batch, count = self.state.shape[self.axis], self._row_count
            rows = []
            for row in range(count):
                unit = torch.zeros(batch, count, 1, dtype=self.state.dtype, device=self.state.device)
                unit[:, row] = 1
                rows.append(self._pull_singly(unflatten(unit, self.output_shape, self.exit_axis))[0])
            self._rows = flatten(torch.stack(rows), self.axis).mT.contiguous()  # B, m, n
            self._recorded = None
        return unflatten(self._rows @ flatten(tangents, self.axis), self.output_shape, self.exit_axis)

    @property
    def _row_count(self) -> int:
        return self.output_shape.numel() // self.state.shape[self.axis]

    def too_many_rows(self) -> str | None:
        """Why all rows cannot be kept."""
        if self._rows is not None:
            return None
        if self._row_count > MOST_KEPT_ROWS:
            return f"{self._row_count} rows are more than {MOST_KEPT_ROWS}"
        needed = 3 * self._row_count * self.state.numel() * self.state.element_size()  # as they come, and as kept
        fits = needed <= SHARE_OF_FREE_MEMORY * free_bytes(self.state.device)
        return None if fits else f"{self._row_count} rows are more than fit in memory"

    def _pull_block(self, cotangents: Tensor) -> Tensor:
        with torch.no_grad():  # weights that require gradients would keep a second graph alive
            if self._captured_pull is None:
                return self._pull_by_vmap(cotangents)
            return self._in_one_launch(self._captured_pull, cotangents, self._pull_by_vmap, self.axis)

    def _pull_by_vmap(self, cotangents: Tensor) -> Tensor:
        return _batched(self._recorded_pullback())(cotangents)

    def _recorded_pullback(self) -> Callable[[Tensor], tuple[Tensor]]:
        if self._pullback is None:
            self._pullback = torch.func.vjp(self.function, self.state)[1]
        return self._pullback

    def _pull_singly(self, cotangents: Tensor) -> Tensor:
        if self._recorded is None:
            with torch.enable_grad():
                leaf = self.state.detach().requires_grad_()
                self._recorded = leaf, self.function(leaf)
        leaf, output = self._recorded
        return torch.stack([_gradient(output, leaf, cotangent) for cotangent in cotangents])


ALL_ROWS = "all rows"
ONE_PULL = "reverse mode, one at a time"
PUSHES: dict[str, Callable[[Derivative, Tensor], Tensor]] = {
    "forward mode": Derivative._push_block,
    "forward mode, one at a time": Derivative._push_singly,
    "double backward, one at a time": Derivative._push_by_double_backward,
    ALL_ROWS: Derivative._push_by_rows,
}
PULLS: dict[str, Callable[[Derivative, Tensor], Tensor]] = {
    "reverse mode": Derivative._pull_block,
    ONE_PULL: Derivative._pull_singly,
}


def _captured_pair(function: Function, state: Tensor) -> tuple[CapturedProduct | None, CapturedProduct | None]:
    """To push and to pull on a GPU. They do not refer to the derivative that uses them, so that it is freed as soon as
    nobody else does."""
    if state.device.type != "cuda":
        return None, None
    check = function.check if isinstance(function, WhileFresh) else lambda: None
    push = CapturedProduct(lambda: torch.func.vmap(partial(_pushed, function, state)), check)
    return push, CapturedProduct(lambda: _batched(torch.func.vjp(function, state)[1]), check)


def _pushed(function: Function, state: Tensor, tangent: Tensor) -> Tensor:
    return torch.func.jvp(function, (state,), (tangent,))[1]


def _batched(pullback: Callable[[Tensor], tuple[Tensor]]) -> Function:
    return lambda cotangents: torch.func.vmap(pullback)(cotangents)[0]


def _gradient(output: Tensor, leaf: Tensor, weight: Tensor) -> Tensor:
    if not output.requires_grad:
        return torch.zeros_like(leaf)
    return torch.autograd.grad(output, leaf, weight, retain_graph=True, materialize_grads=True)[0]


@dataclass(frozen=True)
class Routes:
    """The pair of routes that a function's products are taken by."""

    push: str = next(iter(PUSHES))
    pull: str = next(iter(PULLS))


def unflatten(block: Tensor, shape: Sequence[int], axis: int) -> Tensor:
    """(B, n, k) -> (k, *shape) with the samples on `axis` of the shape."""
    sample = [size for i, size in enumerate(shape) if i != axis]
    vectors = block.permute(2, 0, 1).reshape(block.shape[2], block.shape[0], *sample)  # k, B, ...
    return vectors.movedim(1, axis + 1).contiguous()


def flatten(vectors: Tensor, axis: int) -> Tensor:
    """(k, *shape) -> (B, n, k)."""
    moved = vectors.movedim(axis + 1, 1)  # k, B, ...
    return moved.reshape(moved.shape[0], moved.shape[1], -1).permute(1, 2, 0)


def by_sample(tensor: Tensor, axis: int) -> Tensor:
    """A state as one row for each sample: (*shape) -> (B, n), in float64."""
    return tensor.detach().movedim(axis, 0).flatten(1).double()


def attempt(product: Callable[[], Result]) -> Result | str:
    """What a function gives, or why PyTorch does not give it: an operation may lack the derivative that it needs."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="There is a performance drop")  # batching what cannot be batched
            return product()
    except SkipscopeError:
        raise
    except Exception as error:  # whatever an operation says of a derivative that it does not have: there are others
        if out_of_memory(error):
            raise
        return first_line(error)
