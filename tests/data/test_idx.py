from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from skipscope.data import load
from skipscope.errors import InputError
from tests.data.layouts import IDX_NAMES, idx_bytes, labels, pixels, write_idx
from tests.data.real import require

IMAGES, LABELS = IDX_NAMES[:2]


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
@pytest.mark.parametrize("inside", ["MNIST/raw", "MNIST", "raw", "."])
def test_every_layout_gives_the_same_images(tmp_path: Path, packed: bool, inside: str) -> None:
    write_idx(tmp_path / "root" / inside, packed)
    data = load(f"mnist:{tmp_path / 'root'}")
    assert data.name == "mnist"
    assert data.shape == (1, 5, 4)
    assert (len(data.train), len(data.test)) == (20, 10)
    np.testing.assert_allclose(data.train.images().numpy()[:, 0], pixels(20, 5, 4) / np.float32(255))
    np.testing.assert_array_equal(data.test.labels.numpy(), labels(10))
    assert data.train.labels.dtype == torch.int64
    assert data.class_names == tuple("0123456789")


def test_fashion_has_its_own_folder_and_names(tmp_path: Path) -> None:
    write_idx(tmp_path / "FashionMNIST" / "raw")
    assert load(f"fashion-mnist:{tmp_path}").class_names[9] == "Ankle boot"
    with pytest.raises(InputError, match="no MNIST files in"):
        load(f"mnist:{tmp_path}")


def shortened(content: bytes) -> bytes:
    return content[:-1]


DAMAGE: dict[str, tuple[str, Callable[[bytes], bytes], str]] = {
    "cut short": (IMAGES, shortened, "promises 400 bytes of values .20 x 5 x 4., only 399 follow"),
    "too long": (IMAGES, lambda content: content + b"\0", "promises 400 bytes .*, more follow"),
    "empty file": (IMAGES, lambda content: b"", "not an idx file, it begins with nothing"),
    "another magic": (IMAGES, lambda content: b"\x89PNG" + content, "begins with 89 50 4e 47; expected 00 00 08"),
    "another type": (IMAGES, lambda content: b"\0\0\x0d" + content[3:], "type 0x0d; expected unsigned bytes"),
    "labels for images": (IMAGES, lambda content: idx_bytes(labels(20)), "1 axes; expected 3: images"),
    "half a header": (IMAGES, lambda content: content[:9], "cut short in its header"),
    "no images": (IMAGES, lambda content: idx_bytes(pixels(0, 5, 4)), "empty, its header says 0 x 5 x 4"),
    "promises terabytes": (IMAGES, lambda content: content[:4] + b"\xff" * 12 + content[16:], "only 400 follow"),
    "label 10": (LABELS, lambda content: shortened(content) + b"\x0a", "label 10; expected 0 to 9"),
    "one label less": (LABELS, lambda content: idx_bytes(labels(19)), "20 images, .* has 19 labels"),
    "another size": (IMAGES, lambda content: idx_bytes(pixels(20, 4, 5)), "training images are"),
}


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_malformed_file_is_named(tmp_path: Path, damage: str, packed: bool) -> None:
    name, change, message = DAMAGE[damage]
    folder = write_idx(tmp_path / "MNIST", packed)
    path = folder / (f"{name}.gz" if packed else name)
    content = path.read_bytes()
    path.write_bytes(gzip.compress(change(gzip.decompress(content))) if packed else change(content))
    with pytest.raises(InputError, match=message) as caught:
        load(f"mnist:{tmp_path}")
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kept", [5, 60, -4])
def test_a_gzip_file_that_is_cut_short(tmp_path: Path, kept: int) -> None:
    path = write_idx(tmp_path / "MNIST", packed=True) / f"{IMAGES}.gz"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(InputError, match=r"train-images-idx3-ubyte\.gz: a broken or cut-short gzip"):
        load(f"mnist:{tmp_path}")


def test_a_file_that_only_claims_to_be_gzip(tmp_path: Path) -> None:
    path = write_idx(tmp_path / "MNIST", packed=True) / f"{IMAGES}.gz"
    path.write_bytes(idx_bytes(pixels(20, 5, 4)))
    with pytest.raises(InputError, match="broken or cut-short gzip"):
        load(f"mnist:{tmp_path}")


@pytest.mark.parametrize("missing", IDX_NAMES)
def test_a_missing_file_is_named(tmp_path: Path, missing: str) -> None:
    (write_idx(tmp_path / "MNIST") / missing).unlink()
    with pytest.raises(InputError, match=f"{missing} .* is missing"):
        load(f"mnist:{tmp_path}")


@pytest.mark.parametrize(("name", "first"), [("mnist", 5), ("fashion-mnist", 9)])
def test_the_real_files(name: str, first: int) -> None:
    data = require(name)
    assert (len(data.train), len(data.test), data.shape) == (60_000, 10_000, (1, 28, 28))
    assert int(data.train.labels[0]) == first
