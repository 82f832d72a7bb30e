"""The Jacobian lens (transformer-circuits.pub/2026/workspace): what a state in the middle of a transformer does to the
last one, on average over text.

    J_l = mean over prompts and source positions s of  sum over target positions t of  d h_final[t] / d h_l[s]

is one d x d matrix for the entry h_l of each unit. h_final is the exit of the last unit, before the final norm. In a
causal model positions before s do not see it, so that the sum is over t = s and later ones; in other models it is over
all (attribute `causal`). The mean over the positions of a prompt is one sample of J_l; prompts are independent.

lens                J_l; `row` is the dimension of h_final, `column` that of h_l
lens_error          standard error over prompts, entry by entry
relative_error      |standard error|_F / |J_l|_F
split_half_cosine   of J_l of one half of the prompts and of the other half, as vectors; halves are taken in turn
identity_cosine     trace(J_l) / (sqrt(d) |J_l|_F): 1 where the lens is the logit lens, which takes J_l for the identity
gain                |J_l|_F / sqrt(d)
history             relative_error after each step, `prompts` of them
arithmetic_error    |J_l - J_l in float64|_F / |J_l in float64|_F for some rows at the first prompt: what the floating
                    type of the computation costs
converged           relative_error is at most tol, where one is given

Accumulation is in float64, whatever the computation is in. Stopping rule: with tol, no more prompts are used once the
relative error of every layer is at most tol, from 8 prompts on. Attributes hold the versions, a fingerprint of the
forward pass, and `sweep_error`: the largest relative difference between a gradient of the model's output that the sweep
gives and that of plain backpropagation through the whole model.

All layers come from one reverse sweep (`lens_sweep`). Cost: for each prompt d transposed products with every unit,
2 P T d floating-point operations for P weights and T tokens; memory of one unit for a block of rows, and 3 L d^2
numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.measure.chain import Chain, chain_of, positions_of, require_tokens
from skipscope.measure.descriptions import described
from skipscope.measure.fingerprint import fingerprint, versions
from skipscope.measure.lens_checks import arithmetic_error, sweep_error
from skipscope.measure.lens_statistics import Statistics
from skipscope.measure.lens_sweep import Arithmetic, Sweep
from skipscope.measure.selection import (
    Samples,
    Units,
    attributes,
    chosen_units,
    exit_axis,
    labels,
    point_of,
    refuse_batch_statistics,
)
from skipscope.memory_limit import Memory, with_memory
from skipscope.numerics import random_numbers
from skipscope.progress import Progress, called, with_progress
from skipscope.trace import Point, Trunk
from skipscope.trace.freshness import asked_once

if TYPE_CHECKING:
    import xarray

AT_ONCE = 8  # prompts in a step; the stopping rule is asked after each
LEAST_PROMPTS = 8  # that the stopping rule needs for a standard error


@with_progress
@asked_once()
@with_memory
def lens(
    trunk: Trunk,
    prompts: Any,
    *,
    units: Units = None,
    samples: Samples = None,
    tokens: Sequence[int] | slice | None = None,
    tol: float | None = None,
    dtype: torch.dtype | str | None = None,
    compared_rows: int = 8,
    seed: int = 0,
    memory: Memory | None = None,
    progress: Progress | bool | None = None,
) -> xarray.Dataset:
    """Average over prompts: a batch of model inputs or a point, or a list or iterator of batches; dimensions `unit`,
    `row` and `column`.

    units: at whose entries; names or indices, all that follow one another by default.
    samples: how many prompts at most; of a single batch also which. tokens: source positions, all by default.
    tol: the stopping rule's relative standard error; by default all prompts are used.
    dtype: to compute in, the model's own by default; "tf32" for float32 with products in TF32 on a GPU.
    compared_rows: rows that are computed again in float64 for `arithmetic_error`; 0 for none. seed: which rows.
    """
    _check(tol, compared_rows)
    refuse_batch_statistics(trunk.model)
    batches = _batches(trunk, prompts, samples)
    first, total = next(batches, (None, 0))
    if first is None:
        raise InputError("prompts: expected at least one batch of prompts, got none")
    work = _Lens(trunk, first, units, tokens, Arithmetic.of(dtype, first.entry(trunk.units[0]).dtype))
    tell = called(progress)
    found: Point | None = first
    while found is not None:
        for piece in _pieces(found):
            work.add(piece)
            if tell is not None:
                tell(work.statistics.prompts, max(total, work.statistics.prompts))
            if work.is_precise(tol):
                break
        if found is first:  # now: a trunk of named units can run at its last point only
            work.check(compared_rows, seed)
        if work.is_precise(tol):
            break
        found, total = next(batches, (None, 0))
    return work.dataset(tol, seed)


def _check(tol: float | None, compared_rows: int) -> None:
    if tol is not None and not 0 < tol < 1:
        raise InputError(f"tol={tol}: expected a relative standard error, above 0 and below 1")
    if compared_rows < 0:
        raise InputError(f"compared_rows={compared_rows}: expected how many rows to compare, from 0 on")


def _batches(trunk: Trunk, prompts: Any, samples: Samples) -> Iterator[tuple[Point, int]]:
    """Points, and how many prompts there are in all as far as that is known."""
    if not isinstance(prompts, list | Iterator):
        point = point_of(trunk, prompts, samples)
        yield point, point.batch
        return
    if samples is not None and not isinstance(samples, int):
        raise InputError(f"samples={samples!r}: expected how many prompts at most, since there are several batches")
    left = samples
    known = sum(len(one) for one in prompts if isinstance(one, Tensor)) if isinstance(prompts, list) else 0
    for batch in prompts:
        point = point_of(trunk, batch)
        if left is not None:
            point = point_of(trunk, point, min(left, point.batch))
            left -= point.batch
        yield point, min(known, samples) if samples is not None else known
        if left == 0:  # the next batch is not even read
            return


def _pieces(point: Point) -> Iterator[Point]:
    """A few prompts at a time; all of them where the model can only run so."""
    for start in range(0, point.batch, AT_ONCE):
        piece = _some(point, range(start, min(start + AT_ONCE, point.batch)))
        yield piece
        if piece is point:
            return


def _some(point: Point, samples: Sequence[int]) -> Point:
    taken = point.take(list(samples)) if len(samples) < point.batch else point
    return point if taken is None else taken


class _Lens:
    """The running average over prompts."""

    def __init__(
        self,
        trunk: Trunk,
        point: Point,
        units: Units,
        tokens: Sequence[int] | slice | None,
        arithmetic: Arithmetic,
    ) -> None:
        self.trunk, self.first, self.arithmetic = trunk, point, arithmetic
        self.chain: Chain = chain_of(trunk, point)
        line = [link.unit for link in self.chain.links if link.unit is not None]
        self.units = line if units is None else chosen_units(trunk, units)
        if not self.units:
            raise InputError("units=[] names no unit; leave it out for all")
        self.places = [self.chain.place(unit) for unit in self.units]
        if len(set(self.places)) < len(self.places):
            raise InputError("units: expected each unit once")
        count, self.width = require_tokens(trunk, [*self.units, line[-1]], "lens")
        if arithmetic.dtype != point.entry(line[0]).dtype and not all(unit.in_any_type for unit in line):
            raise InputError(f"{type(trunk.model).__name__} can only be evaluated in its own type; leave dtype= out")
        self.tokens, self.all_tokens = positions_of(count, tokens), tokens is None
        self.statistics = Statistics(self.places, self.width, point.entry(line[0]).device)
        self.history: list[tuple[int, Tensor]] = []
        self.line = line
        self.arithmetic_error: Tensor | None = None
        self.seen: dict[str, Any] = {}  # attributes

    def add(self, point: Point) -> None:
        sweep = Sweep(self.chain.at(point), self.places, self.tokens, self.arithmetic)
        if not torch.isfinite(sweep.states[-1]).all():
            where = point.first_not_finite()
            first = f", first in {where}" if where else f" in {self.arithmetic.name}"
            raise InputError(f"the last state has NaN or infinite entries{first}; check weights, prompts and dtype=")
        for rows, found in sweep.blocks(sweep.block()):
            self.statistics.add_rows(rows, found)
        self.statistics.count(point.batch)
        self.history.append((self.statistics.prompts, self.statistics.relative_error().cpu()))

    def is_precise(self, tol: float | None) -> bool:
        if tol is None or self.statistics.prompts < LEAST_PROMPTS:
            return False
        return bool((self.history[-1][1] <= tol).all())

    def check(self, compared_rows: int, seed: int) -> None:
        """How far the lens can be trusted, seen at the first prompt."""
        alone = _some(self.first, [0])
        at = self.chain.at(alone)
        if compared_rows:
            order = torch.randperm(self.width, generator=random_numbers("compared rows", seed), device="cpu")
            rows = sorted(order[:compared_rows].tolist())
            self.arithmetic_error = arithmetic_error(at, self.places, self.tokens, self.arithmetic, rows)
        last = alone.exit(self.line[-1]).movedim(exit_axis(self.line[-1], self.line[-1]), 0)[0]
        self.seen = {
            "causal": int(at.causal()),
            "sweep_error": sweep_error(self.chain, alone, self.units),
            **fingerprint(last),
        }

    def dataset(self, tol: float | None, seed: int) -> xarray.Dataset:
        import xarray

        mean, relative = self.statistics.mean, self.statistics.relative_error()
        size = torch.linalg.matrix_norm(mean)
        whole, one = ("unit", "row", "column"), ("unit",)
        values: dict[str, tuple[tuple[str, ...], Tensor]] = {
            "lens": (whole, mean),
            "lens_error": (whole, self.statistics.error()),
            "relative_error": (one, relative),
            "split_half_cosine": (one, self.statistics.split_half_cosine()),
            "identity_cosine": (one, mean.diagonal(dim1=1, dim2=2).sum(1) / (self.width**0.5 * size)),
            "gain": (one, size / self.width**0.5),
            "history": (("step", "unit"), torch.stack([error for _, error in self.history])),
        }
        if self.arithmetic_error is not None:
            values["arithmetic_error"] = (one, self.arithmetic_error)
        if tol is not None:
            values["converged"] = (one, relative <= tol)
        data = {name: (dimensions, value.cpu().numpy()) for name, (dimensions, value) in values.items()}
        coordinates = {**labels(self.units), "prompts": ("step", [prompts for prompts, _ in self.history])}
        return described(xarray.Dataset(data, coordinates, self._about(tol, seed)))

    def _about(self, tol: float | None, seed: int) -> dict[str, Any]:
        stopped = "the tolerance was reached" if self.is_precise(tol) else "all prompts were used"
        return attributes(
            "lens",
            self.trunk,
            prompts=self.statistics.prompts,
            tokens="all" if self.all_tokens else ", ".join(map(str, self.tokens)),
            stopped=stopped,
            **({} if tol is None else {"tol": tol}),
            computed_in=self.arithmetic.name,
            accumulated_in="float64",
            seed=seed,
            model=type(self.trunk.model).__name__,
            versions=versions(self.trunk.model),
            **self.seen,
        )
