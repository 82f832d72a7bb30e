"""A short training on copies of the model: does it learn a few samples?

From the user's data SAMPLES samples of at most CLASSES classes are taken, few enough to be learnt in a few hundred
steps of BATCH samples. Each rate of the optimiser gets FIRST steps. The GO_ON that have learnt most go on until they
have had LAST steps, and the best of them, where it is not clear by then, until it has had LONGEST. What is learnt is
the share of right answers in WINDOW steps in a row, counted while it trains, above that of a guess: 0 for the answer
that is right most often, 1 where all are right. The training ends where QUICKLY is learnt in the first steps, or ENOUGH
later; a rate is given up where its first steps have not learnt HOPELESS, and where a loss is not finite.

At most GO_ON + 1 copies are there at a time, with their gradients and what the optimiser keeps: the best so far and the
one that is being trained; of a model in half precision they are in float32. Batch norms are as in training and dropout
is off, as elsewhere in a check.

These numbers were chosen with networks of which it is known whether they train (`docs/check-accuracy.md`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from skipscope.check.diagnoses import are_probabilities
from skipscope.check.states import checked_model, in_training, output_of, refuse_infinite
from skipscope.data import Split
from skipscope.errors import InputError, first_line
from skipscope.findings import Finding
from skipscope.linear.memory import out_of_memory
from skipscope.measure.layers import float_tensors
from skipscope.numerics import random_numbers
from skipscope.trace.export import full_precision_copy
from skipscope.trace.inputs import Inputs
from skipscope.trace.read_weights import halves_of
from skipscope.trace.running_statistics import copied
from skipscope.trace.undisturbed import undisturbed
from skipscope.wording import counted

RATES = {"sgd": (0.01, 0.1, 0.001, 0.0001), "adam": (0.001, 0.01, 0.0001)}  # the likeliest first
MOMENTUM = 0.9
SAMPLES, CLASSES, BATCH = 1500, 10, 64
FIRST, LAST, LONGEST, WINDOW = 132, 528, 1056, 22  # steps
GO_ON = 2  # rates
QUICKLY, ENOUGH = 2 / 3, 0.8  # learnt: within FIRST steps, or later
HOPELESS, DOUBTFUL = 0.05, 1 / 3  # learnt: below it nothing is to be hoped for; from it on more steps might do
ONE_SIDED = 0.98  # of the samples with one label: the others are too few to show whether anything is learnt
DOES_NOT_LEARN = "does not learn"
LEAVE_OUT = "leave the short training out"


def needed_after(steps: int) -> float:
    """How much has to be learnt."""
    return QUICKLY if steps <= FIRST else ENOUGH


@dataclass(frozen=True)
class Attempt:
    """The training at one rate. steps: how many were made. learnt: 0 as a guess, 1 all. last_loss: before the last
    step, or infinite where the loss of the next one is not finite."""

    rate: float
    steps: int
    learnt: float
    last_loss: float

    @property
    def needed(self) -> float:
        return needed_after(self.steps)

    @property
    def learns(self) -> bool:
        return self.learnt >= self.needed

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class ShortTraining:
    """attempts: one for each rate that was tried. samples, classes: that it was trained on. guess: the share of right
    answers where the most frequent label is always given. probabilities: the model gives them, not scores."""

    attempts: tuple[Attempt, ...]
    samples: int
    classes: int
    guess: float
    probabilities: bool = False

    @property
    def best(self) -> Attempt:
        return max(self.attempts, key=lambda attempt: (attempt.learns, attempt.learnt, attempt.steps))

    @property
    def learns(self) -> bool:
        return self.best.learns

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
        if not self.learns and all(math.isinf(attempt.last_loss) for attempt in self.attempts):
            longest = max(attempt.steps for attempt in self.attempts)
            after = f"for more than {counted(longest, 'step')}" if longest else "before the first step"
            sentence = f"A short training fails: at no rate is the loss finite {after}."
        else:
            digits = max(0, math.ceil(-math.log10(1 - self.guess)) - 1)  # enough to tell a guess from what is needed
            shares = (self.guess + (1 - self.guess) * learnt for learnt in (best.learnt, 0.0, best.needed))
            right, guess, needed = (f"{share:.{digits}%}" for share in shares)
            sentence = (
                f"A short training learns{'' if self.learns else ' too little'}: within {counted(best.steps, 'step')} "
                f"at the rate {best.rate:g} up to {right} of the answers are right (a guess has {guess}, expected: at "
                f"least {needed})."
            )
        return Finding(
            "learns" if self.learns else DOES_NOT_LEARN,
            sentence,
            value=best.learnt,
            threshold=best.needed,
            near=self.near,
            severity="normal" if self.learns else "problem",
            numbers={"learnt": best.learnt, "threshold": best.needed, "steps": best.steps, "rate": best.rate},
        )

    @property
    def note(self) -> str:
        rates = ", ".join(f"{attempt.rate:g}" for attempt in self.attempts)
        loss = " The output is probabilities, and the loss took their logarithm." if self.probabilities else ""
        return (
            f"Copies were trained for {counted(self.steps, 'step')} in all (rate: {rates}) on {self.samples} samples "
            f"of {self.classes} classes.{loss} What they learn counts more than the rules on the weights before "
            "training."
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "learns": self.learns,
            "learnt": self.best.learnt,
            "steps": self.steps,
            "samples": self.samples,
            "classes": self.classes,
            "guess": self.guess,
            "probabilities": self.probabilities,
            "attempts": [attempt.to_dict() for attempt in self.attempts],
        }


@dataclass(frozen=True)
class Lesson:
    """What copies of the model are trained on. classes: whose scores an output needs for each sample, or more.
    in_batch: which tensors of the inputs have an entry for each sample. probabilities: what the model gives, where it
    is not scores."""

    model: nn.Module
    inputs: Inputs
    labels: Tensor
    classes: int
    in_batch: tuple[bool, ...]
    probabilities: bool

    @classmethod
    def of(cls, model: nn.Module, train_on: Any, seed: int = 0) -> Lesson:
        """train_on: many samples, as `check` takes a batch, and as many labels; or images with both. What does not fit
        is refused here: the model answers one batch."""
        model = checked_model(model)
        if isinstance(train_on, Split):
            few = few_samples(train_on.labels, seed)
            train_on = train_on.images(few), train_on.labels[few]
        if not isinstance(train_on, tuple | list) or len(train_on) != 2:
            came = f"{len(train_on)} entries" if isinstance(train_on, tuple | list) else type(train_on).__name__
            raise InputError(
                "check: expected train_on=(samples, labels), the data of a short training and its labels, with some "
                f"hundred samples in the form of a batch; got {came}"
            )
        if not any(weight.requires_grad for weight in model.parameters()):
            raise InputError(f"check: {type(model).__name__} has no weights to train, all of them are frozen")
        inputs = Inputs.of(model, train_on[0])
        inputs.check_values(model)
        inputs.check_device(model)
        labels = _checked(train_on[1], inputs.batch)
        chosen = few_samples(labels, seed)
        if len(chosen) < BATCH:
            raise InputError(
                f"check: expected at least {BATCH} samples to train on, some hundreds are better, got {len(chosen)}"
                f"{'' if len(chosen) == len(labels) else f' of the {CLASSES} most frequent of all classes'}"
            )
        if len(labels[chosen].unique()) < 2:
            raise InputError("check: expected samples of two classes or more to train on, none of them so rare")
        in_batch = tuple(inputs.carries(tensor) for tensor in inputs.tensors())
        inputs = _samples(inputs, chosen, in_batch)
        refuse_infinite(inputs)
        inputs = inputs.floating(torch.float32) if halves_of(model) else inputs
        lesson = cls(model, inputs, labels[chosen], int(labels.max()) + 1, in_batch, probabilities=False)
        if lesson.guess > ONE_SIDED:
            raise InputError(
                f"check: {lesson.guess:.1%} of the samples to train on have the label {lesson.most_frequent}, so that "
                f"little is left to learn; give samples of which at most {ONE_SIDED:.0%} have the same label, or "
                f"{LEAVE_OUT}"
            )
        copy = lesson.copy()
        with undisturbed(copy), torch.enable_grad():
            scores = lesson.scores(copy, torch.arange(BATCH, device="cpu"))
        return replace(lesson, probabilities=are_probabilities(scores.detach()))

    @property
    def counts(self) -> Tensor:
        """How many samples each class has."""
        return self.labels.unique(return_counts=True)[1]

    @property
    def guess(self) -> float:
        return float(self.counts.max()) / len(self.labels)

    @property
    def most_frequent(self) -> int:
        return int(self.labels.mode().values)

    def copy(self) -> nn.Module:
        """Of the model, in float32 where that is in half precision."""
        try:
            with torch.no_grad():
                return full_precision_copy(self.model) if halves_of(self.model) else copied(self.model)
        except InputError as error:
            raise InputError(f"check: {error}; {LEAVE_OUT}") from error

    def scores(self, model: nn.Module, chosen: Tensor) -> Tensor:
        inputs = _samples(self.inputs, chosen, self.in_batch)
        return _scores(output_of(model, inputs), len(chosen), self.classes)


def train_shortly(lesson: Lesson, *, optimiser: str, seed: int = 0) -> ShortTraining:
    copies: list[TrainedCopy] = []
    kept: list[TrainedCopy] = []
    for rate in RATES[optimiser]:
        copies.append(TrainedCopy(lesson, rate, optimiser, seed))
        copies[-1].go_on(FIRST, QUICKLY)
        if copies[-1].learnt >= QUICKLY:
            kept = []
            break
        hopeful = [each for each in (*kept, copies[-1]) if each.learnt >= HOPELESS and not each.diverged]
        kept = sorted(hopeful, key=lambda each: each.learnt, reverse=True)[:GO_ON]
        for each in copies:
            if each not in kept:
                each.forget()
    for each in kept:
        if max(other.learnt for other in kept) < ENOUGH:
            each.go_on(LAST, ENOUGH)
    going_on = [each for each in kept if not each.diverged]
    best = max(going_on, key=lambda each: each.learnt, default=None)
    if best is not None and DOUBTFUL <= best.learnt < ENOUGH:
        best.go_on(LONGEST, ENOUGH)
    attempts = tuple(each.attempt for each in copies)
    return ShortTraining(attempts, len(lesson.labels), len(lesson.counts), lesson.guess, lesson.probabilities)


def _checked(labels: Any, samples: int) -> Tensor:
    numbers = isinstance(labels, Tensor) and not (labels.dtype.is_floating_point or labels.dtype.is_complex)
    if not numbers or labels.dim() != 1 or labels.is_meta:
        shown = (
            f"{labels.dtype} of shape {tuple(labels.shape)}" if isinstance(labels, Tensor) else type(labels).__name__
        )
        raise InputError(f"check: expected labels as a tensor of whole numbers, one for each sample, got {shown}")
    if len(labels) != samples:
        raise InputError(f"check: expected one label for each of the {samples} samples to train on, got {len(labels)}")
    labels = labels.detach().cpu().long()
    if int(labels.min()) < 0 or len(labels.unique()) < 2:
        raise InputError("check: expected labels of two classes or more, counted from 0")
    return labels


def few_samples(labels: Tensor, seed: int = 0) -> Tensor:
    """Numbers of those that a short training takes: of the most frequent classes, in random order."""
    classes, counts = labels.unique(return_counts=True)
    among = torch.isin(labels, classes[counts.argsort(descending=True, stable=True)[:CLASSES]]).nonzero()[:, 0]
    generator = random_numbers("samples of a short training", seed)
    return among[torch.randperm(len(among), generator=generator, device="cpu")[:SAMPLES]]


def _samples(data: Inputs, chosen: Tensor, in_batch: Sequence[bool]) -> Inputs:
    """in_batch: decided once for all the samples, since a constant may be as long as some choice of them."""
    of_each = iter(in_batch)

    def taken(tensor: Tensor) -> Tensor:
        if next(of_each):
            return tensor.detach().index_select(data.axis, chosen.to(tensor.device))
        return tensor.detach().clone()

    return replace(data.map(taken), batch=len(chosen))


class TrainedCopy:
    """A copy that is trained at one rate, and can go on later."""

    def __init__(self, lesson: Lesson, rate: float, optimiser: str, seed: int) -> None:
        self.lesson, self.rate, self.model = lesson, rate, lesson.copy()
        self.trained = [weight for weight in self.model.parameters() if weight.requires_grad]
        self.optimiser: torch.optim.Optimizer = (
            torch.optim.SGD(self.trained, lr=rate, momentum=MOMENTUM)
            if optimiser == "sgd"
            else torch.optim.Adam(self.trained, lr=rate)
        )
        self.batches = _batches(len(lesson.labels), random_numbers("short training", seed))
        self.right: list[float] = []  # shares of right answers before each step,
        self.guessed: list[float] = []  # and where the most frequent label is always given
        self.learnt, self.last_loss = 0.0, math.nan

    @property
    def attempt(self) -> Attempt:
        return Attempt(self.rate, len(self.right), self.learnt, self.last_loss)

    @property
    def diverged(self) -> bool:
        return math.isinf(self.last_loss)

    def forget(self) -> None:
        """Give up the copy and what its optimiser keeps."""
        self.__dict__.pop("model", None)
        self.__dict__.pop("optimiser", None)
        self.trained = []

    def go_on(self, steps: int, enough: float) -> None:
        """Until it has had so many in all, or has learnt enough."""
        with in_training(self.model):
            while len(self.right) < steps and self.learnt < enough and not self.diverged:
                self._step(next(self.batches))

    def _step(self, chosen: Tensor) -> None:
        scores = self.lesson.scores(self.model, chosen)
        labels = self.lesson.labels[chosen].to(scores.device)
        if self.lesson.probabilities:
            loss = F.nll_loss(scores.clamp_min(torch.finfo(scores.dtype).tiny).log(), labels)
        else:
            loss = F.cross_entropy(scores, labels)
        if not loss.isfinite():
            self.last_loss = math.inf
            return
        self.last_loss = float(loss.detach())
        self._count(scores.argmax(1) == labels, labels == self.lesson.most_frequent)
        try:
            self._learn(loss)
        except InputError:
            raise
        except Exception as error:  # whatever a backward of the user's own raises
            if out_of_memory(error):
                raise
            name = type(self.model).__name__
            raise InputError(f"check: {name} cannot be trained: {first_line(error)}; {LEAVE_OUT}") from error

    def _count(self, right: Tensor, guessed: Tensor) -> None:
        """Which answers of a batch are right, and which would be if the most frequent label were always given."""
        self.right.append(float(right.float().mean()))
        self.guessed.append(float(guessed.float().mean()))
        if len(self.right) >= WINDOW:
            share, guess = (sum(shares[-WINDOW:]) / WINDOW for shares in (self.right, self.guessed))
            if guess < 1:
                self.learnt = max(self.learnt, (share - guess) / (1 - guess))

    def _learn(self, loss: Tensor) -> None:
        """Gradients reach the copy's weights alone: nothing else is written to."""
        first = len(self.right) == 1
        own = [weight for weight in self.lesson.model.parameters() if weight.requires_grad] if first else []
        gradients = torch.autograd.grad(loss, [*self.trained, *own], allow_unused=True)
        if any(gradient is not None for gradient in gradients[len(self.trained) :]):
            name = type(self.model).__name__
            raise InputError(
                f"check: a copy of {name} computes with the weights of the model that it is copied from, as where its "
                "forward is a function made from the model (model.forward = torch.compile(model.forward)), so that it "
                "cannot be trained alone; leave such functions out (model.compile() is none), or "
                f"{LEAVE_OUT}"
            )
        for weight, gradient in zip(self.trained, gradients, strict=False):
            weight.grad = gradient
        self.optimiser.step()
        self.optimiser.zero_grad()


