"""The networks that paper C's studies train, and what is measured of them: accuracies and condition numbers by layer.

A subject is a data set, a depth and a form, as `mnist-60-connected` or `cifar100-110`. Of each there are twins: the
same network without skips (PlainNet), with them (ResNet), and with several paths a branch (ResNeXt). Each is trained at
every learning rate of a grid, from several seeds, and the rate with the highest train accuracy counts for its seed, so
that no network fails for its rate. A network that diverges at every rate is measured as it was when it was last looked
at, which may be before the training; the run says so.

A layer's hidden state is what it passes on to the next layer: with norm, activation and skip where there are any. The
classifier's is the output, and is no hidden state. In networks of convolutions the last block's state is the one that
enters the classifier, a mean over places. States between blocks are the h of the paper's theory; those inside branches
are measured too. Networks are measured in float64 on training images, in evaluation mode.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy
import torch
from torch import Tensor

from skipscope.data import Dataset, Split
from skipscope.errors import InputError
from skipscope.measure import conditioning
from skipscope.measure.layers import OUTPUT
from skipscope.models import names
from skipscope.models.network import BlockNetwork
from skipscope.runs.cache import key_of
from skipscope.studies.bench import Bench
from skipscope.training import Settings, accuracy
from skipscope.training.networks import Network, Trained

if TYPE_CHECKING:
    import xarray

PLAIN, RESIDUAL, PATHS = "PlainNet", "ResNet", "ResNeXt"
FAMILIES = {PLAIN: "plainnet", RESIDUAL: "resnet", PATHS: "resnext"}  # title: family, and options after a hyphen
DIRAC, ADDITIVE = "DiracNet", "DiracNet, additive"
DIRACS = {DIRAC: "diracnet", ADDITIVE: "diracnet-additive", RESIDUAL: "resnet"}
KNOWN = FAMILIES | DIRACS
SUBJECT = r"([a-z][a-z0-9]*(?:-mnist)?)-(\d+)((?:-[a-z]+\d*)*)(?::(.+))?"
IN_WORDS = {"connected": "fully connected", "linear": "linear units", "nonorm": "no norms"}  # options
REDUCTION = "max"  # of a tensor's condition numbers, over its modes
NOT_TRAINED = "not trained"
PAPER: dict[str, dict[str, tuple[float, float]]] = {  # accuracies in training and in the test, tables 1 to 4
    "mnist-110": {PLAIN: (0.1120, 0.1135), RESIDUAL: (0.9999, 0.9957), PATHS: (0.9999, 0.9971)},
    "cifar10-110": {PLAIN: (0.1026, 0.1005), RESIDUAL: (0.9998, 0.9329), PATHS: (0.9998, 0.9365)},
    "cifar100-110": {PLAIN: (0.0372, 0.0368), RESIDUAL: (0.9984, 0.7227), PATHS: (0.9999, 0.7243)},
    "imagenet-101": {PLAIN: (0.1537, 0.1494), RESIDUAL: (0.8856, 0.7732), PATHS: (0.8974, 0.7848)},
    "mnist-200": {PLAIN: (0.1123, 0.0892)},
}
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


@dataclass(frozen=True)
class TwinSettings:
    """What the studies of trained networks have in common."""

    subjects: tuple[str, ...] = ("mnist-60-connected",)
    deciding: tuple[str, ...] = ()  # subjects that decide claims, the others are reported; all where none are named
    titles: tuple[str, ...] = (PLAIN, RESIDUAL, PATHS)
    samples: int | None = 3000  # of training; all where there are fewer
    test_samples: int | None = 2000  # likewise
    networks: int = 3  # seeds of subjects that decide
    besides: int = 1  # seeds of the others
    epochs: int = 12
    least_steps: int = 250  # smaller sets have more epochs
    batch: int = 128
    rates: tuple[float, ...] = (0.1, 0.01, 0.001)
    residual_rates: tuple[float, ...] = ()  # of networks with skips; where none are given, the same as of the others
    schedule: str = "constant"  # of rates
    weight_decay: float = 1e-4
    augmentation: str = "crop-flip"  # of colour images; grey ones are taken as they are
    precision: str = "float32"  # of the training
    looks: tuple[int, ...] = (1, 3)  # epochs after which weights are kept, beside the first and the last ones
    images: int = 1024  # training samples that networks are measured at; all where there are fewer

    def __post_init__(self) -> None:
        for name in ("samples", "test_samples", "networks", "besides", "least_steps", "batch", "images"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name}: expected at least 1, got {value}")
        if not self.subjects:
            raise InputError("subjects: expected at least one, such as mnist-60-connected")
        for text in self.subjects:
            _parts(text)
        missing = [text for text in self.deciding if text not in self.subjects]
        if missing:
            raise InputError(f"deciding: expected some of the subjects {', '.join(self.subjects)}, got {missing[0]}")
        unknown = [title for title in self.titles if title not in KNOWN]
        if unknown or not self.titles:
            raise InputError(f"titles: expected some of {', '.join(KNOWN)}, got {', '.join(unknown) or 'none'}")
        if not self.rates or list(self.looks) != sorted(set(self.looks)) or not self.looks or self.looks[0] < 1:
            raise InputError(
                f"expected a learning rate and looks as rising epochs from 1 on, got {self.rates} and {self.looks}"
            )
        for rate in (*self.rates, *self.residual_rates):
            assert self.training(rate, self.batch)  # which says what is wrong with the numbers of the training

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
        return self.networks if text in (self.deciding or self.subjects) else self.besides


@dataclass(frozen=True)
class Subject:
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
    def title(self) -> str:
        options = [IN_WORDS.get(option, option) for option in _parts(self.text)[2].split("-") if option]
        return f"{', '.join([f'{self.depth} layers', *options])}, on {self.data.name}"

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

    def network(self, title: str, seed: int, rate: float, device: str) -> Network:
        return Network(self.models[title], self.data, self.training(rate), seed, device, self.looks)

    def trained(self, bench: Bench, title: str, seed: int, rate: float) -> Trained:
        return bench.trained(self.models[title], self.data, self.training(rate), seed=seed, snapshots=self.looks)

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
        return f"{self.text.partition(':')[0]}-{key_of(determined)[:8]}"

    def samples(self, device: str) -> tuple[Tensor, Tensor]:
        """Training images that networks are measured at, as equally from all classes as the number permits; labels."""
        count = max(self.settings.images, self.data.classes)
        split = self.data.subset(samples=count).train if count < len(self.data.train) else self.data.train
        return split.images().to(device), split.labels.to(device)


def subject(
    bench: Bench, settings: TwinSettings, text: str, seeds: int | None = None, *, shown: bool = True
) -> Subject:
    """seeds: how many, where they are not those that the settings say."""
    source, depth, options, path = _parts(text)
    data = bench.data(f"{source}:{path}" if path else source)
    samples, tested = _fewer(settings.samples, data.train), _fewer(settings.test_samples, data.test)
    if (samples, tested) != (None, None):
        data = data.subset(samples=samples, test_samples=tested)
    form = options if source != "imagenet" or "-large" in options else f"{options}-large"
    models = {title: _named(title, depth, form, data, text) for title in settings.titles}
    chosen = bench.seeds(settings.seeds(text) if seeds is None else seeds)
    return Subject(text, data, models, settings, tuple(chosen), shown)


def _fewer(wanted: int | None, split: Split) -> int | None:
    return None if wanted is None or wanted >= len(split) else wanted


def subjects(bench: Bench, settings: TwinSettings, *compared: str) -> dict[str, Subject]:
    """compared: titles that the study cannot do without."""
    expect_titles(settings.titles, *compared)
    return {text: subject(bench, settings, text) for text in settings.subjects}


def expect_titles(titles: Sequence[str], *compared: str) -> None:
    missing = [title for title in compared if title not in titles]
    if missing:
        raise InputError(f"titles: this study compares {' and '.join(compared)}, got no {' and no '.join(missing)}")


def _parts(text: str) -> tuple[str, int, str, str]:
    """Data set, depth, options of the networks' names, and the path of the data where there is one."""
    found = re.fullmatch(SUBJECT, text)
    if found is None:
        raise InputError(
            f"subject '{text}': expected a data set, a depth and options, such as mnist-60-connected, cifar10-110 or "
            "imagenet-101:PATH"
        )
    return found[1], int(found[2]), found[3], found[4] or ""


