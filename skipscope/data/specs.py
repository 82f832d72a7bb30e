"""What a user writes about data: sets, normalisation, augmentation. They are read without torch, so that a
mistake is reported at once.

A data set is `NAME` or `NAME:PATH`; `NAME/CLASSES` is some of its classes, as in `mnist/0,1,2`.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from dataclasses import dataclass
from pathlib import Path

from skipscope.errors import InputError

NAMES = ("digits", "mnist", "fashion-mnist", "cifar10", "cifar100", "imagenette", "imagenet", "folder")
IMAGE_FOLDER = "the folders train/ and val/ (or test/) with one folder of images per class in each"
NORMALISATIONS = ("default", "none", "imagenet", "dataset")
AUGMENTATIONS = ("none", "crop", "crop-flip", "paper-a")


class NotFound(InputError):  # noqa: N818 - the name says what happened
    """A data set's files are not there; malformed files are a plain InputError."""


@dataclass(frozen=True)
class Spec:
    """A data set, as a user writes it."""

    name: str  # one of NAMES
    path: str | None = None
    classes: tuple[int | str, ...] | None = None  # None: all
    size: int | None = None  # of the images; None: the set's own


# Sets of the residual-alignment paper: cifarN has the first N classes of the order 1, 2, ..., 9, 0.
SHORT: dict[str, Spec] = {
    **{f"cifar{count}": Spec("cifar10", classes=tuple(range(1, count + 1))) for count in range(2, 10)},
    "imagenette32": Spec("imagenette", size=32),
}


def parse(spec: str) -> Spec:
    first, _, path = spec.partition(":")
    name, slash, classes = first.partition("/")
    if name not in NAMES and name not in SHORT:
        known = (*NAMES, *SHORT)
        close = difflib.get_close_matches(name, known, n=1)
        meant = f"; did you mean {close[0]}?" if close else ""
        raise InputError(f"no data set '{name}'{meant} (known: {', '.join(known)})")
    if name == "folder" and not path:
        raise InputError(f"folder needs a path: folder:PATH, where PATH holds {IMAGE_FOLDER}")
    if name == "digits" and path:
        raise InputError(f"the digits are embedded and take no path, got '{path}'; write digits alone")
    wanted = dataclasses.replace(SHORT.get(name, Spec(name)), path=path or None)
    if not slash:
        return wanted
    if wanted.classes is not None:
        raise InputError(f"{name} is a choice of classes already; give {wanted.name}/{classes or 'CLASSES'}")
    if not all(classes.split(",")):
        raise InputError(f"{first}: expected classes between commas, as in mnist/0,1,2, got '{classes}'")
    return dataclasses.replace(wanted, classes=tuple(_class(text) for text in classes.split(",")))


def require_path(name: str, path: str) -> None:
    """Refuse a place that is not there."""
    place = Path(path).expanduser()
    try:
        found = place.exists()
    except (OSError, ValueError):  # no file system takes it as a name
        found = False
    if not found:
        raise NotFound(f"no {name} files: {place} does not exist")


def written_constants(asked: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Means, a slash, standard deviations: a normalisation that has no name."""
    parts = asked.split("/")
    try:
        mean, deviation = (tuple(float(number) for number in part.split(",")) for part in parts)
    except ValueError:
        raise InputError(
            f"normalise: expected default, none, imagenet, dataset or means/deviations "
            f"such as 0.5,0.5,0.5/0.2,0.2,0.2; got '{asked}'"
        ) from None
    if len(mean) != len(deviation):
        raise InputError(f"normalise '{asked}' has {len(mean)} mean(s) and {len(deviation)} deviation(s)")
    if not all(math.isfinite(value) for value in mean + deviation) or min(deviation) <= 0:
        raise InputError(f"normalise '{asked}': expected finite means and positive deviations")
    return mean, deviation


def _class(text: str) -> int | str:
    """A number where it is one, also in a folder whose classes have such names."""
    return int(text) if text.isdecimal() and len(text) < 6 else text
