"""A short training on copies of the model: does it learn a few samples?

From the user's data SAMPLES samples of at most CLASSES classes are taken, few enough to be learnt in a few hundred
steps of BATCH samples. Each rate of the optimiser gets FIRST steps, and the GO_ON that have learnt most go on until
they have had LAST. What is learnt is the share of right answers in WINDOW steps in a row, counted while it trains,
above that of a guess: 0 for the answer that is right most often, 1 where all are right. The training ends where ENOUGH
is learnt; a rate is given up where its first steps have not learnt HOPELESS, and where a loss is not finite.

At most GO_ON + 1 copies are there at a time: the best so far, and the one that is being trained. Batch norms are as in
training and dropout is off, as elsewhere in a check.

These numbers were chosen with networks of which it is known whether they train (`docs/check.md`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from skipscope.errors import InputError
from skipscope.findings import Finding
from skipscope.measure.layers import float_tensors
from skipscope.numerics import random_numbers
from skipscope.trace.export import does_not_run, in_full_precision
from skipscope.trace.inputs import Inputs
from skipscope.trace.running_statistics import copied
from skipscope.trace.undisturbed import undisturbed, unwrapped

RATES = {"sgd": (0.01, 0.1, 0.001, 0.0001), "adam": (0.001, 0.01, 0.0001)}  # the likeliest first
MOMENTUM = 0.9
SAMPLES, CLASSES, BATCH = 1500, 10, 64
FIRST, LAST, WINDOW = 132, 528, 22  # steps
GO_ON = 2  # rates
ENOUGH = 2 / 3
HOPELESS = 0.05
DOUBTFUL = ENOUGH / 2  # learnt: more steps might make it enough


@dataclass(frozen=True)
class Attempt:
    """At one rate. steps: how many were made. learnt: 0 as a guess, 1 all. last_loss: before the last step."""

    rate: float
    steps: int
    learnt: float
    last_loss: float

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class ShortTraining:
    """attempts: one for each rate that was tried. samples, classes: that it was trained on. guess: the share of right
    answers of who always gives the most frequent label."""

    attempts: tuple[Attempt, ...]
    samples: int
    classes: int
    guess: float

    @property
    def best(self) -> Attempt:
        return max(self.attempts, key=lambda attempt: attempt.learnt)

    @property
    def learns(self) -> bool:
        return self.best.learnt >= ENOUGH

    @property
    def near(self) -> bool:
        return not self.learns and self.best.learnt >= DOUBTFUL

    @property
    def steps(self) -> int:
        """At all rates together."""
        return sum(attempt.steps for attempt in self.attempts)

    @property
    def finding(self) -> Finding:
        best = self.best
        right, needed = (self.guess + (1 - self.guess) * learnt for learnt in (best.learnt, ENOUGH))
        about = (
            f"after {best.steps} steps at the rate {best.rate:g} {right:.0%} of the answers are right (a guess has "
            f"{self.guess:.0%}, expected is at least {needed:.0%})"
        )
        words = "A short training learns" if self.learns else "A short training learns too little"
        return Finding(
            "learns" if self.learns else "does not learn",
            f"{words}: {about}.",
            value=best.learnt,
            threshold=ENOUGH,
            near=self.near,
            severity="normal" if self.learns else "problem",
            numbers={"learnt": best.learnt, "threshold": ENOUGH, "steps": best.steps, "rate": best.rate},
        )

    @property
    def note(self) -> str:
        rates = ", ".join(f"{attempt.rate:g}" for attempt in self.attempts)
        return (
            f"Copies were trained for {self.steps} steps in all, at the rates {rates}, on {self.samples} samples of "
            f"{self.classes} classes. Its verdict stands above that of the rules on the weights before training."
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "learns": self.learns,
            "learnt": self.best.learnt,
            "steps": self.steps,
            "samples": self.samples,
            "classes": self.classes,
            "guess": self.guess,
            "rates": [attempt.to_dict() for attempt in self.attempts],
        }


def train_shortly(model: nn.Module, inputs: Any, labels: Tensor, *, optimiser: str, seed: int = 0) -> ShortTraining:
    """inputs: many samples, as `check` takes a batch. labels: whole numbers, one for each of them."""
    model = unwrapped(model)
    data = Inputs.of(model, inputs)
    data.check_values(model)
    data.check_device(model)
    labels = _checked(labels, data.batch)
    if not any(weight.requires_grad for weight in model.parameters()):
        raise InputError(f"check: {type(model).__name__} has no weights to train, all of them are frozen")
    chosen = _few(labels, random_numbers("samples of a short training", seed))
    data, labels = _samples(data, chosen), labels[chosen]
    counts = labels.bincount()
    guess = float(counts.max()) / len(labels)
    runs: list[_Run] = []
    best: list[_Run] = []  # whose copies are kept
    for rate in RATES[optimiser]:
        run = _Run(model, data, labels, guess, rate, optimiser, seed)
        run.go_on(FIRST)
        runs.append(run)
        best = sorted([*best, run], key=lambda run: run.learnt, reverse=True)
        for given_up in best[GO_ON:]:
            given_up.forget()
        best = best[:GO_ON]
        if run.learnt >= ENOUGH:
            break
    for run in best:
        if run.learnt >= HOPELESS and max(each.learnt for each in best) < ENOUGH:
            run.go_on(LAST)
    return ShortTraining(tuple(run.attempt for run in runs), len(labels), int((counts > 0).sum()), guess)


def _checked(labels: Any, samples: int) -> Tensor:
    if not isinstance(labels, Tensor) or labels.dtype.is_floating_point or labels.dim() != 1:
        kind = f"a tensor of {labels.dtype} and shape {tuple(labels.shape)}" if isinstance(labels, Tensor) else labels
        raise InputError(f"check: expected labels as a tensor of whole numbers, one for each sample, got {kind}")
    if len(labels) != samples:
        raise InputError(f"check: expected one label for each of the {samples} samples to train on, got {len(labels)}")
    if samples < BATCH:
        raise InputError(
            f"check: expected at least {BATCH} samples to train on, some hundreds are better, got {samples}"
        )
    if int(labels.min()) < 0 or len(labels.unique()) < 2:
        raise InputError("check: expected labels of two classes or more, counted from 0")
    return labels.detach().long().cpu()


def _few(labels: Tensor, generator: torch.Generator) -> Tensor:
    """Numbers of samples of the most frequent classes."""
    classes = labels.bincount().argsort(descending=True, stable=True)[:CLASSES]
    among = torch.isin(labels, classes).nonzero()[:, 0]
    return among[torch.randperm(len(among), generator=generator, device="cpu")[:SAMPLES]]


def _samples(data: Inputs, chosen: Tensor) -> Inputs:
    taken = data.map(
        lambda t: t.index_select(data.axis, chosen.to(t.device)) if data.carries(t) else t.detach().clone()
    )
    return replace(taken, batch=len(chosen))


@dataclass
class _Run:
    """A copy that is trained at one rate, and can go on later."""

    of: nn.Module
    samples: Inputs
    labels: Tensor
    guess: float
    rate: float
    optimiser: str
    seed: int
    right: list[float] = field(default_factory=list)  # shares of right answers, before each step
    learnt: float = 0.0
    last_loss: float = math.nan

    def __post_init__(self) -> None:
        self.model, self.data, _ = in_full_precision(copied(self.of), self.samples)
        trained = [weight for weight in self.model.parameters() if weight.requires_grad]
        self.step: torch.optim.Optimizer = (
            torch.optim.SGD(trained, lr=self.rate, momentum=MOMENTUM)
            if self.optimiser == "sgd"
            else torch.optim.Adam(trained, lr=self.rate)
        )
        self.batches = _batches(len(self.labels), random_numbers("short training", self.seed))

    @property
    def attempt(self) -> Attempt:
        return Attempt(self.rate, len(self.right), self.learnt, self.last_loss)

    def forget(self) -> None:
        """Give up the copy and what its optimiser keeps."""
        del self.model, self.step

    def go_on(self, steps: int) -> None:
        """Until it has had so many in all."""
        with undisturbed(self.model), torch.enable_grad():
            for module in self.model.modules():
                if isinstance(module, _BatchNorm):
                    module.training = True
            while len(self.right) < steps and self.learnt < ENOUGH and not math.isinf(self.last_loss):
                self._step(next(self.batches))

    def _step(self, chosen: Tensor) -> None:
        batch = _samples(self.data, chosen)
        self.step.zero_grad()
        try:
            output = self.model(*batch.args, **batch.kwargs)
        except Exception as error:  # whatever the user's forward raises
            raise does_not_run(self.model, batch, error) from error
        scores = _scores(output, len(chosen), int(self.labels.max()) + 1)
        labels = self.labels[chosen].to(scores.device)
        loss = F.cross_entropy(scores, labels)
        self.right.append(float((scores.argmax(1) == labels).float().mean()))
        if len(self.right) >= WINDOW:
            share = sum(self.right[-WINDOW:]) / WINDOW
            self.learnt = max(self.learnt, (share - self.guess) / (1 - self.guess))
        self.last_loss = float(loss.detach()) if loss.isfinite() else math.inf
        if loss.isfinite():
            loss.backward()
            self.step.step()


def _scores(output: Any, samples: int, classes: int) -> Tensor:
    """The model's output, where a cross-entropy of it with labels can be computed."""
    scores = next((tensor for tensor in float_tensors(output) if tensor.requires_grad), None)
    if scores is None or scores.dim() != 2 or len(scores) != samples:
        shape = "none" if scores is None else f"one of shape {tuple(scores.shape)}"
        raise InputError(
            f"check: a short training needs an output of samples by classes, to compare with labels; got {shape}. "
            "Leave train_on out"
        )
    if scores.shape[1] < classes:
        raise InputError(
            f"check: the output has {scores.shape[1]} scores for each sample, expected labels from 0 to "
            f"{scores.shape[1] - 1}, got {classes - 1}"
        )
    return scores


def _batches(samples: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Numbers of samples, epoch after epoch in another order; a last batch that is not full is left out."""
    while True:
        order = torch.randperm(samples, generator=generator, device="cpu")
        yield from (chosen for chosen in order.split(BATCH) if len(chosen) == BATCH)
