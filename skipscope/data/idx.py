"""The idx format of MNIST and Fashion-MNIST, plain or gzipped.

A file is two zero bytes, a type byte (8: unsigned bytes), the number of axes, their lengths as big-endian 32-bit
integers, and the values. Everything the header says is checked against the file.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from io import BufferedReader
from pathlib import Path

import torch
from torch import Tensor

from skipscope.data.dataset import Dataset, Images
from skipscope.errors import InputError

CLASSES = 10
UNSIGNED_BYTE = 8
PIECE = 1 << 24
SPLITS = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
EXPECTED = "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte (or .gz)"

DIGITS = tuple(map(str, range(CLASSES)))
FASHION = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)


def present(folder: Path) -> bool:
    """Whether any of the four files is here."""
    return any(_file(folder, name) is not None for names in SPLITS.values() for name in names)


def read(folder: Path, name: str, class_names: tuple[str, ...]) -> Dataset:
    train, test = _split(folder, "train"), _split(folder, "test")
    if train.shape != test.shape:
        raise InputError(f"{folder}: training images are {train.shape[1:]}, test images {test.shape[1:]}")
    return Dataset(name, class_names, train, test, source=str(folder))


def read_idx(path: Path, axes: int) -> Tensor:
    """The values of a file of unsigned bytes that must have this many axes."""
    try:
        with gzip.GzipFile(path) if path.suffix == ".gz" else path.open("rb") as file:
            return _values(file, path, axes)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path}: a broken or cut-short gzip file ({error}); fetch it again") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error


def _split(folder: Path, split: str) -> Images:
    image_file, label_file = (_file(folder, name) for name in SPLITS[split])
    if image_file is None or label_file is None:
        missing = SPLITS[split][0 if image_file is None else 1]
        raise InputError(f"{folder}: {missing} (or .gz) is missing, other files of the set are there")
    images, labels = read_idx(image_file, axes=3), read_idx(label_file, axes=1)
    if len(images) != len(labels):
        raise InputError(f"{image_file} has {len(images)} images, {label_file.name} has {len(labels)} labels")
    if labels.max() >= CLASSES:
        raise InputError(f"{label_file}: label {int(labels.max())}; expected 0 to {CLASSES - 1}")
    return Images(images.unsqueeze(1), labels.to(torch.int64))  # N, 1, H, W


def _file(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _values(file: gzip.GzipFile | BufferedReader, path: Path, axes: int) -> Tensor:
    header = file.read(4)
    if len(header) < 4 or header[:2] != b"\0\0":
        raise InputError(f"{path}: not an idx file, it begins with {header.hex(' ') or 'nothing'}; expected 00 00 08")
    if header[2] != UNSIGNED_BYTE:
        raise InputError(f"{path}: values of type 0x{header[2]:02x}; expected unsigned bytes (0x08)")
    if header[3] != axes:
        raise InputError(f"{path}: {header[3]} axes; expected {axes}: {'labels' if axes == 1 else 'images'}")
    lengths = file.read(4 * axes)
    if len(lengths) < 4 * axes:
        raise InputError(f"{path}: cut short in its header")
    shape = struct.unpack(f">{axes}I", lengths)
    size = math.prod(shape)
    if size == 0:
        raise InputError(f"{path}: empty, its header says {' x '.join(map(str, shape))}")
    # Piece by piece: a header that promises terabytes must not make us ask for them.
    values = bytearray()
    while len(values) <= size and (piece := file.read(min(PIECE, size + 1 - len(values)))):
        values += piece
    if len(values) != size:
        held = f"only {len(values)}" if len(values) < size else "more"
        raise InputError(
            f"{path}: its header promises {size} bytes of values ({' x '.join(map(str, shape))}), {held} follow"
        )
    return torch.frombuffer(values, dtype=torch.uint8).reshape(shape)
