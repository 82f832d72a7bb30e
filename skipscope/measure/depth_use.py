"""How a network uses its depth: what each unit does to the state, and what the output loses without it.

Of the units that follow one another, with entry h, skip S(h), branch F(h) and exit h', at each position (token) of each
sample. Of several streams (hyper-connections) a state is that of all streams of a position: a skip mixes them. States
that have no tokens, such as images, count as one position.

influence          1 - cos(h, h'): block influence (ShortGPT, arXiv 2403.03853) is its mean
branch_share       |F(h)| / |S(h)|; with an identity skip S(h) is the state h itself
branch_cosine      cos(F(h), S(h))
skip_kl            KL(p || p without the unit's branch), in nats: exit = tail(S(h)), the rest of the model as it is
skip_loss_change   loss without the branch - loss, where targets are known
state_norm         |h| of a state: every unit's entry, then the last exit
lens_kl            logit lens: KL(p || softmax(head(h))), in nats, p the model's own distribution; 0 for the last state
loss               -log p(target)

and, over all positions and again without the first one, which often holds much larger numbers (dimension `scope`):

block_influence      the mean of `influence` over the positions
growth               the geometric mean over the positions of |h'| / |h|
total_growth         the mean of |h| over the positions, over that of the first state
massive_ratio        max |h_i| / median |h_i| over all entries of the state (massive activations, arXiv 2402.17762)
massive_value        the entry of the largest magnitude, with its sign
massive_dimension, massive_position    where it is

The two definitions of growth differ: `growth` is that of a typical token in one unit, `total_growth` that of the mean
size since the first state, which a few large tokens can decide.

States are those of the model's own type; from there everything is in float64. Cost: a forward pass, one head for each
state, and for the effect of skipping one pass from each unit to the end: L^2 / 2 evaluations of a unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy
import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.measure.chain import (
    Chain,
    by_position,
    chain_of,
    exit_of,
    makes_logits,
    positions_of,
    tokens_of,
    tokens_of_streams,
)
from skipscope.measure.descriptions import described
from skipscope.measure.output_effects import Effects
from skipscope.measure.predictions import Targets, next_tokens
from skipscope.measure.selection import (
    Samples,
    Units,
    attributes,
    chosen_units,
    exit_axis,
    labels,
    point_of,
    refuse_batch_statistics,
    sample_indices,
)
from skipscope.memory_limit import Memory, with_memory
from skipscope.progress import Progress, called, with_progress
from skipscope.trace import Point, Trunk, Unit
from skipscope.trace.freshness import asked_once

if TYPE_CHECKING:
    import xarray

SCOPES = ("all", "without the first")


@with_progress
@asked_once()
@with_memory
def depth_use(
    trunk: Trunk,
    x: Any,
    *,
    units: Units = None,
    samples: Samples = None,
    tokens: Sequence[int] | slice | None = None,
    targets: Any = None,
    head: bool | None = None,
    skipping: bool = True,
    memory: Memory | None = None,
    progress: Progress | bool | None = None,
) -> xarray.Dataset:
    """Measure at a batch of model inputs or a point; dimensions `unit`, `state`, `sample`, `position` and `scope`.

    units: names or indices, in their order; by default those that follow one another, none inside another.
    samples: how many of the first, or which of the batch; all by default. tokens: which positions; all by default.
    targets: for `loss`, classes of shape (batch,), or (batch, tokens) with what each position should predict and -100
    where nothing counts. By default the next tokens, where the batch has token ids and the model is causal.
    head: whether the model's output are logits. By default they are taken for logits where the head multiplies by a
    matrix and gives another number of values than the state has channels.
    skipping: also the effect of each unit's branch on the output.
    """
    import xarray

    refuse_batch_statistics(trunk.model)
    chosen = _chosen(trunk, units)
    given = point_of(trunk, x)
    indices, point = sample_indices(given.batch, samples), point_of(trunk, given, samples)
    chain, reason = _chain(trunk, point, chosen)
    count = tokens_of(chosen) or tokens_of_streams(chain, chosen)
    if tokens is not None and count is None:
        raise InputError(
            f"tokens={tokens!r}: expected states of shape (tokens, channels), those of {chosen[0].name} are "
            f"{chosen[0].entry_shape}; leave tokens= out"
        )
    positions = positions_of(count or 1, tokens)
    panel = _Panel(chosen, point, count, positions)
    data = panel.measured()
    about: dict[str, Any] = {"positions": "tokens" if count else "whole states", "head": reason, "targets": "none"}
    if chain is not None:
        reason = _why_no_logits(chain, chosen[0], count, head)
        about["head"] = reason or f"logits of {chain.head.exit_shape[-1] if chain.head else 0} classes"
    if head and reason:
        raise InputError(f"head=True, but there are no logits: {reason}")
    if targets is not None and reason:
        raise InputError(f"targets= are given, but there is no distribution to compare them with: {reason}")
    if chain is not None and not reason:
        at = chain.at(point)
        asked = Targets.given(targets, given.batch, indices) if targets is not None else None
        known = asked or next_tokens(trunk, x, at, indices)
        about["targets"] = known.about
        data |= Effects(at, point, chosen, positions, known).measured(skipping, called(progress))
    return described(
        xarray.Dataset(
            data,
            {
                **labels(chosen),
                "state": [*(unit.name for unit in chosen), f"exit of {chosen[-1].name}"],
                "sample": indices,
                "position": positions,
                "scope": panel.scopes,
            },
            attributes("depth_use", trunk, dtype=str(point.entry(chosen[0]).dtype).removeprefix("torch."), **about),
        )
    )


def _chosen(trunk: Trunk, units: Units) -> list[Unit]:
    default = [unit.index for stage in trunk.stages for unit in stage.units]
    chosen = chosen_units(trunk, sorted(default) if units is None else units)
    if not chosen:
        raise InputError("units=[] names no unit; leave it out for all")
    if [unit.index for unit in chosen] != sorted({unit.index for unit in chosen}):
        raise InputError(f"units: expected each once and in their order, got {', '.join(unit.name for unit in chosen)}")
    return chosen


def _chain(trunk: Trunk, point: Point, chosen: Sequence[Unit]) -> tuple[Chain | None, str]:
    """The chain, or why there is none."""
    try:
        chain = chain_of(trunk, point)
    except InputError as error:
        return None, str(error)
    for unit in chosen:
        chain.place(unit)
    return chain, ""


def _why_no_logits(chain: Chain, first: Unit, tokens: int | None, head: bool | None) -> str:
    """Empty where the head makes one distribution of each sample, or of each position."""
    if chain.head is None:
        return f"no head: {chain.why_no_head}"
    if head is False:
        return "no logits: head=False"
    shape = chain.head.exit_shape
    if len(shape) == 2 and tokens is None:
        return (
            f"no logits: the model's output has the shape {shape} per sample, and the states of {first.name}, of shape "
            f"{first.entry_shape}, have no tokens"
        )
    if len(shape) not in (1, 2) or (len(shape) == 2 and shape[0] != tokens):
        return f"no logits: the model's output has the shape {shape} per sample, not (classes,) or (tokens, classes)"
    width = 0 if tokens is None and len(first.entry_shape) > 2 else first.entry_shape[-1]
    if head is None and not makes_logits(chain.head, width):
        return f"no logits: the model's output of shape {chain.head.exit_shape} looks like features; head=True if not"
    return ""


class _Panel:
    """What needs states alone."""

    def __init__(self, units: Sequence[Unit], point: Point, tokens: int | None, positions: list[int]) -> None:
        self.units, self.point, self.tokens, self.positions = units, point, tokens, positions
        after_first = [place for place, position in enumerate(positions) if position != 0]
        by_scope = {SCOPES[0]: list(range(len(positions)))}
        if tokens is not None and 0 < len(after_first) < len(positions):
            by_scope[SCOPES[1]] = after_first
        self.scopes = list(by_scope)
        self.places = [torch.tensor(places, device="cpu") for places in by_scope.values()]

    def measured(self) -> dict[str, Any]:
        of_units = [self._unit(unit) for unit in self.units]
        of_states = [self._state(state, unit) for state, unit in self._states()]
        found: dict[str, Any] = {}
        for name in ("influence", "branch_share", "branch_cosine"):
            found[name] = (("unit", "sample", "position"), _stacked(of_units, name))
        for name in ("block_influence", "growth"):
            found[name] = (("unit", "sample", "scope"), _stacked(of_units, name))
        found["state_norm"] = (("state", "sample", "position"), _stacked(of_states, "state_norm"))
        means = _stacked(of_states, "mean_norm")
        found["total_growth"] = (("state", "sample", "scope"), means / means[:1])
        for name in ("massive_ratio", "massive_value", "massive_dimension", "massive_position"):
            found[name] = (("state", "sample", "scope"), _stacked(of_states, name))
        return found

    def _states(self) -> list[tuple[Tensor, tuple[int, ...]]]:
        """Every unit's entry, then the last exit, by position, with the shape of one sample."""
        entries = [(self._seen(self.point.entry(unit), unit.batch_axis), unit.entry_shape) for unit in self.units]
        return [*entries, (self._seen(*exit_of(self.point, self.units[-1])), self.units[-1].exit_shape)]

    def _seen(self, state: Tensor, axis: int) -> Tensor:
        if not torch.isfinite(state).all():
            where = self.point.first_not_finite()
            raise InputError(f"a state has NaN or infinite entries, first in {where}; check the weights and the batch")
        return by_position(state, axis, self.tokens)[:, self.positions].cpu()

    def _unit(self, unit: Unit) -> dict[str, Tensor]:
        before, after = self._seen(self.point.entry(unit), unit.batch_axis), self._seen(*exit_of(self.point, unit))
        with torch.no_grad():
            branch, skip = (
                self._seen(path.bound(self.point)(self.point.entry(unit)), exit_axis(unit, path))
                for path in (unit.branch, unit.skip)
            )
        alike = before.shape == after.shape
        nan = before.new_full(before.shape[:2], float("nan"))
        influence = 1 - _cosine(before, after) if alike else nan
        ratio = after.norm(dim=-1) / before.norm(dim=-1) if alike else nan
        return {
            "influence": influence,
            "branch_share": branch.norm(dim=-1) / skip.norm(dim=-1),
            "branch_cosine": _cosine(branch, skip),
            "block_influence": self._over(influence),
            "growth": self._over(ratio.log()).exp(),
        }

    def _state(self, state: Tensor, shape: tuple[int, ...]) -> dict[str, Tensor]:
        norms = state.norm(dim=-1)
        found: dict[str, list[Any]] = {}
        for places in self.places:
            inside = state[:, places]  # B, positions, d
            flat = inside.flatten(1)
            where = flat.abs().argmax(1)
            largest = flat.gather(1, where[:, None])[:, 0]
            middle = torch.from_numpy(numpy.median(flat.abs().numpy(), axis=1))
            position = torch.tensor(self.positions, device="cpu")[places[where // state.shape[-1]]]
            # Of an image (channels, height, width) the channel; the last axis of tokens is that of the channels, which
            # are those of each stream.
            dimension = where % (state.shape[-1] if self.tokens is None else shape[-1])
            per_channel = shape[1] * shape[2] if self.tokens is None and len(shape) == 3 else 1
            one = {
                "massive_ratio": largest.abs() / middle,
                "massive_value": largest,
                "massive_dimension": dimension // per_channel,
                "massive_position": position,
            }
            for name, value in one.items():
                found.setdefault(name, []).append(value)
        scoped = {name: torch.stack(values, 1) for name, values in found.items()}
        return {"state_norm": norms, "mean_norm": self._over(norms), **scoped}

    def _over(self, values: Tensor) -> Tensor:
        """Means over the positions of each scope: (B, positions) -> (B, scopes)."""
        return torch.stack([values[:, places].mean(1) for places in self.places], 1)


def _stacked(rows: Sequence[dict[str, Tensor]], name: str) -> numpy.ndarray:
    return torch.stack([row[name] for row in rows]).numpy()


def _cosine(a: Tensor, b: Tensor) -> Tensor:
    """(..., n), (..., n) -> (...); NaN where one is zero."""
    return (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1))
