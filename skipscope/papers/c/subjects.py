"""What paper C's studies train: subjects, of which each is a data set, a depth and a form, and how they are trained.

`mnist-60-connected` and `cifar100-110` are subjects. Of each there are twins: the same network without skips
(PlainNet), with them (ResNet), and with several paths per branch (ResNeXt).

Rates are chosen on one calibration seed, among all rates with and without a warm-up (`twins.py`); the networks that
claims are judged on are trained at those that go on.
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
from skipscope.models.specification import LARGE_BLOCKS
from skipscope.papers.kit import Bench, Measured, Quantity, Subject
from skipscope.runs.sweep import keyed
from skipscope.training import Settings

PLAIN, RESIDUAL, PATHS = "PlainNet", "ResNet", "ResNeXt"
FAMILIES = {PLAIN: "plainnet", RESIDUAL: "resnet", PATHS: "resnext"}  # title: family, and options after a hyphen
DIRAC, ADDITIVE = "DiracNet", "DiracNet, additive"
# In bottlenecks four paths have ResNet's number of parameters; in basic blocks such paths would be a ResNet's block.
FOUR_PATHS, TWO_PATHS = "ResNeXt of 4 paths", "ResNeXt of 2 paths"
WITH_PATHS = {PATHS: "resnext", FOUR_PATHS: "resnext-c4", TWO_PATHS: "resnext-c2"}
DIRACS = {DIRAC: "diracnet", ADDITIVE: "diracnet-additive", RESIDUAL: "resnet"}
KNOWN = FAMILIES | WITH_PATHS | DIRACS
LAYERS_OF_BASIC = 6  # of three stages, two layers of a block in each: depths are 6 n + 2
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
    "warmups": (0,),
    "looks": (1,),
    "images": 50,
}
QUICK: dict[str, Any] = {"titles": (PLAIN, RESIDUAL), "calibration_epochs": 5}
LARGE: dict[str, Any] = {
    "samples": None,
    "test_samples": None,
    "networks": 5,
    "epochs": 60,
    "schedule": "cosine",
    "precision": "bfloat16",
    "looks": (1, 3, 10, 30),
}
FULL: dict[str, Any] = {"subjects": ("cifar10-110", "mnist-110", "cifar100-110"), **LARGE}
LONG: dict[str, Any] = {  # as far as the paper says: rates from 0.0001 to 0.1, at most 200 epochs
    "samples": None,
    "test_samples": None,
    "epochs": 200,
    "schedule": "cosine",
    "networks": 5,
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
class Recipe:
    """What is chosen on a calibration seed."""

    rate: float
    warmup: int = 0  # epochs

    def __str__(self) -> str:
        return f"{self.rate:g}, {self.warmup} of warm-up" if self.warmup else f"{self.rate:g}"


@dataclass(frozen=True)
class TwinSettings(Constrained):
    """What the studies of trained networks have in common."""

    OLD_NAMES: ClassVar[Mapping[str, str]] = {"besides": "other_networks", "deciding": "most_networks_of"}

    subjects: Annotated[tuple[str, ...], not_empty] = ("mnist-60-connected",)
    most_networks_of: tuple[str, ...] = ()  # subjects of which there are `networks`; all where none are named
    titles: Annotated[tuple[str, ...], some_of(*KNOWN)] = (PLAIN, RESIDUAL, PATHS)
    samples: Annotated[int | None, at_least(1)] = 3000  # of training; all where there are fewer
    test_samples: Annotated[int | None, at_least(1)] = 2000  # likewise
    networks: Annotated[int, at_least(1)] = 8  # seeds
    other_networks: Annotated[int, at_least(1)] = 1  # seeds of the other subjects
    epochs: int = 12
    least_steps: Annotated[int, at_least(1)] = 250  # smaller sets have more epochs
    batch: Annotated[int, at_least(1)] = 128
    rates: Annotated[tuple[float, ...], not_empty] = (0.1, 0.01, 0.001, 0.0001)
    # Epochs in which the rate rises; all rates are tried with each.
    warmups: Annotated[tuple[int, ...], not_empty, each(at_least(0))] = (0, 2)
    calibration_epochs: Annotated[int, at_least(1)] = 10  # of the one calibration seed
    go_on: Annotated[int, at_least(1)] = 2  # of rates and warm-ups, that the networks are trained at
    equal_rates: bool = True  # twins are measured at one rate, the best for ResNet; False: each at the best for it
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
        for recipe in self.recipes:
            self.training(recipe, self.batch)  # says what is wrong with the numbers of the training
        known = ", ".join(self.subjects)
        for text in self.most_networks_of:
            yield text in self.subjects, f"most_networks_of: expected some of the subjects {known}, got {text}"

    @property
    def recipes(self) -> tuple[Recipe, ...]:
        """Among which the calibration chooses."""
        return tuple(Recipe(rate, warmup) for rate in self.rates for warmup in self.warmups)

    def training(self, recipe: Recipe, samples: int, colours: bool = True, epochs: int | None = None) -> Settings:
        """Of a training with so many samples. epochs: in place of those of the settings, and of the least steps."""
        steps = max(1, samples // self.batch)
        if epochs is None:
            epochs = max(self.epochs, math.ceil(self.least_steps / steps)) if self.epochs > 0 else self.epochs
        return Settings(
            epochs=epochs,
            batch=self.batch,
            rate=recipe.rate,
            warmup=recipe.warmup,
            schedule=self.schedule,
            weight_decay=self.weight_decay,
            augmentation=self.augmentation if colours else "none",
            precision=self.precision,
        )

    def seeds(self, text: str) -> int:
        """Of a subject."""
        return self.networks if text in (self.most_networks_of or self.subjects) else self.other_networks


TWIN_PRESETS = {
    "smoke": TwinSettings(**SMOKE),
    "quick": TwinSettings(**QUICK),
    "full": TwinSettings(**FULL),
    "paper": TwinSettings(**AS_IN_PAPER),
}
# Networks that claims take, by subject; the first one decides, unless a part names another.
DEEP = {"cifar10-110": 5, "mnist-110": 5, "cifar100-110": 5, "mnist-200": 2, "mnist-60-connected": 8}
SMALL = "mnist-60-connected"
COST_OF_DEEP = (
    "skipscope study run C.accuracy,C.weights,C.hidden --preset full --device cuda --set subjects=cifar10-110 "
    "--set titles=PlainNet,ResNet (about 45 minutes of one H200; every 10 minutes can be a command: --resume goes on)"
)
COST_AFTER_ACCURACY = {  # of studies that measure the networks of C.accuracy
    "smoke": "seconds",
    "quick": "seconds after C.accuracy, whose networks it takes; 5 minutes on one core without",
    "full": "a minute of one GPU per subject after its training, which is that of C.accuracy",
    "paper": "as C.accuracy, whose networks it takes",
}


@dataclass(frozen=True)
class TwinSubject:
    """The same network in several forms, the twins, trained alike."""

    text: str  # mnist-60-connected
    data: Dataset
    models: Mapping[str, str]  # title: name of the network
    settings: TwinSettings
    seeds: tuple[int, ...]
    shown: bool = True  # in the report

    @property
    def name(self) -> str:
        """By which claims know it: without a path, and with the data that it is trained on in fact."""
        source, depth, options, _ = _parts(self.text)
        return f"{self.data.name if self.data.stands_in_for else source}-{depth}{options}".replace(" ", "-")

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
        return self.training(self.settings.recipes[0]).epochs

    @property
    def looks(self) -> tuple[int, ...]:
        """Epochs whose weights are kept, beside the first and the last ones."""
        return tuple(look for look in self.settings.looks if look < self.epochs)

    @property
    def calibrated(self) -> tuple[str, ...]:
        """Titles of the networks by which rates are chosen."""
        both = tuple(title for title in (PLAIN, RESIDUAL) if title in self.models)
        return both if self.settings.equal_rates and both else tuple(self.models)

    def training(self, recipe: Recipe, epochs: int | None = None) -> Settings:
        return self.settings.training(recipe, len(self.data.train), self.data.shape[0] == 3, epochs)

    def twin(self, title: str, recipe: Recipe) -> Subject:
        """One of the twins, trained in one way."""
        training = self.training(recipe)
        return Subject(title, self.models[title], self.data, training, self.seeds, self.looks, self.settings.images)

    def calibration(self, title: str, recipe: Recipe) -> Subject:
        """The same for fewer epochs, by which recipes are compared."""
        training = self.training(recipe, self.settings.calibration_epochs)
        return Subject(title, self.models[title], self.data, training, ())

    def key(self, device: str) -> str:
        """Of its datasets: what it is, and a part of the hash of all that determines them."""
        determined = {
            "models": dict(self.models),
            "data": self.data.describe(),
            "settings": [asdict(self.training(recipe)) for recipe in self.settings.recipes],
            "calibration": [self.calibrated, self.settings.calibration_epochs, self.settings.go_on],
            "looks": self.looks,
            "images": self.settings.images,
            "seeds": self.seeds,
            "device": torch.device(device).type,
        }
        return keyed(self.name, determined)

    def samples(self, device: str, most: int | None = None) -> tuple[Tensor, Tensor]:
        """Training images that networks are measured at, with their labels; all twins have the same.

        most: fewer than the settings say, where that number is smaller.
        """
        count = max(min(self.settings.images, most or self.settings.images), self.data.classes)
        return self.twin(next(iter(self.models)), self.settings.recipes[0]).samples(device, count)


def subject(
    bench: Bench, settings: TwinSettings, text: str, seeds: int | None = None, *, shown: bool = True
) -> TwinSubject:
    """seeds: how many, where they are not those that the settings say."""
    source, depth, options, path = _parts(text)
    data = bench.data(f"{source}:{path}" if path else source)
    samples, tested = _fewer(settings.samples, data.train), _fewer(settings.test_samples, data.test)
    if (samples, tested) != (None, None):
        data = data.subset(samples=samples, test_samples=tested)
    form = options if "-large" in options or not _is_large(source, depth, options) else f"{options}-large"
    models = {title: _named(title, depth, form, data, text) for title in settings.titles}
    chosen = bench.seeds(settings.seeds(text) if seeds is None else seeds)
    return TwinSubject(text, data, models, settings, tuple(chosen), shown)


def _is_large(source: str, depth: int, options: str) -> bool:
    """Whether a network is one for large images: always on ImageNet, and at depths that basic blocks do not have, the
    101 layers of tables 3 and 4."""
    basic = "connected" not in options and "bottleneck" not in options
    return source == "imagenet" or (basic and depth in LARGE_BLOCKS and (depth - 2) % LAYERS_OF_BASIC != 0)


def _fewer(wanted: int | None, split: Split) -> int | None:
    return None if wanted is None or wanted >= len(split) else wanted


def subjects(bench: Bench, settings: TwinSettings, *compared: str) -> dict[str, TwinSubject]:
    """By their names. compared: titles that the study cannot do without."""
    expect_titles(settings.titles, *compared)
    return {of.name: of for of in (subject(bench, settings, text) for text in settings.subjects)}


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

MEASURED_EPOCH = "measured_epoch"  # of networks, in datasets of what was measured of them
FITTED, FITTED_OF_MANY = 0.95, 0.7  # train accuracies that ResNets have to reach: in general, with 100 classes
MANY = 100  # classes

Reader = Callable[[xarray.Dataset], numpy.ndarray]  # gives a quantity of a dataset: one value per network


def gathered(
    found: Mapping[str, xarray.Dataset],
    readers: Mapping[Quantity, Reader],
    unmet: Callable[[xarray.Dataset], str] | None = None,
) -> list[Measured]:
    """Quantities of each subject, one value per network; a network that was measured before its training, as it
    diverged before the first look, has none. unmet: says which precondition a subject fails, if any."""
    return [
        Measured(
            {quantity: _of_trained(reader, dataset) for quantity, reader in readers.items()},
            name,
            tuple(int(seed) for seed in dataset["seed"].values),
            unmet=unmet(dataset) if unmet else "",
        )
        for name, dataset in found.items()
    ]


def _of_trained(reader: Reader, dataset: xarray.Dataset) -> list[float]:
    values = numpy.asarray(reader(dataset), dtype=float)
    if MEASURED_EPOCH in dataset:
        values = numpy.where((dataset[MEASURED_EPOCH] > 0).all("network"), values, numpy.nan)
    return values.tolist()


def fit_asked(dataset: xarray.Dataset) -> float:
    """The train accuracy that a ResNet has to reach."""
    return FITTED_OF_MANY if float(dataset.attrs["chance"]) <= 1 / MANY else FITTED


def unfitted(dataset: xarray.Dataset) -> str:
    """What is wrong where a ResNet is not trained: then its PlainNet shows nothing."""
    reached = dataset["reached_train_accuracy"].sel(network=RESIDUAL).values
    if (reached >= fit_asked(dataset)).all():
        return ""
    return f"ResNets reach a train accuracy of {numpy.min(reached):.3g} at least, and {fit_asked(dataset):g} is asked"


def without_path(text: str) -> str:
    """A subject without the path of its data."""
    return text.partition(":")[0]