def _named(title: str, depth: int, options: str, data: Dataset, text: str) -> str:
    family, _, own = KNOWN[title].partition("-")
    added = f"{options}-{own}" if own else options
    name = names.fitting(f"{family}{depth}-mnist{added}", tuple(data.shape), data.classes)
    if not name:
        raise InputError(f"{text}: no {title} takes images of {tuple(data.shape)} in {data.classes} classes")
    return name


# -- training at every rate


def twins(bench: Bench, of: Subject) -> xarray.Dataset:
    """Accuracies (network, seed, rate), NaN for networks that diverged, and all of training at the best rate.

    reached_...: of the network that is measured: after `reached_epoch`, the last one unless all rates diverged.
    """
    return bench.shared(f"twins-{of.key(bench.device)}", partial(_trained_twins, bench, of))


def _trained_twins(bench: Bench, of: Subject) -> xarray.Dataset:
    import xarray

    rates = sorted({rate for title in of.models for rate in of.rates(title)}, reverse=True)
    shape = (len(of.models), len(of.seeds))
    along = {name: numpy.full((*shape, of.epochs), numpy.nan) for name in ("loss", "train_accuracy", "test_accuracy")}
    accuracies = {name: numpy.full((*shape, len(rates)), numpy.nan) for name in ("train", "test")}
    status = numpy.full((*shape, len(rates)), NOT_TRAINED, dtype=object)
    reached = {name: numpy.full(shape, numpy.nan) for name in ("best_rate", "epoch", "train_accuracy", "test_accuracy")}
    for row, title in enumerate(of.models):
        for column, seed in enumerate(of.seeds):
            here = row, column
            found = {rate: of.trained(bench, title, seed, rate) for rate in of.rates(title)}
            for rate, network in found.items():
                place = (*here, rates.index(rate))
                status[place] = network.history.status
                if not network.diverged:
                    accuracies["train"][place] = accuracy(network.model, of.data.train)
                    accuracies["test"][place] = network.test_accuracy
            best, epoch = _best(found, dict(zip(rates, accuracies["train"][here], strict=True)), of.epochs)
            reached["best_rate"][here], reached["epoch"][here] = best, epoch
            model = _at(of, bench.device, found[best], title, seed, best, epoch)
            reached["train_accuracy"][here] = accuracy(model, of.data.train)
            reached["test_accuracy"][here] = accuracy(model, of.data.test)
            history = found[best].history.to_dataset()
            for name, values in along.items():
                values[here][: history.sizes["epoch"]] = history[name].values
    papers = PAPER.get(of.text.partition(":")[0], {})
    return xarray.Dataset(
        {
            "train_accuracy": (("network", "seed", "rate"), accuracies["train"]),
            "test_accuracy": (("network", "seed", "rate"), accuracies["test"]),
            "status": (("network", "seed", "rate"), status),
            "best_rate": (("network", "seed"), reached["best_rate"]),
            "reached_epoch": (("network", "seed"), reached["epoch"].astype(int)),
            "reached_train_accuracy": (("network", "seed"), reached["train_accuracy"]),
            "reached_test_accuracy": (("network", "seed"), reached["test_accuracy"]),
            "loss": (("network", "seed", "epoch"), along["loss"]),
            "train_accuracy_along": (("network", "seed", "epoch"), along["train_accuracy"]),
            "test_accuracy_along": (("network", "seed", "epoch"), along["test_accuracy"]),
        },
        {"network": list(of.models), "seed": list(of.seeds), "rate": rates, "epoch": range(1, of.epochs + 1)},
        {
            **of.kind("twins"),
            "title": of.title,
            "data": of.data.name,
            "epochs": of.epochs,
            "batch": of.settings.batch,
            "depth": of.depth,
            "chance": 1 / of.data.classes,
            "paper_train": json.dumps({title: train for title, (train, _) in papers.items()}) if papers else "",
            "paper_test": json.dumps({title: test for title, (_, test) in papers.items()}) if papers else "",
            "models": json.dumps(dict(of.models)),
        },
    )


