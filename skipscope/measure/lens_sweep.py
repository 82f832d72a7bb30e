"""All layers of a Jacobian lens from one reverse sweep through a chain of units.

A cotangent e_i at every position of the last state, pulled back link by link, is at the entry of a link

    g[s] = sum over t of d h_final[t, i] / d h[s],

row i of the lens for source position s, summed over the target positions t. One block of rows passes through all links;
each link is linearised when the block reaches it and dropped behind it, so that the memory is that of one link and one
block: about 24 numbers for each row and each number of a state. A block that does not fit is halved.

Cost: for d rows, d transposed products with every link, and one evaluation of every link per block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.linear.derivative import attempt
from skipscope.linear.memory import SHARE_OF_FREE_MEMORY, free_bytes, out_of_memory
from skipscope.measure.chain import ChainAt, Function
from skipscope.numerics import measuring

NUMBERS_PER_NUMBER = 24  # alive in a transposed product, per number of a cotangent: queries, keys, values, hidden units
LARGEST_BLOCK = 1024  # more rows at once gain nothing
CACHED_BYTES = 2 << 20  # of a block on a CPU: larger ones leave its caches, and are slower


@dataclass(frozen=True)
class Arithmetic:
    """In which floating type links are evaluated; with tf32 their float32 products may be rounded to 10 bits."""

    dtype: torch.dtype
    tf32: bool = False

    @classmethod
    def of(cls, dtype: torch.dtype | str | None, own: torch.dtype) -> Arithmetic:
        if dtype == "tf32":
            return cls(torch.float32, True)
        if dtype is None:
            return cls(own)
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point or dtype.itemsize < 2:
            raise InputError(
                f"dtype={dtype!r}: expected torch.float64, torch.float32, torch.bfloat16, torch.float16 or 'tf32'"
            )
        return cls(dtype)

    @property
    def name(self) -> str:
        return "tf32" if self.tf32 else str(self.dtype).removeprefix("torch.")

    @contextmanager
    def products(self) -> Iterator[None]:
        """Around transposed products; as it was afterwards."""
        with measuring():
            if not self.tf32:
                yield
                return
            try:
                before = torch.get_float32_matmul_precision()
            except RuntimeError:  # the user has chosen torch's newer way to say it
                torch.backends.cuda.matmul.fp32_precision = "tf32"  # `measuring` puts it back
                yield
                return
            torch.set_float32_matmul_precision("high")
            try:
                yield
            finally:
                torch.set_float32_matmul_precision(before)


class Sweep:
    """Rows of the lens at the states of one batch of prompts."""

    def __init__(self, chain: ChainAt, kept: Sequence[int], tokens: Sequence[int], arithmetic: Arithmetic) -> None:
        """kept: places of the links at whose entries the lens is wanted. tokens: source positions."""
        self.chain, self.kept, self.tokens, self.arithmetic = chain, set(kept), list(tokens), arithmetic
        self.states = chain.states(arithmetic.dtype)
        self.first_kept = min(kept)
        self.axes = [link.span.batch_axis for link in chain.chain.links]
        last = chain.chain.links[-1].span
        self.last_axis = self.axes[-1] if last.exit_axis is None else last.exit_axis
        self.width = self.states[-1].shape[-1]

    def block(self) -> int:
        """Rows that fit at once."""
        state = max(self.states, key=lambda one: one.numel())
        size = state.numel() * state.element_size()
        fitting = int(SHARE_OF_FREE_MEMORY * free_bytes(state.device) / (NUMBERS_PER_NUMBER * size))
        fast = max(8, CACHED_BYTES // size) if state.device.type == "cpu" else LARGEST_BLOCK
        return max(1, min(self.width, fast, fitting))

    def rows(self, wanted: Sequence[int]) -> dict[int, Tensor]:
        """By place: (B, rows, d) in float64, means over the source positions."""
        last = self.states[-1]
        cotangents = last.new_zeros(len(wanted), *last.shape)
        for place, row in enumerate(wanted):
            cotangents[place, ..., row] = 1
        found: dict[int, Tensor] = {}
        for place in reversed(range(self.first_kept, len(self.chain.functions))):
            cotangents = pulled(self.chain.functions[place], self.states[place], cotangents, self.arithmetic)
            if place in self.kept:
                by_sample = cotangents.movedim(self.axes[place] + 1, 1)[:, :, self.tokens]  # rows, B, sources, d
                # In float64 before the sum: sources of a long prompt add up to more digits than a float16 has.
                found[place] = by_sample.double().mean(2).transpose(0, 1)
        return found

    def blocks(self, size: int) -> Iterator[tuple[list[int], dict[int, Tensor]]]:
        """All rows in blocks of at most that many; smaller ones where memory is short."""
        start = 0
        while start < self.width:
            wanted = list(range(start, min(start + size, self.width)))
            try:
                found = self.rows(wanted)
            except Exception as error:
                if not out_of_memory(error) or size == 1:
                    raise
                size = max(1, size // 2)
                continue
            yield wanted, found
            start += len(wanted)


def pulled(function: Function, state: Tensor, cotangents: Tensor, arithmetic: Arithmetic) -> Tensor:
    """J^T of a function at a state: (rows, *exit) -> (rows, *state)."""

    def together() -> Tensor:
        with torch.no_grad():
            pullback = torch.func.vjp(function, state)[1]
            with arithmetic.products():
                found: Tensor = torch.func.vmap(pullback)(cotangents)[0]
                return found

    value = attempt(together)
    return _one_by_one(function, state, cotangents, arithmetic) if isinstance(value, str) else value


def _one_by_one(function: Function, state: Tensor, cotangents: Tensor, arithmetic: Arithmetic) -> Tensor:
    """By plain autograd, for an operation that cannot be batched."""
    with torch.enable_grad():
        leaf = state.detach().requires_grad_()
        output = function(leaf)
    with arithmetic.products():
        gradient: Callable[[Tensor], Tensor] = lambda one: torch.autograd.grad(  # noqa: E731
            output, leaf, one, retain_graph=True, materialize_grads=True
        )[0]
        return torch.stack([gradient(one) for one in cotangents])
