from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from skipscope.data import load
from skipscope.errors import InputError
from tests.data.layouts import (
    cifar_parts,
    pixels,
    python2_pickle,
    write_cifar_binary,
    write_cifar_pickles,
    write_pickle,
)
from tests.data.real import require

FOLDERS = {
    (10, "binary"): "cifar-10-batches-bin",
    (10, "python"): "cifar-10-batches-py",
    (100, "binary"): "cifar-100-binary",
    (100, "python"): "cifar-100-python",
}


def write(root: Path, classes: int, layout: str) -> Path:
    folder = root / FOLDERS[classes, layout]
    return (write_cifar_binary if layout == "binary" else write_cifar_pickles)(folder, classes)


@pytest.mark.parametrize(("classes", "layout"), FOLDERS)
@pytest.mark.parametrize("direct", [True, False], ids=["the folder", "its parent"])
def test_every_layout_gives_the_same_images(tmp_path: Path, classes: int, layout: str, direct: bool) -> None:
    folder = write(tmp_path, classes, layout)
    data = load(f"cifar{classes}:{folder if direct else tmp_path}", normalise="none")
    *train, test = cifar_parts(classes).values()
    assert data.shape == (3, 32, 32)
    assert data.classes == classes
    assert data.source == str(folder)
    expected = np.concatenate([images for images, _ in train]).reshape(-1, 3, 32, 32)
    np.testing.assert_allclose(data.train.images().numpy(), expected / np.float32(255))
    np.testing.assert_array_equal(data.train.labels.numpy(), np.concatenate([labels for _, labels in train]))
    np.testing.assert_array_equal(data.test.labels.numpy(), test[1])
    assert data.class_names[3] == ("cat" if classes == 10 else "3")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_of_every_protocol(tmp_path: Path, protocol: int) -> None:
    data = load(f"cifar10:{write_cifar_pickles(tmp_path / 'made', protocol=protocol)}", normalise="none")
    np.testing.assert_allclose(
        data.test.images().numpy().reshape(4, -1), cifar_parts(10)["test_batch"][0] / np.float32(255)
    )


def test_a_pickle_as_python_2_wrote_it(tmp_path: Path) -> None:
    folder = write(tmp_path, 10, "python")
    content = python2_pickle(pixels(3, 3072), [7, 0, 9])
    # The oracle: an unrestricted reader takes it for what it should be.
    loaded = pickle.loads(content, encoding="bytes")
    np.testing.assert_array_equal(loaded[b"data"], pixels(3, 3072))
    (folder / "test_batch").write_bytes(content)
    data = load(f"cifar10:{folder}", normalise="none")
    np.testing.assert_allclose(data.test.images().numpy().reshape(3, -1), pixels(3, 3072) / np.float32(255))
    assert data.test.labels.tolist() == [7, 0, 9]


def test_names_are_read_where_they_are(tmp_path: Path) -> None:
    ten, hundred = [f"ten{n}" for n in range(10)], [f"fine{n}" for n in range(100)]
    (write(tmp_path / "a", 10, "binary") / "batches.meta.txt").write_text("\n".join(ten) + "\n\n")
    (write(tmp_path / "a", 100, "binary") / "fine_label_names.txt").write_text("\n".join(hundred))
    as_bytes = [name.encode() for name in ten]
    write_pickle(write(tmp_path / "b", 10, "python") / "batches.meta", {b"label_names": as_bytes})
    write_pickle(write(tmp_path / "b", 100, "python") / "meta", {"fine_label_names": hundred})
    for root in ("a", "b"):
        assert load(f"cifar10:{tmp_path / root}").class_names == tuple(ten)
        assert load(f"cifar100:{tmp_path / root}").class_names == tuple(hundred)


@pytest.mark.parametrize(("classes", "layout"), FOLDERS)
def test_wrong_names_are_refused(tmp_path: Path, classes: int, layout: str) -> None:
    folder = write(tmp_path, classes, layout)
    if layout == "binary":
        (folder / ("batches.meta.txt" if classes == 10 else "fine_label_names.txt")).write_text("cat dog")
    else:
        file, key = ("batches.meta", "label_names") if classes == 10 else ("meta", "fine_label_names")
        write_pickle(folder / file, {key: ["cat", "dog"]})
    with pytest.raises(InputError, match=f"2 class names; expected {classes}"):
        load(f"cifar{classes}:{tmp_path}")