def _best(found: Mapping[float, Trained], accuracies: Mapping[float, float], epochs: int) -> tuple[float, int]:
    """The rate of the highest train accuracy; where all diverged, the one that came farthest, and its last look."""
    finished = [rate for rate, network in found.items() if not network.diverged]
    if finished:
        return max(finished, key=lambda rate: accuracies[rate]), epochs
    last = {rate: max(network.snapshots, default=0) for rate, network in found.items()}
    farthest = max(sorted(last), key=lambda rate: last[rate])
    return farthest, last[farthest]


def _at(of: Subject, device: str, found: Trained, title: str, seed: int, rate: float, epoch: int) -> BlockNetwork | Any:
    """A network as it was after so many epochs, in evaluation mode."""
    if epoch == 0:
        return of.network(title, seed, rate, device).initial().eval()
    return found.model if epoch == of.epochs and not found.diverged else found.at(epoch)


@dataclass(frozen=True)
class Reached:
    """A network at its best rate."""

    of: Subject
    title: str
    seed: int
    rate: float
    epoch: int  # the last one that it came to
    trained: Trained
    device: str

    @property
    def looks(self) -> tuple[int, ...]:
        """Epochs that there are weights of: before the training, along it, at last."""
        return tuple(sorted({0, *self.trained.snapshots, self.epoch}))

    def at(self, epoch: int) -> BlockNetwork | Any:
        return _at(self.of, self.device, self.trained, self.title, self.seed, self.rate, epoch)


