"""What paper C's studies train: subjects, of which each is a data set, a depth and a form, and how they are trained.

`mnist-60-connected` and `cifar100-110` are subjects. Of each there are twins: the same network without skips
(PlainNet), with them (ResNet), and with several paths per branch (ResNeXt).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar

import numpy
import torch
import xarray
from torch import Tensor

from skipscope.constraints import Constrained, Expectation, at_least, each, not_empty, rising, some_of
from skipscope.data import Dataset, Split
from skipscope.errors import InputError
from skipscope.models import names
from skipscope.papers.kit import SEEDS, Bench, Quantity, Subject
from skipscope.runs.sweep import keyed
from skipscope.training import Settings

PLAIN, RESIDUAL, PATHS = "PlainNet", "ResNet", "ResNeXt"
FAMILIES = {PLAIN: "plainnet", RESIDUAL: "resnet", PATHS: "resnext"}  # title: family, and options after a hyphen
DIRAC, ADDITIVE = "DiracNet", "DiracNet, additive"
DIRACS = {DIRAC: "diracnet", ADDITIVE: "diracnet-additive", RESIDUAL: "resnet"}
KNOWN = FAMILIES | DIRACS
SUBJECT = r"([a-z][a-z0-9]*(?:-mnist)?)-(\d+)((?:-[a-z]+\d*)*)(?::(.+))?"
IN_WORDS = {"connected": "fully connected", "linear": "linear units", "nonorm": "no norms"}  # options
SMOKE: dict[str, Any] = {  # for tests: one epoch, in which nothing is learnt
    "subjects": ("digits-6-connected-n4",),
    "samples": 100,
    "networks": 1,
    "epochs": 1,
    "least_steps": 1,
    "batch": 50,
    "rates": (0.1,),
    "looks": (1,),
    "images": 50,
}
QUICK: dict[str, Any] = {"subjects": ("mnist-60-connected", "digits-20-n4"), "deciding": ("mnist-60-connected",)}
LARGE: dict[str, Any] = {  # PlainNet has one rate more, which makes its failure no weaker
    "samples": None,
    "test_samples": None,
    "epochs": 20,
    "schedule": "cosine",
    "residual_rates": (0.1, 0.01),  # ResNets of 200 layers did not leave chance at 0.1
    "precision": "bfloat16",
    "looks": (1, 3, 10),
}
FULL: dict[str, Any] = {"subjects": ("cifar10-110", "cifar100-110", "mnist-110"), **LARGE}
LONG: dict[str, Any] = {  # as far as the paper says: rates from 0.0001 to 0.1, at most 200 epochs
    "samples": None,
    "test_samples": None,
    "epochs": 200,
    "schedule": "cosine",
    "rates": (0.1, 0.01, 0.001, 0.0001),
    "looks": (1, 10, 50, 100),
}
AS_IN_PAPER: dict[str, Any] = {"subjects": ("mnist-110", "cifar10-110", "cifar100-110", "imagenet-101"), **LONG}


def _parts(text: str) -> tuple[str, int, str, str]:
    """Data set, depth, options of the networks' names, and the path of the data where there is one."""
    found = re.fullmatch(SUBJECT, text)
    if found is None:
        raise InputError(
            f"subject '{text}': expected a data set, a depth and options, such as mnist-60-connected, cifar10-110 or "
            "imagenet-101:PATH"
        )
    return found[1], int(found[2]), found[3], found[4] or ""


