"""The networks and images that the studies of paper D measure.

Small networks are trained on digits, one per seed, with projections as shortcuts, as in the paper's own source. Large
ones are networks for CIFAR-10 whose weights are given: `weights` is a file of a ResNet-56, or NAME:FILE, several with
commas between them. Spectra of them are measured once for the studies that share them; below are the parts of these
datasets that claims speak of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated

import torch
import xarray
from torch import Tensor

from skipscope.constraints import Constrained, Expectation, at_least, each, not_empty
from skipscope.data import Dataset
from skipscope.errors import InputError
from skipscope.measure import spectra
from skipscope.models.names import build, parse
from skipscope.models.request import require_weights
from skipscope.models.resnet import ResNet
from skipscope.models.weights import load_weights
from skipscope.papers.d.subjects import RESNET110, Found, on_subject
from skipscope.papers.kit import Bench, Claim, Measured, Subject
from skipscope.runs.files import digest
from skipscope.runs.sweep import Task
from skipscope.trace import Trunk, trace
from skipscope.training import Settings

RESNET110_TRAINING = Settings(
    epochs=80, batch=128, rate=0.1, nesterov=True, warmup=5, augmentation="crop-flip", precision="bfloat16"
)
TRACED_WITH = 2  # images; a trunk works for any number of them


@dataclass(frozen=True)
class NetworkSettings(Constrained):
    """Settings that the studies of paper D share."""

    model: str = "resnet32-digits-projection"
    epochs: Annotated[int, at_least(1)] = 15
    networks: Annotated[int, at_least(0)] = 5  # small ones, each from its own seed
    images: Annotated[int, at_least(1)] = 5
    weights: tuple[str, ...] = ()  # of large networks: FILE of a ResNet-56, or NAME:FILE
    data: str = "cifar10"  # of the large networks
    train110: bool = False  # train a ResNet-110 where no weights of one are given; needs a GPU
    units: tuple[str, ...] = ()  # of the large networks: all where none are named
    # Of each large network in turn; the last number is used for all that follow.
    large_images: Annotated[tuple[int, ...], not_empty, each(at_least(1))] = (5,)

    def expectations(self) -> Iterator[Expectation]:
        require_digits(self.model)
        for text in self.weights:
            _name_and_file(text)  # a wrong one is reported before any work
        yield from super().expectations()


@dataclass(frozen=True)
class MeasuredNetwork:
    """A trained network in evaluation mode, with the test images at which it is measured."""

    key: str  # begins the names of its datasets
    title: str
    model: ResNet
    data: Dataset
    count: int  # of images
    units: tuple[str, ...]  # none named: all
    seed: int  # of the choice of images
    large: bool
    subject: str  # that its numbers are evidence for
    network_seed: int | None = None  # of its training; None where weights were given

    @cached_property
    def images(self) -> Tensor:
        return self._to_model(self.data.test_batch(self.count, self.seed))

    def labelled(self, count: int) -> tuple[Tensor, Tensor]:
        """More test images, with their labels."""
        images, labels = self.data.test_examples(count, self.seed)
        return self._to_model(images), self._to_model(labels)

    @cached_property
    def trunk(self) -> Trunk:
        return trace(self.model, self._to_model(self.data.test_batch(TRACED_WITH, self.seed)))

    @property
    def names(self) -> list[str]:
        """Of the units to measure."""
        return list(self.units) or [unit.name for unit in self.trunk.units]

    def middle_unit(self, stage: int) -> str:
        """The middle unit of a stage, counted from 1: the fifth of nine in ResNet-56. Only the first down-samples."""
        units = self.trunk.stages[stage - 1].units
        return units[len(units) // 2].name

    @torch.no_grad()
    def right_answers(self) -> int:
        """How many of its images are classified correctly: a sign that weights and images belong together."""
        chosen = self.data.test_choice(self.count, self.seed)
        answers = self.model(self.images).argmax(1).cpu()
        return int((answers == self.data.test.labels[chosen].cpu()).sum())

    def task(self, compute: Callable[[MeasuredNetwork], xarray.Dataset], name: str = "") -> Task:
        """A dataset of this network, with attributes that say what it was measured on. name: its key by default."""
        return Task(name or self.key, partial(self.measured, compute))

    def measured(self, compute: Callable[[MeasuredNetwork], xarray.Dataset]) -> xarray.Dataset:
        trained = {} if self.network_seed is None else {"network_seed": self.network_seed}
        large, whole = int(self.large and not self.units), int(not self.large or not self.units)
        about = {"network": self.title, "subject": self.subject, "large": large, "whole": whole}
        return compute(self).assign_attrs({**about, **trained})

    def __getstate__(self) -> dict[str, object]:
        """Where it is sent to another process: without what it can make again."""
        return {name: value for name, value in vars(self).items() if name not in ("trunk", "images")}

    def _to_model(self, tensor: Tensor) -> Tensor:
        return tensor.to(next(self.model.parameters()).device)


def measured_networks(bench: Bench, settings: NetworkSettings) -> Iterator[MeasuredNetwork]:
    """One after another; a large network is loaded when it is its turn."""
    data = bench.data("digits")
    seeds = tuple(bench.seeds(settings.networks))
    small = Subject(settings.model, settings.model, data, Settings(epochs=settings.epochs), seeds)
    for number, (seed, found) in enumerate(small.trained_all(bench).items()):
        if found.diverged:
            bench.note(f"{settings.model}, seed {seed}, diverged in training and was left out")
            continue
        title = f"{small.title}, seed {seed} ({found.test_accuracy:.1%})"
        yield MeasuredNetwork(
            f"digits-{number}",
            title,
            found.model,
            data,
            settings.images,
            (),
            bench.seed,
            large=False,
            subject=settings.model,
            network_seed=seed,
        )
    yield from _large_networks(bench, settings)


def _large_networks(bench: Bench, settings: NetworkSettings) -> Iterator[MeasuredNetwork]:
    files = [_name_and_file(text) for text in settings.weights]
    if not files and not settings.train110:
        bench.note("no weights of a network for CIFAR-10 were given, so there are small networks alone")
        return
    data = bench.data(settings.data)
    if data.stands_in_for:
        bench.note(f"{data.stands_in_for} was not found, so the networks with given weights were left out")
        return

    def large(
        key: str, title: str, model: ResNet, number: int, subject: str, seed: int | None = None
    ) -> MeasuredNetwork:
        images = settings.large_images[min(number, len(settings.large_images) - 1)]
        return MeasuredNetwork(key, title, model, data, images, settings.units, bench.seed, True, subject, seed)

    names = [name for name, _ in files]
    for number, (name, file) in enumerate(files):
        bench.run.used(f"weights {file}", {"sha256": digest(file)})
        model = build(name).eval()
        load_weights(model, file)
        title = name if names.count(name) == 1 else f"{name} ({file.stem})"
        yield large(f"{name}-{number}", title, model.to(bench.device), number, f"{name}, given weights")
    if settings.train110 and RESNET110 not in names:
        (seed,) = bench.seeds(1)
        subject = Subject(RESNET110, RESNET110, data.to(bench.device), RESNET110_TRAINING, (seed,))
        found = subject.trained(bench, seed)
        title, trained = f"{RESNET110} ({found.test_accuracy:.1%})", f"{RESNET110}, {RESNET110_TRAINING.epochs} epochs"
        yield large(RESNET110, title, found.model, len(files), trained, seed)


def require_digits(name: str) -> None:
    """Small networks are measured on digits or noise of that size, and their batch norms are needed."""
    options = parse(name)
    if options["input_shape"] != (1, 8, 8) or not options.get("batch_norm", True):
        raise InputError(f"model {name}: expected a network for digits with batch norms, such as resnet20-digits")


def _name_and_file(text: str) -> tuple[str, Path]:
    name, colon, file = text.partition(":")
    if not colon:
        name, file = "resnet56-cifar", text
    if not name.endswith("cifar") and "-cifar-" not in name:
        raise InputError(f"weights {text}: expected FILE or NAME:FILE of a network for cifar, as resnet110-cifar:a.pt")
    require_weights(Path(file))
    return name, Path(file)


# -- their spectra

# D.spectra and D.proportions read the same spectra.
SPECTRA_STUDIES = ("D.spectra", "D.proportions")
SPECTRA_PRESETS = {
    "smoke": NetworkSettings("resnet14-digits-n8", epochs=1, networks=1, images=2),
    "quick": NetworkSettings(units=("stage3.4", "stage3.6", "stage3.8"), large_images=(2,)),
    "full": NetworkSettings(large_images=(5, 2), train110=True),
    "paper": NetworkSettings(train110=True),
}


def spectra_of_networks(bench: Bench, settings: NetworkSettings) -> list[xarray.Dataset]:
    """For each network the singular values of its units and stages at its images, measured once per run."""
    networks = measured_networks(bench, settings)
    tasks = (network.task(partial(_spectra, bench), f"spectra-{network.key}") for network in networks)
    return bench.sweep(tasks, studies=SPECTRA_STUDIES)


def _spectra(bench: Bench, network: MeasuredNetwork) -> xarray.Dataset:
    found = spectra(
        network.trunk,
        network.images,
        units=network.names,
        stages=[stage.index for stage in network.trunk.stages if not network.units],
        progress=bench.steps(f"spectra of {network.title}"),
    )
    return found.assign_attrs(right_answers=f"{network.right_answers()} of {network.count}")


def evidence_by_subject(
    datasets: Iterable[xarray.Dataset], reduced: Callable[[xarray.Dataset], Found]
) -> dict[Claim, list[Measured]]:
    """reduced: what the networks of one subject, along `network`, are reduced to: one number each.

    Networks of which only some units were measured are in the run and in its report, and are no evidence.
    """
    by_subject: dict[str, list[xarray.Dataset]] = {}
    for data in datasets:
        if data.attrs["whole"]:
            by_subject.setdefault(str(data.attrs["subject"]), []).append(data)
    evidence: dict[Claim, list[Measured]] = {}
    for subject, own in by_subject.items():
        seeds = [int(data.attrs["network_seed"]) for data in own if "network_seed" in data.attrs]
        pieces = [data.drop_vars("sample", errors="ignore") for data in own]  # every network has its own images
        found = reduced(xarray.concat(pieces, "network", combine_attrs="drop"))
        for claim, measured in on_subject(subject, found, len(own), seeds).items():
            evidence.setdefault(claim, []).extend(measured)
    return evidence


def regular_units(dataset: xarray.Dataset) -> xarray.Dataset:
    """Units that keep the shape of the state: their skip is the identity."""
    return dataset.isel(unit=((dataset["kind"] == "unit") & (dataset["skip"] == "identity")).values)