def reached(bench: Bench, of: Subject, title: str, seed: int, among: xarray.Dataset) -> Reached:
    """among: the subject's twins."""
    chosen = among.sel(network=title, seed=seed)
    rate, epoch = float(chosen["best_rate"]), int(chosen["reached_epoch"])
    if epoch < of.epochs:
        name = f"{of.models[title]}, seed {seed}"
        bench.note(f"{name}, diverged at all rates: it is measured after {epoch} of {of.epochs} epochs")
    return Reached(of, title, seed, rate, epoch, of.trained(bench, title, seed, rate), bench.device)


# -- condition numbers, layer by layer


def layer_conditions(bench: Bench, of: Subject) -> xarray.Dataset:
    """Of weights and of the states that layers pass on, (network, seed, layer).

    weight_infinity, hidden_infinity: from where on a condition number is numerically infinite. between: whether the
    state is one between blocks.
    """
    return bench.shared(f"conditions-{of.key(bench.device)}", partial(_measured_conditions, bench, of))


def _measured_conditions(bench: Bench, of: Subject) -> xarray.Dataset:
    import xarray

    images, _ = of.samples(bench.device)
    among = twins(bench, of)
    rows: list[dict[str, numpy.ndarray]] = []
    progress, total = bench.steps(f"condition numbers of {of.title}"), len(of.models) * len(of.seeds)
    for title in of.models:
        for seed in of.seeds:
            progress(len(rows), total)
            network = reached(bench, of, title, seed, among)
            rows.append(conditions(network.at(network.epoch), images))
    if any((row["hidden_full_rank"] == len(images)).any() for row in rows):
        bench.note(
            f"{of.title}: {len(images)} images are no more than some states have units, which limits their ranks"
        )
    shape = (len(of.models), len(of.seeds), -1)
    return xarray.Dataset(
        {
            name: (("network", "seed", "layer"), numpy.array([row[name] for row in rows]).reshape(shape))
            for name in rows[0]
        },
        {"network": list(of.models), "seed": list(of.seeds), "layer": range(rows[0]["between"].size)},
        {
            **of.kind("layer_conditions"),
            "title": of.title,
            "data": of.data.name,
            "reduction": REDUCTION,
            "samples": len(images),
        },
    )