@dataclass(frozen=True)
class TwinSettings(Constrained):
    """What the studies of trained networks have in common."""

    OLD_NAMES: ClassVar[Mapping[str, str]] = {"besides": "other_networks"}

    subjects: Annotated[tuple[str, ...], not_empty] = ("mnist-60-connected",)
    deciding: tuple[str, ...] = ()  # subjects that decide claims, the others are reported; all where none are named
    titles: Annotated[tuple[str, ...], some_of(*KNOWN)] = (PLAIN, RESIDUAL, PATHS)
    samples: Annotated[int | None, at_least(1)] = 3000  # of training; all where there are fewer
    test_samples: Annotated[int | None, at_least(1)] = 2000  # likewise
    networks: Annotated[int, at_least(1)] = 3  # seeds of subjects that decide
    other_networks: Annotated[int, at_least(1)] = 1  # seeds of the others
    epochs: int = 12
    least_steps: Annotated[int, at_least(1)] = 250  # smaller sets have more epochs
    batch: Annotated[int, at_least(1)] = 128
    rates: Annotated[tuple[float, ...], not_empty] = (0.1, 0.01, 0.001)
    residual_rates: tuple[float, ...] = ()  # of networks with skips; where none are given, the same as of the others
    schedule: str = "constant"  # of rates
    weight_decay: float = 1e-4
    augmentation: str = "crop-flip"  # of colour images; grey ones are taken as they are
    precision: str = "float32"  # of the training
    # Epochs after which weights are kept, beside the first and the last ones.
    looks: Annotated[tuple[int, ...], not_empty, rising, each(at_least(1))] = (1, 3)
    images: Annotated[int, at_least(1)] = 1024  # training samples that networks are measured at; all where fewer

    def expectations(self) -> Iterator[Expectation]:
        for text in self.subjects:
            _parts(text)  # says what is wrong with it
        for rate in (*self.rates, *self.residual_rates):
            self.training(rate, self.batch)  # says what is wrong with the numbers of the training
        known = ", ".join(self.subjects)
        for text in self.deciding:
            yield text in self.subjects, f"deciding: expected some of the subjects {known}, got {text}"

    def training(self, rate: float, samples: int, colours: bool = True) -> Settings:
        """Of a training with so many samples."""
        steps = max(1, samples // self.batch)
        return Settings(
            epochs=max(self.epochs, math.ceil(self.least_steps / steps)) if self.epochs > 0 else self.epochs,
            batch=self.batch,
            rate=rate,
            schedule=self.schedule,
            weight_decay=self.weight_decay,
            augmentation=self.augmentation if colours else "none",
            precision=self.precision,
        )

    def seeds(self, text: str) -> int:
        """Of a subject."""
        return self.networks if text in (self.deciding or self.subjects) else self.other_networks


TWIN_PRESETS = {
    "smoke": TwinSettings(**SMOKE),
    "quick": TwinSettings(**QUICK),
    "full": TwinSettings(**FULL),
    "paper": TwinSettings(**AS_IN_PAPER),
}
COST_AFTER_ACCURACY = {  # of studies that measure the networks of C.accuracy
    "smoke": "seconds",
    "quick": "seconds after C.accuracy, whose networks it takes; 5 minutes on one core without",
    "full": "a minute of one GPU per subject after its training, which is that of C.accuracy",
    "paper": "as C.accuracy, whose networks it takes",
}


@dataclass(frozen=True)
class TwinSubject:
    """The same network in several forms, the twins, each trained at every learning rate of a grid."""

    text: str  # mnist-60-connected
    data: Dataset
    models: Mapping[str, str]  # title: name of the network
    settings: TwinSettings
    seeds: tuple[int, ...]
    shown: bool = True  # in the report

    @property
    def depth(self) -> int:
        return _parts(self.text)[1]

    @property
    def options(self) -> list[str]:
        """Of the networks' names: connected, linear, nonorm."""
        return [option for option in _parts(self.text)[2].split("-") if option]

    @property
    def title(self) -> str:
        options = [IN_WORDS.get(option, option) for option in self.options]
        return f"{', '.join([f'{self.depth} layers', *options])}, on {self.data.name}"

    @property
    def study(self) -> str:
        """Whose claims the accuracies of these networks are about, whichever study trains them first."""
        if DIRAC in self.models or ADDITIVE in self.models:
            return "C.dirac"
        return "C.histograms" if "nonorm" in self.options else "C.linear" if "linear" in self.options else "C.accuracy"

    def kind(self, measure: str) -> dict[str, str]:
        """Attributes by which the report knows a dataset; it leaves out pieces."""
        return {"measure": measure} if self.shown else {"part": "piece"}

    @property
    def epochs(self) -> int:
        return self.training(self.settings.rates[0]).epochs

    @property
    def looks(self) -> tuple[int, ...]:
        """Epochs whose weights are kept, beside the first and the last ones."""
        return tuple(look for look in self.settings.looks if look < self.epochs)

    def training(self, rate: float) -> Settings:
        return self.settings.training(rate, len(self.data.train), colours=self.data.shape[0] == 3)

    def rates(self, title: str) -> tuple[float, ...]:
        """That a network is trained at."""
        residual = KNOWN[title].startswith("res")
        return self.settings.residual_rates if residual and self.settings.residual_rates else self.settings.rates

    def twin(self, title: str, rate: float) -> Subject:
        """One of the twins at one learning rate."""
        training = self.training(rate)
        return Subject(title, self.models[title], self.data, training, self.seeds, self.looks, self.settings.images)

    def key(self, device: str) -> str:
        """Of its datasets: what it is, and a part of the hash of all that determines them."""
        determined = {
            "models": dict(self.models),
            "data": self.data.describe(),
            "settings": {title: [asdict(self.training(rate)) for rate in self.rates(title)] for title in self.models},
            "looks": self.looks,
            "images": self.settings.images,
            "seeds": self.seeds,
            "device": torch.device(device).type,
        }
        return keyed(without_path(self.text), determined)

    def samples(self, device: str, most: int | None = None) -> tuple[Tensor, Tensor]:
        """Training images that networks are measured at, with their labels; all twins have the same.

        most: fewer than the settings say, where that number is smaller.
        """
        count = max(min(self.settings.images, most or self.settings.images), self.data.classes)
        return self.twin(next(iter(self.models)), self.settings.rates[0]).samples(device, count)


def subject(
    bench: Bench, settings: TwinSettings, text: str, seeds: int | None = None, *, shown: bool = True
) -> TwinSubject:
    """seeds: how many, where they are not those that the settings say."""
    source, depth, options, path = _parts(text)
    data = bench.data(f"{source}:{path}" if path else source)
    samples, tested = _fewer(settings.samples, data.train), _fewer(settings.test_samples, data.test)
    if (samples, tested) != (None, None):
        data = data.subset(samples=samples, test_samples=tested)
    form = options if source != "imagenet" or "-large" in options else f"{options}-large"
    models = {title: _named(title, depth, form, data, text) for title in settings.titles}
    chosen = bench.seeds(settings.seeds(text) if seeds is None else seeds)
    return TwinSubject(text, data, models, settings, tuple(chosen), shown)


def _fewer(wanted: int | None, split: Split) -> int | None:
    return None if wanted is None or wanted >= len(split) else wanted


def subjects(bench: Bench, settings: TwinSettings, *compared: str) -> dict[str, TwinSubject]:
    """compared: titles that the study cannot do without."""
    expect_titles(settings.titles, *compared)
    return {text: subject(bench, settings, text) for text in settings.subjects}


def expect_titles(titles: Sequence[str], *compared: str) -> None:
    missing = [title for title in compared if title not in titles]
    if missing:
        raise InputError(f"titles: this study compares {' and '.join(compared)}, got no {' and no '.join(missing)}")


def _named(title: str, depth: int, options: str, data: Dataset, text: str) -> str:
    family, _, own = KNOWN[title].partition("-")
    added = f"{options}-{own}" if own else options
    name = names.fitting(f"{family}{depth}-mnist{added}", tuple(data.shape), data.classes)
    if not name:
        raise InputError(f"{text}: no {title} takes images of {tuple(data.shape)} in {data.classes} classes")
    return name


# -- evidence

NETWORKS = Quantity("networks")  # that the evidence comes from, in words
MEASURED_EPOCH = "measured_epoch"  # of networks, in datasets of what was measured of them

Reader = Callable[[xarray.Dataset], numpy.ndarray]  # gives a quantity of a dataset: one value per seed


def gathered(
    found: Mapping[str, xarray.Dataset], deciding: Sequence[str], readers: Mapping[Quantity, Reader]
) -> dict[Quantity, Any]:
    """Quantities of the deciding subjects one after another, and of each other subject on its own.

    A seed of which a network was measured before its training, as it diverged before the first look, has none.
    """
    judged = {text: dataset for text, dataset in found.items() if text in (deciding or found)}
    values: dict[Quantity, Any] = {
        SEEDS: min(dataset.sizes["seed"] for dataset in judged.values()),
        NETWORKS: ", ".join(f"{without_path(text)} ({dataset.attrs['data']})" for text, dataset in judged.items()),
    }
    for quantity, reader in readers.items():
        values[quantity] = [value for dataset in judged.values() for value in _of_trained(reader, dataset)]
    for text, dataset in found.items():
        if text not in judged:
            alone = without_path(text)
            values |= {quantity.of(alone): _of_trained(reader, dataset) for quantity, reader in readers.items()}
    return values


def _of_trained(reader: Reader, dataset: xarray.Dataset) -> list[float]:
    values = numpy.asarray(reader(dataset), dtype=float)
    if MEASURED_EPOCH in dataset:
        values = numpy.where((dataset[MEASURED_EPOCH] > 0).all("network"), values, numpy.nan)
    return values.tolist()


def without_path(text: str) -> str:
    """A subject without the path of its data."""
    return text.partition(":")[0]
