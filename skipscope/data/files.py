"""Image folders: `train/` and `val/` (or `test/`), in each one folder of images per class.

ImageNet does not fit in memory, so a `Files` split keeps names and labels and decodes what is asked for, in a few
threads (the decoder releases Python's lock). An image is scaled so that its shorter side has a given length, then
cropped to a square in its centre: what torchvision's Resize and CenterCrop do.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from skipscope.constraints import Constrained, Expectation, at_least
from skipscope.data.dataset import AS_THEY_ARE, Dataset, Images, Normalisation, Split
from skipscope.errors import InputError

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".ppm", ".pgm", ".gif", ".tif", ".tiff", ".webp"})
TEST_FOLDERS = ("val", "test")
MOST_THREADS = 16

IMAGENETTE = {
    "n01440764": "tench",
    "n02102040": "English springer",
    "n02979186": "cassette player",
    "n03000684": "chain saw",
    "n03028079": "church",
    "n03394916": "French horn",
    "n03417042": "garbage truck",
    "n03425413": "gas pump",
    "n03445777": "golf ball",
    "n03888257": "parachute",
}


@dataclass(frozen=True)
class Files(Constrained, Split):
    """Images that are decoded when they are asked for, as colour, `size` x `size`."""

    root: Path
    names: tuple[str, ...]  # relative to the root, with slashes
    labels: Tensor
    size: Annotated[int, at_least(1)] = 224
    shorter_side: int = 256  # before the crop
    normalisation: Normalisation = AS_THEY_ARE

    def expectations(self) -> Iterator[Expectation]:
        yield (
            self.size <= self.shorter_side,
            f"size: expected at most shorter_side={self.shorter_side}, got {self.size}",
        )

    @property
    def shape(self) -> tuple[int, ...]:
        return (3, self.size, self.size)

    @property
    def device(self) -> torch.device:
        return self.labels.device

    def images(self, chosen: Tensor | slice = slice(None)) -> Tensor:
        return self.normalisation(self._decoded(chosen).to(self.device).float() / 255)

    def in_memory(self) -> Images:
        """All of it as bytes: N x 3 x size x size of them."""
        return Images(self._decoded(slice(None)).to(self.device), self.labels, self.normalisation)

    def to(self, device: torch.device | str) -> Files:
        return dataclasses.replace(self, labels=self.labels.to(device))

    def select(self, chosen: Tensor) -> Files:
        labels = self.labels[chosen.to(self.device)]
        return dataclasses.replace(self, names=tuple(self._names(chosen)), labels=labels)

    def digest(self) -> str:
        """Of names, sizes in bytes and labels: reading every image of ImageNet would take longer than most studies."""
        found = hashlib.sha256(repr((self.size, self.shorter_side, self.normalisation)).encode())
        for name, label in zip(self.names, self.labels.tolist(), strict=True):
            found.update(f"{name}\0{(self.root / name).stat().st_size}\0{label}\n".encode())
        return found.hexdigest()

    def _names(self, chosen: Tensor | slice) -> list[str]:
        if isinstance(chosen, slice):
            return list(self.names[chosen])
        # Through a range of numbers, so that masks and negative numbers mean what they mean for tensors.
        return [self.names[number] for number in torch.arange(len(self.names), device="cpu")[chosen.cpu()].tolist()]

    def _decoded(self, chosen: Tensor | slice) -> Tensor:
        """(k, 3, size, size) bytes."""
        names = self._names(chosen)
        pixels = np.empty((len(names), *self.shape), dtype=np.uint8)

        def decode(place: int) -> None:
            pixels[place] = _decode(self.root / names[place], self.size, self.shorter_side)

        with ThreadPoolExecutor(max(1, min(MOST_THREADS, _processors(), len(names)))) as threads:
            for _ in threads.map(decode, range(len(names))):
                pass
        return torch.from_numpy(pixels)


def present(folder: Path) -> bool:
    return (folder / "train").is_dir() and any((folder / name).is_dir() for name in TEST_FOLDERS)


def read(folder: Path, name: str, size: int, shorter_side: int, in_memory: bool = False) -> Dataset:
    """The classes are the folders' names in alphabetical order. shorter_side: before the crop to `size`."""
    held_out = next(test for test in TEST_FOLDERS if (folder / test).is_dir())
    classes, test_classes = (_class_folders(folder / split) for split in ("train", held_out))
    if classes != test_classes:
        differing = []
        for split, more, fewer in (("train", classes, test_classes), (held_out, test_classes, classes)):
            if only := sorted(set(more) - set(fewer)):
                differing.append(f"only in {split}/: {', '.join(only[:5])}{', ...' if len(only) > 5 else ''}")
        raise InputError(f"{folder}: train/ and {held_out}/ have different class folders; {'; '.join(differing)}")
    train, test = (_files(folder / split, classes, size, shorter_side) for split in ("train", held_out))
    names = tuple(IMAGENETTE.get(each, each) for each in classes) if name == "imagenette" else tuple(classes)
    if in_memory:
        return Dataset(name, names, train.in_memory(), test.in_memory(), source=str(folder))
    return Dataset(name, names, train, test, source=str(folder))


def _class_folders(split: Path) -> list[str]:
    names = sorted(entry.name for entry in split.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if not names:
        raise InputError(f"{split}: no folders in it; expected one folder of images per class")
    return names


def _files(split: Path, classes: list[str], size: int, shorter_side: int) -> Files:
    names: list[str] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        found = sorted(_image_names(split, name))
        if not found:
            raise InputError(f"{split / name}: no images in it; expected files that end in .jpg, .jpeg, .png, ...")
        names += found
        labels += [label] * len(found)
    return Files(split, tuple(names), torch.tensor(labels, dtype=torch.int64, device="cpu"), size, shorter_side)


def _image_names(split: Path, folder: str) -> Iterator[str]:
    """Relative to the split, at any depth."""
    for place, _, files in os.walk(split / folder):
        inside = Path(place).relative_to(split).as_posix()
        for file in files:
            if os.path.splitext(file)[1].lower() in SUFFIXES and not file.startswith("."):  # noqa: PTH122 - a million
                yield f"{inside}/{file}"


def _decode(path: Path, size: int, shorter_side: int) -> np.ndarray:
    """(3, size, size) bytes."""
    from PIL import Image

    try:
        with Image.open(path) as opened:
            image = opened.convert("RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(f"{path}: cannot be decoded as an image ({error})") from error
    width, height = image.size
    if min(width, height) != shorter_side:
        longer = int(shorter_side * max(width, height) / min(width, height))
        width, height = (shorter_side, longer) if width <= height else (longer, shorter_side)
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = round((width - size) / 2), round((height - size) / 2)
    image = image.crop((left, top, left + size, top + size))
    return np.asarray(image).transpose(2, 0, 1)


def _processors() -> int:
    """That this process may use, where the system says."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
