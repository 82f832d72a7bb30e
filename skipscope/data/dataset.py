"""What every data set looks like, whatever it was read from.

A `Split` gives float images on its device, normalised, for any choice of samples. Small sets are tensors (`Images`) and
can live on the GPU as a whole; image folders are read when asked (`files.py`).

A subset is chosen by labels alone, so that images need not be read. Everything is drawn on the CPU from its own
generator: the choice is the same whatever device the data is on, and the random state of the program is not touched.
"""

from __future__ import annotations

import dataclasses
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor

from skipscope.data.specs import written_constants
from skipscope.errors import InputError


@dataclass(frozen=True)
class Normalisation:
    """(pixel - mean) / deviation for pixels in [0, 1], per channel; empty: the pixels as they are."""

    mean: tuple[float, ...] = ()
    deviation: tuple[float, ...] = ()

    def __call__(self, images: Tensor) -> Tensor:
        if not self.mean:
            return images
        return (images - _per_channel(self.mean, images)) / _per_channel(self.deviation, images)

    def undo(self, images: Tensor) -> Tensor:
        """From normalised images to pixels in [0, 1]."""
        if not self.mean:
            return images
        return images * _per_channel(self.deviation, images) + _per_channel(self.mean, images)


def _per_channel(values: tuple[float, ...], images: Tensor) -> Tensor:
    """(C, 1, 1). Filled on the device: a tensor made from numbers would be copied there, and the copy waited for."""
    return torch.stack([images.new_full((1, 1), value) for value in values])


