"""Data sets by name, as `specs.py` reads it: `NAME`, `NAME:PATH` or `NAME/CLASSES`.

Without a path they are looked for under $SKIPSCOPE_DATA, else in the user's cache, and fetched into it where
torchvision can. With a path nothing is fetched: who says where the files are wants to know when they are not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from skipscope.data import cifar, files, idx
from skipscope.data.dataset import Dataset, Images, choose
from skipscope.data.download import KNOWN, ROOT, DownloadError, check_manifest, download, root
from skipscope.data.specs import IMAGE_FOLDER, NotFound, parse, require_path
from skipscope.errors import InputError

DIGITS = 10  # classes
BRIGHTEST = 16  # the grey levels of the digits are counts of black pixels in 4 x 4 blocks
TEST_EVERY = 5  # digits of a class, one of them is a test image


@dataclass(frozen=True)
class Entry:
    """How one data set is found and read."""

    title: str
    channels: int
    folders: tuple[str, ...]  # under the root, the preferred first
    present: Callable[[Path], bool]
    read: Callable[..., Dataset]  # the folder and, where `scaled`, the size of the images
    expected: str
    inside: tuple[str, ...] = ()  # further folders under a path that the user gives
    scaled: bool = False


def _idx(name: str, title: str, folder: str, class_names: tuple[str, ...]) -> Entry:
    read = partial(idx.read, name=name, class_names=class_names)
    return Entry(title, 1, (f"{folder}/raw", folder), idx.present, read, idx.EXPECTED, inside=("raw",))


def _cifar(title: str, layout: cifar.Layout, *folders: str) -> Entry:
    present, read = partial(cifar.present, layout=layout), partial(cifar.read, layout=layout)
    return Entry(title, 3, folders, present, read, layout.expected)


def _image_folder(name: str, title: str, size: int, shorter_side: int, *folders: str, in_memory: bool = False) -> Entry:
    def read(folder: Path, asked: int | None) -> Dataset:
        side = size if asked is None else asked
        return files.read(folder, name, side, round(side * shorter_side / size), in_memory)

    return Entry(title, 3, folders, files.present, read, IMAGE_FOLDER, scaled=True)


ENTRIES: dict[str, Entry] = {
    "mnist": _idx("mnist", "MNIST", "MNIST", idx.DIGITS),
    "fashion-mnist": _idx("fashion-mnist", "Fashion-MNIST", "FashionMNIST", idx.FASHION),
    "cifar10": _cifar("CIFAR-10", cifar.CIFAR10, "cifar-10-batches-bin", "cifar-10-batches-py"),
    "cifar100": _cifar("CIFAR-100", cifar.CIFAR100, "cifar-100-binary", "cifar-100-python"),
    "imagenette": _image_folder(
        *("imagenette", "Imagenette", 64, 64),
        *("imagenette2-64", "imagenette2-160", "imagenette2-320", "imagenette2"),
        in_memory=True,
    ),
    "imagenet": _image_folder("imagenet", "ImageNet", 224, 256, "imagenet", "ILSVRC2012"),
    "folder": _image_folder("folder", "image folder", 224, 256),
}


def load(spec: str, normalise: str = "default", size: int | None = None) -> Dataset:
    """The data set that `spec` names.

    normalise: default (ImageNet's constants for colour, none for grey), none, imagenet, dataset, or m1,m2,m3/s1,s2,s3.
    size: of the images, for sets that are read from image folders.
    """
    wanted = parse(spec)
    if wanted.size is not None and size is not None:
        raise InputError(f"{spec} are images of {wanted.size} x {wanted.size}; leave size={size} out")
    data = _whole(wanted.name, wanted.path, normalise, wanted.size if size is None else size)
    if wanted.size is not None:
        data = dataclasses.replace(data, name=f"{data.name}{wanted.size}")
    return data if wanted.classes is None else data.subset(classes=wanted.classes)


def _whole(name: str, path: str | None, normalise: str, size: int | None) -> Dataset:
    """With all of its classes."""
    if name == "digits":
        if size is not None:
            raise InputError("digits are 8 x 8; size is for image folders")
        return digits().with_normalisation(choose(normalise, name, channels=1))
    entry = ENTRIES[name]
    if size is not None and not entry.scaled:
        raise InputError(f"{name} images have their own size; size is for image folders")
    if size is not None and size < 1:
        raise InputError(f"size: expected a positive number of pixels, got {size}")
    normalisation = choose(normalise, name, entry.channels)
    folder = _found(name, path)
    check_manifest(folder)
    data = entry.read(folder, size) if entry.scaled else entry.read(folder)
    if name == "folder":
        data = dataclasses.replace(data, name=f"folder {folder.resolve().name}")
    return data.with_normalisation(normalisation)


def load_or_digits(spec: str, normalise: str = "default", size: int | None = None) -> Dataset:
    """The data set, or where it is not at hand the embedded digits (as they are), which say what they stand in for.

    For a choice of classes stand as many digits, those with the same numbers. Malformed files, a path that holds
    nothing, and classes that no digits have are the user's to know about and still raise.
    """
    try:
        return load(spec, normalise, size)
    except NotFound:
        wanted, data = parse(spec), digits()
        if wanted.path is not None:
            raise
        if wanted.classes is not None:
            if not set(wanted.classes) <= set(range(data.classes)):
                raise
            data = data.subset(classes=wanted.classes)
        return dataclasses.replace(data, stands_in_for=spec)


def _found(name: str, path: str | None) -> Path:
    """The folder that holds the set's files."""
    entry = ENTRIES[name]
    if path is not None:
        place = Path(path).expanduser()
        # The set's own folders first: files that lie about directly could be those of its sibling.
        if folder := _look(entry, [place / name for name in (*entry.folders, "", *entry.inside)]):
            return folder
        require_path(name, path)
        within = f", or a folder {' or '.join(entry.folders)} that holds them" if entry.folders else ""
        raise NotFound(f"no {entry.title} files in {place}; expected {entry.expected}{within}")
    # Not the root itself: MNIST and Fashion-MNIST have the same file names, and only their folders tell them apart.
    places = [root() / name for name in entry.folders]
    if folder := _look(entry, places):
        return folder
    remedy = f"put them there, give {name}:PATH or set {ROOT}"
    if name not in KNOWN:
        raise NotFound(f"no {entry.title} files under {root()}; {remedy}")
    try:
        download(name, root())
    except DownloadError as error:
        raise NotFound(f"no {entry.title} files under {root()} and the download failed ({error}); {remedy}") from error
    if folder := _look(entry, places):
        return folder
    raise NotFound(f"no {entry.title} files under {root()}, though the download ended well; {remedy}")


def _look(entry: Entry, places: list[Path]) -> Path | None:
    return next((place for place in places if entry.present(place)), None)


def digits() -> Dataset:
    """The handwritten digits that scikit-learn ships: 1,797 images of 8 x 8 in ten classes, with no download.

    They stand in for larger data sets where none is at hand. Images as float32 in [0, 1], shape N, 1, 8, 8; every fifth
    image of each class is a test image.
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = torch.from_numpy(bunch.images).to(torch.float32).div(BRIGHTEST).unsqueeze(1)  # N, 1, 8, 8
    labels = torch.from_numpy(bunch.target).to(torch.int64)
    test = torch.zeros_like(labels, dtype=torch.bool)
    for label in range(DIGITS):  # counted, not drawn: the split is the same under every version of every generator
        test[torch.nonzero(labels == label).flatten()[::TEST_EVERY]] = True
    train, held_out = Images(images[~test], labels[~test]), Images(images[test], labels[test])
    return Dataset("digits", tuple(map(str, range(DIGITS))), train, held_out)