def conditions(model: BlockNetwork | Any, images: Tensor) -> dict[str, numpy.ndarray]:
    """Of one network, an entry a layer, without the weights of shortcuts; the model is in float64 afterwards."""
    found = conditioning(model.double(), images.double()).sel(reduction=REDUCTION)
    layers = [str(name) for name in found["layer"].values if "shortcut" not in str(name) and name != OUTPUT]
    weights = found.sel(weight=[f"{layer}.weight" for layer in layers])
    states = found.sel(layer=[*layers[1:], OUTPUT])
    blocks = [_block(layer, model) for layer in layers]
    return {
        "weight_condition": weights["weight_condition"].values,
        "weight_status": weights["weight_status"].values,
        "weight_infinity": numpy.array([_infinity(_shape(text)) for text in weights["weight_shape"].values]),
        "hidden_condition": states["state_condition"].values,
        "hidden_status": states["state_status"].values,
        "hidden_infinity": numpy.array([_infinity([max(_shape(text)), 1]) for text in states["layer_shape"].values]),
        "hidden_rank": states["state_rank"].values,
        "hidden_full_rank": states["state_full_rank"].values,
        "dead_units": states["state_zero_units"].values,
        "between": numpy.array([one != other for one, other in zip(blocks, [*blocks[1:], blocks[-1]], strict=True)]),
    }


def _block(layer: str, model: BlockNetwork) -> str:
    return next((block for block in model.blocks if layer.startswith(f"{block}.")), layer)


def _shape(text: str) -> list[int]:
    return [int(size) for size in str(text).split(" x ")]


def _infinity(shape: Sequence[int]) -> float:
    """1 / (eps of float64 times the longest side of an unfolding)."""
    entries = math.prod(shape)
    return 1 / (torch.finfo(torch.float64).eps * max(max(size, entries // size) for size in shape))


def logarithms(dataset: xarray.Dataset, what: str) -> xarray.DataArray:
    """log10 of condition numbers of "weight" or "hidden"; infinite ones count as numerical infinity."""
    import xarray

    value = dataset[f"{what}_condition"]
    finite = value.where(~numpy.isinf(value), dataset[f"{what}_infinity"])
    return xarray.DataArray(numpy.log10(finite.values), finite.coords, finite.dims)


def medians(dataset: xarray.Dataset, what: str, title: str) -> numpy.ndarray:
    """Of logarithms over layers, one value a seed; of hidden states those between blocks."""
    values = logarithms(dataset, what).sel(network=title)
    if what == "hidden":
        values = values.isel(layer=between(dataset))
    return values.median("layer", skipna=False).values


def between(dataset: xarray.Dataset) -> numpy.ndarray:
    """Places of the layers whose states are between blocks, which are the same in all networks."""
    return numpy.flatnonzero(dataset["between"].values.reshape(-1, dataset.sizes["layer"])[0])


# -- evidence

Quantity = Callable[["xarray.Dataset"], numpy.ndarray]  # one value a seed


def gathered(
    found: Mapping[str, xarray.Dataset],
    deciding: Sequence[str],
    quantities: Mapping[str, Quantity],
) -> dict[str, Any]:
    """Quantities of deciding subjects one after another, and of each other subject beside them."""
    judged = {text: dataset for text, dataset in found.items() if text in (deciding or found)}
    values: dict[str, Any] = {
        "seeds": min(dataset.sizes["seed"] for dataset in judged.values()),
        "networks": ", ".join(f"{plain(text)} ({dataset.attrs['data']})" for text, dataset in judged.items()),
    }
    for name, quantity in quantities.items():
        values[name] = [float(value) for dataset in judged.values() for value in quantity(dataset)]
    for text, dataset in found.items():
        if text not in judged:
            values |= {f"{name}, {plain(text)}": [*map(float, of(dataset))] for name, of in quantities.items()}
    return values


def plain(text: str) -> str:
    """A subject without the path of its data."""
    return text.partition(":")[0]
