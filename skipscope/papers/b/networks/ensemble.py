"""Many n-shortcut networks of one architecture, trained side by side by full-batch gradient descent.

The members differ in their first weights and in their learning rates, and are one tensor (E, L, d, d). Each follows
the path that it would have followed alone, to rounding. A linear network sees the second moments of the data only, so
that its steps cost the same for any number of samples. A member that diverges is frozen, and soon costs nothing any
more. On a GPU a step is one graph, replayed.

    members = grid(["xavier", "orthogonal"], range(10), [0.01, 0.03, 0.1])
    trained = train_ensemble(spec, member_weights(spec, members), data, [member.rate for member in members], 1000)

`train_grid` is that in one call, for one initialisation.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from skipscope.cores import one_thread
from skipscope.errors import InputError
from skipscope.papers.b.networks.loss import Data, loss_of, passed, suited
from skipscope.papers.b.networks.network import ZERO_FACTOR, ShortcutSpec, initial_weights
from skipscope.training.step import WARM_UP
from skipscope.training.surroundings import WORTH_THREADS

DIVERGED_ABOVE = 1e6  # times a member's first loss
LOOK_EVERY = 50  # steps: how often a GPU is asked which members have diverged
# What can be kept of each step beside the losses, from weights and gradients (E, L, d, d): E.
NORMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "gradient_norms": lambda weights, gradient: gradient.flatten(1).norm(dim=1),
    "weight_norms": lambda weights, gradient: weights.flatten(2).norm(dim=2).mean(1),
}


@dataclass(frozen=True)
class Member:
    """In what one network of an ensemble differs from another."""

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
    norms: Mapping[str, Tensor]  # those of NORMS that were asked for: E, recorded
    snapshots: dict[int, Tensor]  # by step: E, L, d, d

    @property
    def gradient_norms(self) -> Tensor:
        """(E, recorded) of the whole gradient."""
        return self._norms("gradient_norms")

    @property
    def weight_norms(self) -> Tensor:
        """(E, recorded) Frobenius norms, mean over the layers."""
        return self._norms("weight_norms")

    def _norms(self, name: str) -> Tensor:
        if name not in self.norms:
            raise InputError(f"{name}: expected those of a training with {name}=True, got one that did not keep them")
        return self.norms[name]

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
    diverged: float = DIVERGED_ABOVE,
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
    norms = [name for name, wanted in zip(NORMS, (gradient_norms, weight_norms), strict=True) if wanted]
    plan = _Plan(spec, data, steps, recorded, kept, diverged, norms, memory)
    with one_thread(len(weights) * data.x.numel() < WORTH_THREADS):
        return _trained(plan, weights, each)


def precision_of(spec: ShortcutSpec, device: torch.device | str) -> str:
    """In which `train_grid` trains: float64, but networks with activations on a GPU are in float32."""
    return "float64" if spec.linear or torch.device(device).type == "cpu" else "float32"


def train_grid(
    spec: ShortcutSpec,
    data: Data,
    init: str,
    *,
    seeds: Iterable[int],
    rates: Iterable[float],
    steps: int,
    device: torch.device | str,
    factor: float = ZERO_FACTOR,
    **options: Any,
) -> Ensemble:
    """Every seed with every learning rate; the rates run fastest. options: of `train_ensemble`."""
    members = grid([init], seeds, rates)
    dtype = getattr(torch, precision_of(spec, device))
    weights = member_weights(spec, members, factor=factor, dtype=dtype, device=device)
    return train_ensemble(spec, weights, data, [member.rate for member in members], steps, **options)


@dataclass(frozen=True, eq=False)
class _Plan:
    """What all members have in common; see `train_ensemble` and `Ensemble`."""

    spec: ShortcutSpec
    data: Data
    steps: int
    recorded: tuple[int, ...]
    kept: tuple[int, ...]
    diverged: float
    norms: Sequence[str]  # some of NORMS
    memory: int | None


def _trained(plan: _Plan, weights: Tensor, rates: Tensor) -> Ensemble:
    steps = plan.steps
    pictures = {step: torch.full_like(weights, math.nan, device="cpu") for step in plan.kept}
    final = weights.clone()
    members = _Members(plan, weights, rates)
    every = 1 if weights.device.type == "cpu" else LOOK_EVERY
    advance = (
        _Replayed(members.step, weights.device) if weights.is_cuda and plan.spec.piecewise_linear else members.step
    )
    for step in range(steps + 1):
        if step < steps and step not in pictures:
            advance()
        else:
            gradient = members.observe()
            if step in pictures:
                pictures[step][members.index[members.going].cpu()] = members.weights[members.going].cpu()
            if step < steps:
                members.update(gradient)
        if step % every == 0 and not members.going.all():
            final[members.index] = members.weights
            members.drop_frozen()
            if isinstance(advance, _Replayed):
                advance = _Replayed(members.step, weights.device)
            if not len(members.index):
                break
    final[members.index] = members.weights
    losses = members.losses.T.cpu()
    columns = list(plan.recorded)
    return Ensemble(
        spec=plan.spec,
        rates=rates,
        steps=steps,
        recorded=plan.recorded,
        losses=losses[:, columns],
        weights=final,
        diverged_at=tuple(next(iter(row.isinf().nonzero().flatten().tolist()), None) for row in losses),
        norms={name: history.T.cpu()[:, columns] for name, history in members.norms.items()},
        snapshots=pictures,
    )


class _Members:
    """Those that are not frozen, or have been since the last look: nothing in a step waits for the device.

    Histories have one row per step: infinite losses and NaN norms where a member is frozen.
    """

    def __init__(self, plan: _Plan, weights: Tensor, rates: Tensor) -> None:
        self._plan = plan
        self.index = torch.arange(len(weights), device=weights.device)
        self.weights = weights.clone()
        self.rates = rates.to(weights)[:, None, None, None]
        self.ceiling = plan.diverged * loss_of(plan.spec, weights, plan.data, plan.memory)
        self.going = torch.ones_like(self.index, dtype=torch.bool)
        self.losses = weights.new_full((plan.steps + 1, len(weights)), math.inf, dtype=torch.float64)
        self.norms = {name: torch.full_like(self.losses, math.nan) for name in plan.norms}
        self._row = torch.zeros(1, dtype=torch.long, device=weights.device)

    def step(self) -> None:
        self.update(self.observe())

    def observe(self) -> Tensor:
        """The gradients at the present weights; members that have diverged stay as they are from here on."""
        plan = self._plan
        loss, gradient = passed(plan.spec, self.weights, plan.data, plan.memory)
        self.going.logical_and_(loss.isfinite() & (loss <= self.ceiling))
        self._keep(self.losses, loss, math.inf)
        for name, history in self.norms.items():
            self._keep(history, NORMS[name](self.weights, gradient), math.nan)
        self._row += 1
        return gradient

    def update(self, gradient: Tensor) -> None:
        gradient.masked_fill_(~self.going[:, None, None, None], 0.0)  # else 0 times infinity
        self.weights.addcmul_(self.rates, gradient, value=-1)

    def drop_frozen(self) -> None:
        kept = self.going
        self.index, self.weights, self.rates, self.ceiling, self.going = (
            values[kept] for values in (self.index, self.weights, self.rates, self.ceiling, self.going)
        )

    def _keep(self, history: Tensor, values: Tensor, otherwise: float) -> None:
        kept = torch.where(self.going, values.double(), otherwise)
        history.index_put_((self._row.expand(len(self.index)), self.index), kept)


class _Replayed:
    """A step without arguments as a CUDA graph, one launch instead of hundreds; the first ones run as they are."""

    def __init__(self, step: Callable[[], None], device: torch.device) -> None:
        self._step, self._device = step, device
        self._stream = torch.cuda.Stream(device)
        self._graph = torch.cuda.CUDAGraph()
        self._calls = 0

    def __call__(self) -> None:
        with torch.cuda.device(self._device):
            self._next()

    def _next(self) -> None:
        if self._calls < WARM_UP:
            here = torch.cuda.current_stream()
            self._stream.wait_stream(here)
            with torch.cuda.stream(self._stream):
                self._step()
            here.wait_stream(self._stream)
        else:
            if self._calls == WARM_UP:
                with torch.cuda.graph(self._graph, stream=self._stream):  # captures, computes nothing
                    self._step()
            self._graph.replay()
        self._calls += 1


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
