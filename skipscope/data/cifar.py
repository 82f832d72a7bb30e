"""CIFAR-10 and CIFAR-100, in the publisher's binary and python layouts.

An image is 3,072 bytes: the red, green and blue planes of 32 x 32, row by row. In the binary layout a record is the
label byte and the image; in CIFAR-100 the coarse label byte comes first. We use the fine labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from skipscope.data.dataset import Dataset, Images
from skipscope.data.pickles import read_pickle
from skipscope.errors import InputError

PIXELS = 3 * 32 * 32

CIFAR10_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@dataclass(frozen=True)
class Layout:
    """What distinguishes the two sets. Files are named without their suffix: `.bin` in the binary layout, none in the
    python layout."""

    name: str
    train: tuple[str, ...]
    test: str
    limits: tuple[int, ...]  # of the label bytes of a binary record; the last is the one we use
    key: str  # of the labels in a pickle
    text_names: str  # file of class names, binary layout
    pickled_names: tuple[str, str]  # file and key of the class names, python layout
    class_names: tuple[str, ...]  # where neither file is there

    @property
    def classes(self) -> int:
        return self.limits[-1]

    @property
    def files(self) -> tuple[str, ...]:
        return (*self.train, self.test)

    @property
    def expected(self) -> str:
        return ", ".join(f"{name}.bin" for name in self.files) + " (or, in the python layout, without .bin)"


CIFAR10 = Layout(
    "cifar10",
    tuple(f"data_batch_{number}" for number in range(1, 6)),
    "test_batch",
    (10,),
    "labels",
    "batches.meta.txt",
    ("batches.meta", "label_names"),
    CIFAR10_NAMES,
)
CIFAR100 = Layout(
    "cifar100",
    ("train",),
    "test",
    (20, 100),
    "fine_labels",
    "fine_label_names.txt",
    ("meta", "fine_label_names"),
    tuple(map(str, range(100))),
)


def present(folder: Path, layout: Layout) -> bool:
    """Whether any of the set's files is here, in either layout."""
    return any((folder / f"{name}{suffix}").is_file() for name in layout.files for suffix in (".bin", ""))


def read(folder: Path, layout: Layout) -> Dataset:
    binary = any((folder / f"{name}.bin").is_file() for name in layout.files)
    suffix, read_one = (".bin", _binary) if binary else ("", _pickled)
    for name in layout.files:
        if not (folder / f"{name}{suffix}").is_file():
            raise InputError(f"{folder}: {name}{suffix} is missing, other files of the set are there")
    splits = []
    for names in (layout.train, (layout.test,)):
        parts = [read_one(folder / f"{name}{suffix}", layout) for name in names]
        pixels = np.concatenate([part[0] for part in parts]).reshape(-1, 3, 32, 32)
        labels = np.concatenate([part[1] for part in parts])
        splits.append(Images(torch.from_numpy(pixels), torch.from_numpy(labels)))
    return Dataset(layout.name, _class_names(folder, layout, binary), splits[0], splits[1], source=str(folder))


def _binary(path: Path, layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Pixels (N, 3072) and labels (N,) of one file."""
    record = len(layout.limits) + PIXELS
    try:
        content = np.fromfile(path, dtype=np.uint8)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    if content.size == 0 or content.size % record:
        raise InputError(
            f"{path}: {content.size} bytes are no whole number of {layout.name} records of {record}; cut short?"
        )
    records = content.reshape(-1, record)
    for labels, limit in zip(records.T, layout.limits, strict=False):  # the columns behind them are pixels
        if labels.max() >= limit:
            raise InputError(
                f"{path}: label {int(labels.max())} in record {int(labels.argmax())}; expected 0 to {limit - 1}"
            )
    return records[:, len(layout.limits) :], records[:, len(layout.limits) - 1].astype(np.int64)


def _pickled(path: Path, layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    content = read_pickle(path)
    pixels, labels = content.get("data"), content.get(layout.key)
    if not isinstance(pixels, np.ndarray) or pixels.ndim != 2 or pixels.shape[1] != PIXELS or len(pixels) == 0:
        raise InputError(f"{path}: expected 'data', an array of bytes N x {PIXELS}, as in {layout.name}")
    if not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise InputError(f"{path}: expected '{layout.key}', a list of numbers, as in {layout.name}")
    if len(labels) != len(pixels):
        raise InputError(f"{path}: {len(pixels)} images, {len(labels)} labels")
    if wrong := [label for label in labels if not 0 <= label < layout.classes]:
        raise InputError(f"{path}: label {wrong[0]}; expected 0 to {layout.classes - 1}")
    return pixels, np.array(labels, dtype=np.int64)


def _class_names(folder: Path, layout: Layout, binary: bool) -> tuple[str, ...]:
    file, key = layout.pickled_names
    path = folder / (layout.text_names if binary else file)
    if not path.is_file():
        return layout.class_names
    if binary:
        try:
            names = path.read_text(encoding="utf-8").split()
        except UnicodeDecodeError:
            raise InputError(f"{path}: not a text file; expected {layout.classes} class names") from None
    else:
        found = read_pickle(path).get(key)
        if not isinstance(found, list) or not all(isinstance(name, bytes | str) for name in found):
            raise InputError(f"{path}: expected '{key}', a list of names")
        names = [name.decode("latin-1") if isinstance(name, bytes) else name for name in found]
    if len(names) != layout.classes:
        raise InputError(f"{path}: {len(names)} class names; expected {layout.classes}")
    return tuple(names)