def _scores(output: Any, samples: int, classes: int) -> Tensor:
    """The part of the model's output whose cross-entropy with labels can be computed."""
    tensors = [tensor for tensor in float_tensors(output) if tensor.requires_grad]
    fitting = [tensor for tensor in tensors if tensor.dim() == 2 and tensor.shape[0] == samples]
    enough = [tensor for tensor in fitting if tensor.shape[1] >= classes]
    if len(enough) == 1:
        return enough[0]
    shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors) or "none"
    if enough:
        raise InputError(
            f"check: a short training needs one output of samples by classes, and several are possible ({shapes}): let "
            f"the model return its scores alone, or {LEAVE_OUT}"
        )
    if fitting:
        raise InputError(
            f"check: the output has {counted(fitting[0].shape[1], 'score')} per sample, and the largest label is "
            f"{classes - 1}: expected a score for every label from 0 on; where the output has no scores of classes, "
            f"{LEAVE_OUT}"
        )
    raise InputError(
        f"check: a short training needs an output of samples by classes, to compare with labels; got shapes {shapes} "
        f"for {samples} samples: {LEAVE_OUT}"
    )


def _batches(samples: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Numbers of samples, epoch after epoch in another order; a last batch that is not full is left out."""
    while True:
        order = torch.randperm(samples, generator=generator, device="cpu")
        yield from (chosen for chosen in order.split(BATCH) if len(chosen) == BATCH)