AS_THEY_ARE = Normalisation()
IMAGENET = Normalisation((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
PUBLISHED = {
    "mnist": Normalisation((0.1307,), (0.3081,)),
    "fashion-mnist": Normalisation((0.2860,), (0.3530,)),
    "cifar10": Normalisation((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": Normalisation((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    "imagenette": IMAGENET,
    "imagenet": IMAGENET,
}


def choose(asked: str, name: str, channels: int) -> Normalisation:
    """asked: default, none, imagenet, dataset, or m1,m2,m3/s1,s2,s3. name: of the data set."""
    if asked == "default":
        return IMAGENET if channels == 3 else AS_THEY_ARE
    if asked == "none":
        return AS_THEY_ARE
    if asked == "dataset":
        if name not in PUBLISHED:
            raise InputError(f"normalise: {name} has no published constants; {', '.join(PUBLISHED)} have")
        return PUBLISHED[name]
    chosen = IMAGENET if asked == "imagenet" else Normalisation(*written_constants(asked))
    if len(chosen.mean) != channels:
        raise InputError(
            f"normalise '{asked}' is for {len(chosen.mean)} channel(s); the images of {name} have {channels}"
        )
    return chosen


class Split(ABC):
    """Labelled images, one part (training or test) of a data set; its kinds are dataclasses."""

    labels: Tensor  # (N,) int64
    normalisation: Normalisation

    def __len__(self) -> int:
        return len(self.labels)

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Of one image: C, H, W."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where `images` come out and `labels` are."""

    @abstractmethod
    def images(self, chosen: Tensor | slice = slice(None)) -> Tensor:
        """(k, C, H, W) float32, normalised."""

    @abstractmethod
    def to(self, device: torch.device | str) -> Self: ...

    @abstractmethod
    def select(self, chosen: Tensor) -> Self:
        """The samples with these numbers, in this order."""

    def with_labels(self, labels: Tensor) -> Self:
        return dataclasses.replace(self, labels=labels.to(self.device))  # type: ignore[type-var]

    def with_normalisation(self, normalisation: Normalisation) -> Self:
        return dataclasses.replace(self, normalisation=normalisation)  # type: ignore[type-var]

    @abstractmethod
    def digest(self) -> str:
        """A hash of all that determines the images and labels."""


@dataclass(frozen=True)
class Images(Split):
    """A split in memory. pixels: (N, C, H, W), bytes (then divided by 255) or floats in [0, 1]."""

    pixels: Tensor
    labels: Tensor
    normalisation: Normalisation = AS_THEY_ARE

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.pixels.shape[1:])

    @property
    def device(self) -> torch.device:
        return self.pixels.device

    def images(self, chosen: Tensor | slice = slice(None)) -> Tensor:
        pixels = self.pixels[chosen]
        floats = pixels.float() / 255 if pixels.dtype == torch.uint8 else pixels
        return self.normalisation(floats)

    def to(self, device: torch.device | str) -> Images:
        return dataclasses.replace(self, pixels=self.pixels.to(device), labels=self.labels.to(device))

    def select(self, chosen: Tensor) -> Images:
        chosen = chosen.to(self.device)
        return dataclasses.replace(self, pixels=self.pixels[chosen], labels=self.labels[chosen])

    def digest(self) -> str:
        found = hashlib.sha256(repr((self.pixels.dtype, self.pixels.shape, self.normalisation)).encode())
        for tensor in (self.pixels, self.labels):
            found.update(tensor.cpu().contiguous().numpy().tobytes())
        return found.hexdigest()


@dataclass(frozen=True)
class Dataset:
    """A training and a test split with one set of classes."""

    name: str  # with what was done to it, e.g. "mnist, classes 0 to 4, 3000 samples"
    class_names: tuple[str, ...]
    train: Split
    test: Split
    source: str = field(default="embedded")  # where the files were, in words
    stands_in_for: str = ""  # the data set that was asked for and not found

    @property
    def classes(self) -> int:
        return len(self.class_names)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.test.shape

    def to(self, device: torch.device | str) -> Dataset:
        return dataclasses.replace(self, train=self.train.to(device), test=self.test.to(device))

    def with_normalisation(self, normalisation: Normalisation) -> Dataset:
        train, test = (split.with_normalisation(normalisation) for split in (self.train, self.test))
        return dataclasses.replace(self, train=train, test=test)

    def subset(
        self,
        classes: Sequence[int | str] | None = None,
        samples: int | None = None,
        test_samples: int | None = None,
        seed: int = 0,
    ) -> Dataset:
        """Fewer classes, fewer samples, or both.

        classes: numbers or names; they become 0, 1, ... in the order given. samples, test_samples: how many to draw
        from the training and the test split, as equally from every class as the number permits. With one seed, the
        smaller draw is part of the larger.
        """
        kept = list(range(self.classes)) if classes is None else _class_numbers(classes, self.class_names)
        names = tuple(self.class_names[number] for number in kept)
        name = self.name if classes is None else f"{self.name}, {_in_words(kept)}"
        splits: list[Split] = []
        for split, count, what in ((self.train, samples, "samples"), (self.test, test_samples, "test samples")):
            if classes is not None:
                split = _of_classes(split, kept)
            if count is not None:
                split = split.select(_balanced(split.labels, names, count, seed, f"{self.name}: {what}"))
                name = f"{name}, {count} {what}"
            splits.append(split)
        if (samples, test_samples) != (None, None) and seed != 0:
            name = f"{name}, seed {seed}"
        return dataclasses.replace(self, name=name, class_names=names, train=splits[0], test=splits[1])

    def with_random_labels(self, seed: int = 0, share: float = 1.0) -> Dataset:
        """A share of the training labels replaced by ones drawn uniformly; the test split keeps its own.

        With one seed, the smaller share is part of the larger.
        """
        if not 0 < share <= 1:
            raise InputError(f"the share of random labels: expected above 0 and at most 1, got {share}")
        generator = torch.Generator("cpu").manual_seed(seed)
        drawn = torch.randint(self.classes, (len(self.train),), generator=generator, device="cpu")
        order = torch.randperm(len(self.train), generator=generator, device="cpu")
        replaced = order < round(share * len(self.train))
        train = self.train.with_labels(torch.where(replaced, drawn, self.train.labels.cpu()))
        which = "random labels" if share == 1 else f"{100 * share:g} % random labels"
        return dataclasses.replace(self, name=f"{self.name}, {which}, seed {seed}", train=train)

    def test_batch(self, size: int, seed: int = 0) -> Tensor:
        """`size` test images drawn without repetition."""
        return self.test.images(self.test_choice(size, seed))

    def test_examples(self, size: int, seed: int = 0) -> tuple[Tensor, Tensor]:
        """The images of `test_batch` and their labels."""
        chosen = self.test_choice(size, seed)
        return self.test.images(chosen), self.test.labels[chosen]

    def test_choice(self, size: int, seed: int = 0) -> Tensor:
        """The numbers of the samples of `test_batch`."""
        if not 1 <= size <= len(self.test):
            raise InputError(f"{self.name} has {len(self.test)} test images; asked for {size}")
        generator = torch.Generator("cpu").manual_seed(seed)
        return torch.randperm(len(self.test), generator=generator, device="cpu")[:size].to(self.test.device)

    def describe(self) -> dict[str, object]:
        """For run.json and for the key of a trained network."""
        return {
            "name": self.name,
            "classes": self.classes,
            "shape": list(self.shape),
            "train": len(self.train),
            "test": len(self.test),
            "stands_in_for": self.stands_in_for,
            "digest": hashlib.sha256((self.train.digest() + self.test.digest()).encode()).hexdigest(),
        }


def _class_numbers(classes: Sequence[int | str], names: tuple[str, ...]) -> list[int]:
    """Numbers of the classes that are given by number or by name."""
    if isinstance(classes, str):
        raise InputError(f"classes: expected a list of numbers or names, got the string '{classes}'")
    numbers = []
    for given in classes:
        if isinstance(given, str) and given in names:
            numbers.append(names.index(given))
        elif not isinstance(given, str) and 0 <= given < len(names):
            numbers.append(int(given))
        else:
            known = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
            raise InputError(f"no class {given!r}; expected 0 to {len(names) - 1} or a name ({known})")
    if not numbers:
        raise InputError("classes: an empty list leaves nothing")
    if repeated := [names[number] for number in dict.fromkeys(numbers) if numbers.count(number) > 1]:
        raise InputError(f"classes: {', '.join(repeated)} given more than once")
    return numbers


def _in_words(classes: list[int]) -> str:
    """For a data set's name: 'classes 0 to 4', 'classes 3, 5', 'class 7'."""
    if len(classes) == 1:
        return f"class {classes[0]}"
    if len(classes) > 2 and classes == list(range(classes[0], classes[-1] + 1)):
        return f"classes {classes[0]} to {classes[-1]}"
    return f"classes {', '.join(str(number) for number in classes)}"


def _of_classes(split: Split, classes: list[int]) -> Split:
    """The samples of these classes, in their old order, relabelled 0, 1, ... in the order of `classes`."""
    labels = split.labels.cpu()
    new = torch.full((max(int(labels.max()), *classes) + 1,), -1, dtype=torch.int64, device="cpu")
    new[torch.tensor(classes, device="cpu")] = torch.arange(len(classes), device="cpu")
    relabelled = new[labels]
    chosen = torch.nonzero(relabelled >= 0).flatten()
    return split.select(chosen).with_labels(relabelled[chosen])


def _balanced(labels: Tensor, names: tuple[str, ...], count: int, seed: int, what: str) -> Tensor:
    """Numbers of `count` samples, equally many from each class; a remainder goes to the first classes.

    In their old order. One permutation per class is drawn whatever `count` is: smaller draws are parts of larger ones.
    """
    if count < len(names):
        raise InputError(f"{what}: {count} is less than one for each of the {len(names)} classes")
    labels = labels.cpu()
    generator = torch.Generator("cpu").manual_seed(seed)
    drawn = []
    for number, name in enumerate(names):
        share = count // len(names) + (number < count % len(names))
        members = torch.nonzero(labels == number).flatten()
        if len(members) < share:
            raise InputError(
                f"{what}: {count} in equal parts needs {share} of class '{name}', "
                f"which has {len(members)}; ask for fewer"
            )
        order = torch.randperm(len(members), generator=generator, device="cpu")
        drawn.append(members[order[:share]])
    return torch.cat(drawn).sort().values