@pytest.mark.parametrize("classes", [10, 100])
@pytest.mark.parametrize("change", ["cut", "longer", "empty"])
def test_a_binary_file_of_the_wrong_size_is_named(tmp_path: Path, classes: int, change: str) -> None:
    path = write(tmp_path, classes, "binary") / ("test_batch.bin" if classes == 10 else "test.bin")
    content = path.read_bytes()
    path.write_bytes({"cut": content[:-7], "longer": content + b"\0", "empty": b""}[change])
    with pytest.raises(InputError, match=r"no whole number of cifar10+ records of 307[34]") as caught:
        load(f"cifar{classes}:{tmp_path}")
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(("classes", "place", "value", "limit"), [(10, 0, 10, 9), (100, 0, 20, 19), (100, 1, 100, 99)])
def test_a_label_out_of_range_is_named(tmp_path: Path, classes: int, place: int, value: int, limit: int) -> None:
    path = write(tmp_path, classes, "binary") / ("data_batch_2.bin" if classes == 10 else "train.bin")
    content = bytearray(path.read_bytes())
    content[2 * len(content) // 4 + place] = value
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"label {value} in record 2; expected 0 to {limit}") as caught:
        load(f"cifar{classes}:{tmp_path}")
    assert str(path) in str(caught.value)


def batch(**changes: Any) -> dict[str, Any]:
    return {"data": pixels(4, 3072), "labels": [0, 1, 2, 3], **changes}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (batch(labels=[0, 1, 2, 10]), "label 10; expected 0 to 9"),
        (batch(labels=[0, 1, 2, -1]), "label -1"),
        (batch(labels=[0, 1]), "4 images, 2 labels"),
        (batch(labels=b"0123"), "expected 'labels', a list of numbers"),
        (batch(labels=["0"] * 4), "expected 'labels', a list of numbers"),
        ({"labels": [0]}, "expected 'data', an array of bytes N x 3072"),
        (batch(data=pixels(4, 3071)), "expected 'data'"),
        (batch(data=[1, 2]), "expected 'data'"),
        (batch(data=pixels(4, 3072).astype(np.float32)), "something else than unsigned bytes"),
        ([1, 2], "expected a pickled dictionary, got list"),
    ],
)
def test_a_pickle_with_other_content_is_explained(tmp_path: Path, content: Any, message: str) -> None:
    path = write(tmp_path, 10, "python") / "test_batch"
    write_pickle(path, content)
    with pytest.raises(InputError, match=message) as caught:
        load(f"cifar10:{tmp_path}")
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("kept", [0, 1, 40, 3000, -1])
def test_a_pickle_that_is_cut_short(tmp_path: Path, kept: int) -> None:
    path = write(tmp_path, 10, "python") / "data_batch_3"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(InputError, match="data_batch_3: cannot be read as a pickle"):
        load(f"cifar10:{tmp_path}")


class Command:
    """Unpickled by an ordinary reader, it would make a folder."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_would_run_code_is_refused(tmp_path: Path, protocol: int) -> None:
    path = write(tmp_path, 10, "python") / "data_batch_1"
    trace = tmp_path / "it ran"
    write_pickle(path, batch(extra=Command(trace)), protocol)
    with pytest.raises(InputError, match=r"refused, it names (posix|nt)\.mkdir and could run code") as caught:
        load(f"cifar10:{tmp_path}")
    assert str(path) in str(caught.value)
    assert not trace.exists()


@pytest.mark.parametrize("name", ["builtins eval", "__builtin__ eval", "numpy load", "numpy.core.multiarray scalar"])
def test_other_names_are_refused(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, 10, "python") / "test_batch"
    path.write_bytes(b"\x80\x02c" + name.replace(" ", "\n").encode() + b"\nU\x011\x85R.")
    with pytest.raises(InputError, match=f"refused, it names {name.replace(' ', '.')}"):
        load(f"cifar10:{tmp_path}")


def test_a_missing_batch_is_named(tmp_path: Path) -> None:
    (write(tmp_path, 10, "binary") / "data_batch_4.bin").unlink()
    with pytest.raises(InputError, match=r"data_batch_4\.bin is missing"):
        load(f"cifar10:{tmp_path}")


@pytest.mark.parametrize("classes", [10, 100])
def test_the_real_files(classes: int) -> None:
    data = require(f"cifar{classes}")
    assert (len(data.train), len(data.test), data.shape) == (50_000, 10_000, (3, 32, 32))
    assert data.train.labels.bincount().tolist() == [50_000 // classes] * classes
