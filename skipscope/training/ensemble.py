"""Many n-shortcut networks of one architecture, trained side by side by full-batch gradient descent.

The members differ in their first weights and in their learning rates, and are one tensor (E, L, d, d). Each follows
the path that it would have followed alone, to rounding. A linear network sees the second moments of the data only, so
that its steps cost the same for any number of samples. A member that diverges is frozen and costs nothing any more.

    members = grid(["xavier", "orthogonal"], range(10), [0.01, 0.03, 0.1])
    trained = train_ensemble(spec, member_weights(spec, members), data, [member.rate for member in members], 1000)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.models.shortcut_loss import Data, Moments, passed, suited
from skipscope.models.shortcuts import ZERO_FACTOR, ShortcutSpec, initial_weights

DIVERGED = 1e6  # times a member's first loss


@dataclass(frozen=True)
class Member:
    """What tells one network of an ensemble from another."""

    init: str
    seed: int
    rate: float


def grid(inits: Iterable[str], seeds: Iterable[int], rates: Iterable[float]) -> list[Member]:
    """Every initialisation with every seed and every learning rate; the rates run fastest."""
    return [Member(*each) for each in itertools.product(inits, seeds, rates)]


def member_weights(
    spec: ShortcutSpec,
    members: Sequence[Member],
    *,
    factor: float = ZERO_FACTOR,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str | None = None,
) -> Tensor:
    """(E, L, d, d). Members that differ in their rates alone begin alike. factor: of the initialisation "zero"."""
    if not members:
        raise InputError("an ensemble: expected at least one member, got none")
    drawn = {
        (init, seed): initial_weights(spec, init, seed, factor=factor, dtype=dtype, device=device)
        for init, seed in {(member.init, member.seed) for member in members}
    }
    return torch.stack([drawn[member.init, member.seed] for member in members])


@dataclass(frozen=True, eq=False)
class Ensemble:
    """What became of the members. Histories are on the CPU in float64; what a frozen member has no value for is NaN."""

    spec: ShortcutSpec
    rates: Tensor  # E
    steps: int
    recorded: tuple[int, ...]  # the steps of the histories: 0 is before the first update
    losses: Tensor  # E, recorded; infinite from where a member is frozen
    weights: Tensor  # E, L, d, d: the last ones, or those at which a member was frozen
    diverged_at: tuple[int | None, ...]  # the first step with a loss that is not finite, or too large
    gradient_norms: Tensor | None  # E, recorded: of the whole gradient
    weight_norms: Tensor | None  # E, recorded: Frobenius norms, mean over the layers
    snapshots: dict[int, Tensor]  # by step: E, L, d, d

    @property
    def final_losses(self) -> Tensor:
        """(E,) after the last step; infinite for members that diverged."""
        return self.losses[:, -1]

    def __str__(self) -> str:
        lost = sum(step is not None for step in self.diverged_at)
        lowest = f"lowest loss {float(self.final_losses.min()):.6g}"
        return f"{len(self.rates)} networks of {self.spec.depth} layers, {self.steps} steps: {lowest}; {lost} diverged"


@torch.no_grad()
def train_ensemble(
    spec: ShortcutSpec,
    weights: Tensor,
    data: Data,
    rates: float | Sequence[float] | Tensor,
    steps: int,
    *,
    record: Iterable[int] | None = None,
    snapshots: Iterable[int] = (),
    diverged: float = DIVERGED,
    gradient_norms: bool = False,
    weight_norms: bool = False,
    memory: int | None = None,
) -> Ensemble:
    """From the weights (E, L, d, d), on their device and in their precision; they are left as they are.

    rates: of learning, one for each member or one for all. record: the steps whose losses and norms are kept; None: all
    of them; the last is always among them. snapshots: the steps whose weights are kept, on the CPU. diverged: a member
    is frozen when its loss is above this many times its first one. memory: bytes for a pass over the samples.
    """
    spec.check(weights)
    if weights.ndim != 4 or not len(weights):
        raise InputError(f"weights: expected the shape (members, layers, d, d), got {tuple(weights.shape)}")
    if steps < 0 or not diverged > 1:
        raise InputError(f"an ensemble: expected steps >= 0 and diverged > 1, got {steps} and {diverged}")
    each = _rates(rates, len(weights))
    recorded = _steps("record", range(steps + 1) if record is None else {*record, steps}, steps)
    kept = _steps("snapshots", snapshots, steps)
    data = suited(spec, weights, data)

    losses = weights.new_full((len(weights), len(recorded)), math.inf, dtype=torch.float64)
    gradients, norms = (
        torch.full_like(losses, math.nan) if wanted else None for wanted in (gradient_norms, weight_norms)
    )
    column = {step: index for index, step in enumerate(recorded)}
    pictures = {step: torch.full_like(weights, math.nan, device="cpu") for step in kept}
    diverged_at: list[int | None] = [None] * len(weights)
    final = weights.clone()

    # Of the members that are not frozen:
    alive = torch.arange(len(weights), device=weights.device)
    W = weights.clone()
    rate = each.to(weights)[:, None, None, None]
    ceiling = torch.full_like(rate.flatten(), math.inf)
    with _threads_for(data):
        for step in range(steps + 1):
            loss, gradient = passed(spec, W, data, memory)
            fine = loss.isfinite() & (loss <= ceiling)
            if not fine.all():
                frozen = alive[~fine]
                final[frozen] = W[~fine]
                for index in frozen.tolist():
                    diverged_at[index] = step
                alive, W, rate, ceiling, loss, gradient = (
                    values[fine] for values in (alive, W, rate, ceiling, loss, gradient)
                )
                if not len(alive):
                    break
            if step == 0:
                ceiling = diverged * loss
            if step in column:
                at = alive, column[step]
                losses[at] = loss.double()
                if gradients is not None:
                    gradients[at] = gradient.flatten(1).norm(dim=1).double()
                if norms is not None:
                    norms[at] = W.flatten(2).norm(dim=2).mean(1).double()
            if step in pictures:
                pictures[step][alive.cpu()] = W.cpu()
            if step < steps:
                W.addcmul_(rate, gradient, value=-1)
    final[alive] = W
    return Ensemble(
        spec=spec,
        rates=each,
        steps=steps,
        recorded=recorded,
        losses=losses.cpu(),
        weights=final,
        diverged_at=tuple(diverged_at),
        gradient_norms=None if gradients is None else gradients.cpu(),
        weight_norms=None if norms is None else norms.cpu(),
        snapshots=pictures,
    )


@contextmanager
def _threads_for(data: Data) -> Iterator[None]:
    """One for moments: products of small matrices gain nothing from more, and lose much on a busy machine."""
    threads = torch.get_num_threads()
    try:
        if isinstance(data, Moments):
            torch.set_num_threads(1)
        yield
    finally:
        torch.set_num_threads(threads)


def _rates(rates: float | Sequence[float] | Tensor, members: int) -> Tensor:
    each = torch.as_tensor(rates, dtype=torch.float64, device="cpu")
    each = each.expand(members).clone() if each.ndim == 0 else each
    if each.shape != (members,) or not (each.isfinite() & (each > 0)).all():
        raise InputError(f"rates: expected one or {members} learning rates above 0, got {each.tolist()}")
    return each


def _steps(name: str, given: Iterable[int], last: int) -> tuple[int, ...]:
    steps = tuple(sorted(set(given)))
    if steps and (steps[0] < 0 or steps[-1] > last):
        raise InputError(f"{name}: expected steps from 0 to {last}, got {steps[0]} to {steps[-1]}")
    return steps
