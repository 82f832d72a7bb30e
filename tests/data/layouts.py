"""Tiny data sets in every publisher's layout, written with nothing but numpy, pickle and Pillow."""

from __future__ import annotations

import gzip
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

IDX_NAMES = (
    *("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    *("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
)


def pixels(count: int, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), dtype=np.uint8)


def labels(count: int, classes: int = 10) -> np.ndarray:
    return (np.arange(count) % classes).astype(np.uint8)


def idx_bytes(values: np.ndarray) -> bytes:
    return bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


def write_idx(folder: Path, packed: bool = False) -> Path:
    """20 training and 10 test images of 5 x 4."""
    folder.mkdir(parents=True)
    arrays = (pixels(20, 5, 4), labels(20), pixels(10, 5, 4, seed=1), labels(10))
    for name, array in zip(IDX_NAMES, arrays, strict=True):
        content = idx_bytes(array)
        if packed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)
    return folder


def cifar_parts(classes: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """File names without suffix; (pixels, labels) of each."""
    names = [f"data_batch_{n}" for n in range(1, 6)] + ["test_batch"] if classes == 10 else ["train", "test"]
    return {name: (pixels(4, 3072, seed=seed), labels(4) + seed) for seed, name in enumerate(names)}


def write_cifar_binary(folder: Path, classes: int = 10) -> Path:
    folder.mkdir(parents=True)
    for name, (images, numbers) in cifar_parts(classes).items():
        columns = [numbers[:, None], images] if classes == 10 else [numbers[:, None] // 5, numbers[:, None], images]
        (folder / f"{name}.bin").write_bytes(np.concatenate(columns, axis=1).tobytes())
    return folder


def write_cifar_pickles(folder: Path, classes: int = 10, protocol: int = 2) -> Path:
    folder.mkdir(parents=True)
    key = b"labels" if classes == 10 else b"fine_labels"
    for name, (images, numbers) in cifar_parts(classes).items():
        content = {b"data": images, key: numbers.tolist(), b"batch_label": b"a batch", b"filenames": [b"a.png"] * 4}
        write_pickle(folder / name, content, protocol)
    return folder


def write_pickle(path: Path, content: Any, protocol: int = 2) -> None:
    path.write_bytes(pickle.dumps(content, protocol=protocol))


def python2_pickle(images: np.ndarray, numbers: list[int]) -> bytes:
    """Byte for byte as Python 2 wrote it: texts as SHORT_BINSTRING, the array through numpy.core.multiarray."""

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value

    def integer(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    kind = b"cnumpy\ndtype\n" + text(b"u1") + b"K\x00K\x01\x87R(K\x03" + text(b"|") + b"NNN" + integer(-1) * 2
    kind += b"K\x00tb"
    raw = b"T" + struct.pack("<i", images.size) + images.tobytes()
    shape = integer(images.shape[0]) + integer(images.shape[1]) + b"\x86"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b") + b"\x87R"
    array += b"(K\x01" + shape + kind + b"\x89" + raw + b"tb"
    listed = b"](" + b"".join(b"K" + bytes([number]) for number in numbers) + b"e"
    return b"\x80\x02}(" + text(b"data") + array + text(b"labels") + listed + b"u."


def write_image(path: Path, size: tuple[int, int] = (12, 10), seed: int = 0, mode: str = "RGB") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels(size[1], size[0], 3, seed=seed)).convert(mode).save(path)


def write_folder(folder: Path, held_out: str = "val", classes: tuple[str, ...] = ("cat", "dog"), each: int = 3) -> Path:
    for split in ("train", held_out):
        for number, name in enumerate(classes):
            for image in range(each):
                suffix = "png" if image % 2 else "JPEG"
                write_image(folder / split / name / f"{image}.{suffix}", (12 + image, 10), seed=10 * number + image)
    return folder
