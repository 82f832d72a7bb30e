"""What paper A's studies train: a type of network on a data set, `type1-mnist`, from several seeds.

With -preactivation at the end of a subject, type1-mnist-preactivation, norms and activations stand before the matrices.
With -w512 behind the data, type1-cifar10-w512, a fully connected network has another width than the settings give.
With -authors at the very end, type1-mnist-authors, networks are trained as in the authors' notebook and not as the
settings say: another recipe is another subject.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from skipscope.constraints import Constrained, Expectation, at_least, each, from_to, including
from skipscope.errors import InputError
from skipscope.models import names
from skipscope.papers.a.networks.names import NAMES as TYPES
from skipscope.papers.kit import Bench, Subject
from skipscope.training import Settings

FULLY_CONNECTED = "type1"
PREACTIVATION = "-preactivation"
AUTHORS = "-authors"
# How the authors' notebook trains, as far as it is known: rate 0.1 along a cosine, no momentum.
AUTHORS_TRAINING: dict[str, Any] = {
    "epochs": 50,
    "batch": 1024,
    "rate": 0.1,
    "momentum": 0.0,
    "weight_decay": 1e-2,
    "clip": None,
    "decay_budget": None,
}
LOOKS = (0.0, 0.02, 0.06, 0.15, 0.4, 0.7, 1.0)  # shares of the training after which a network is measured

ENDS = (0.0, 1.0)  # before the training and after it
Looks = Annotated[tuple[float, ...], including(*ENDS), each(from_to(0, 1))]


@dataclass(frozen=True)
class TrainingSettings(Constrained):
    """What the subjects of a study have in common, unless they differ in it."""

    width: Annotated[int, at_least(1)] = 64  # of the states of fully connected networks
    channels: Annotated[int, at_least(1)] = 16  # of convolutional ones
    blocks: Annotated[int, at_least(1)] = 16
    samples: Annotated[int | None, at_least(1)] = 3000  # of training; all where there are fewer
    networks: Annotated[int, at_least(1)] = 8  # seeds
    epochs: int = 250
    batch: int = 128
    rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-3
    clip: float | None = None  # the largest norm of a gradient
    augmentation: str = "none"  # of training images; the authors have "paper-a" for subsets of CIFAR-10
    precision: str = "float32"  # of the training
    decay_budget: Annotated[float | None, at_least(0)] = None  # takes the place of weight_decay: see `decay_budget_of`
    images: Annotated[int, at_least(1)] = 10  # training samples at which Jacobians are taken
    looks: Looks = LOOKS
    untrained: Annotated[int, at_least(1)] = 64  # random networks before training, for controls

    def expectations(self) -> Iterator[Expectation]:
        self.training(self.batch)  # raises where a number of the training is wrong
        yield from super().expectations()

    def training(self, samples: int) -> Settings:
        """Of a training with so many samples."""
        names = ("rate", "momentum", "weight_decay", "clip", "augmentation", "precision")
        shared = {name: getattr(self, name) for name in names}
        plain = Settings(self.epochs, self.batch, **shared)
        if self.decay_budget is None:
            return plain
        wanted = self.decay_budget / decay_budget_of(replace(plain, weight_decay=1.0), samples)
        return replace(plain, weight_decay=float(f"{wanted:.12g}"))  # not to differ by rounding from one that was given


SMOKE: dict[str, Any] = {  # for tests: two epochs, in which nothing aligns
    "width": 50,
    "channels": 4,
    "blocks": 3,
    "samples": 100,
    "networks": 1,
    "epochs": 2,
    "batch": 20,
    "images": 2,
    "looks": (0.0, 0.5, 1.0),
    "untrained": 2,
}


def decay_budget_of(training: Settings, samples: int) -> float:
    """Learning rate x weight decay / (1 - momentum), summed over all steps; the mean of a cosine is half its rate.

    By this budget, and not by weight decay alone, alignment was strong or weak: about 15 gave it, 3 hardly.
    """
    steps = training.epochs * max(1, samples // training.batch)
    return steps * training.rate / 2 * training.weight_decay / (1 - training.momentum)


def subject(
    bench: Bench,
    settings: TrainingSettings,
    text: str,
    *,
    options: str = "",
    classes: int | None = None,
    label_noise: float = 0.0,
    seeds: Sequence[int] | None = None,
    least_width: int = 0,
    title: str = "",
) -> Subject:
    """text: type and data, type1-mnist; -preactivation for blocks of that form, -authors for the authors' training.
    options: of the network's name.

    classes: only the first so many, with as many samples in all, so that the training has as many steps. label_noise:
    the share of the training labels that are drawn at random. seeds: as many judged ones as the settings say by
    default. least_width: of a fully connected network, times the number of classes. title: type and data by default.
    """
    form = text.removesuffix(AUTHORS)
    if form != text:
        settings = replace(settings, **AUTHORS_TRAINING)
    whole = re.fullmatch(r"(?P<kind>[^-]*)-?(?P<source>.*?)(-w(?P<width>\d+))?", form.removesuffix(PREACTIVATION))
    kind, source = (whole["kind"], whole["source"]) if whole else ("", "")
    wanted_width = int(whole["width"]) if whole and whole["width"] else settings.width
    if form.endswith(PREACTIVATION):
        options = PREACTIVATION + options
    if kind not in TYPES or not source:
        raise InputError(f"'{text}': expected one of {', '.join(TYPES)} and a data set, such as type1-mnist")
    data = bench.data(source)
    if classes is not None and not 2 <= classes <= data.classes:
        raise InputError(f"classes: expected 2 to {data.classes}, which {data.name} has, got {classes}")
    if classes is not None and classes < data.classes:
        data = data.subset(classes=list(range(classes)))
    if settings.samples is not None and settings.samples < len(data.train):
        data = data.subset(samples=settings.samples)
    if label_noise:
        data = data.with_random_labels(bench.seed, label_noise)
    width = max(wanted_width, least_width * data.classes) if kind == FULLY_CONNECTED else settings.channels
    model = names.fitting(f"{kind}-mnist-w{width}-b{settings.blocks}", tuple(data.shape), data.classes)
    if not model:
        raise InputError(f"{text}: no network of {kind} takes images of {tuple(data.shape)}")
    training = settings.training(len(data.train))
    return Subject(
        title or _plain_title(model + options, data.name, training),
        model + options,
        data,
        training,
        tuple(bench.seeds(settings.networks) if seeds is None else seeds),
        looks=tuple(sorted({round(look * settings.epochs) for look in settings.looks})),
        images=settings.images,
    )


def is_changed(of: Subject) -> bool:
    """Whether it has a title of its own, not that of its type and data alone: it differs in one thing from others."""
    return of.title != _plain_title(of.model, of.data.name, of.training)


def _plain_title(model: str, data: str, training: Settings) -> str:
    """Of a type of network, with its form, on a data set."""
    form = " with pre-activation" if PREACTIVATION in model else ""
    given = [getattr(training, name) == value for name, value in AUTHORS_TRAINING.items() if name != "decay_budget"]
    return f"{model.partition('-')[0]}{form} on {data}{', trained as by the authors' if all(given) else ''}"


def judged_as(text: str, of: Subject) -> str:
    """The name of a subject among those of a claim: without the path of its data, and of digits that stand in for other
    data their own, since they decide nothing about these."""
    plain = re.sub(r":.*?(?=(-w\d+)?(-preactivation)?(-authors)?$)", "", text)
    if not of.data.stands_in_for:
        return plain
    return plain.replace(of.data.stands_in_for, "digits")
