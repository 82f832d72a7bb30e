"""NAME/CLASSES, cifarN and imagenette32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from skipscope.data import NotFound, digits, load, load_or_digits
from skipscope.errors import InputError
from tests.data.layouts import labels, pixels, write_cifar_binary, write_idx, write_image
from tests.data.real import require


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SKIPSCOPE_DATA", str(tmp_path / "root"))
    return tmp_path / "root"


def test_classes_are_chosen_after_a_slash(root: Path) -> None:
    write_idx(root / "MNIST")
    part = load("mnist/7,2")
    assert part.name == "mnist, classes 7, 2"
    assert part.class_names == ("7", "2")
    assert torch.equal(part.train.images(), load("mnist").subset(classes=[7, 2]).train.images())


def test_classes_have_names_too(tmp_path: Path) -> None:
    write_idx(tmp_path / "FashionMNIST")
    part = load(f"fashion-mnist/T-shirt/top,Bag:{tmp_path}")
    assert part.class_names == ("T-shirt/top", "Bag")


@pytest.mark.parametrize("count", range(2, 10))
def test_cifar_n_is_the_first_n_of_1_to_9_and_0(root: Path, count: int) -> None:
    folder = write_cifar_binary(root / "cifar-10-batches-bin")
    records = np.stack([np.append(label, pixels(1, 3072, seed=label)) for label in labels(20)]).astype(np.uint8)
    for number in range(1, 6):
        (folder / f"data_batch_{number}.bin").write_bytes(records.tobytes())
    (folder / "test_batch.bin").write_bytes(records.tobytes())
    order = [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]
    part = load(f"cifar{count}", normalise="none")
    assert part.classes == count
    for image, label in zip(part.test.images(), part.test.labels.tolist(), strict=True):
        expected = pixels(1, 3072, seed=order[label]).reshape(3, 32, 32)
        assert torch.equal(image, torch.from_numpy(expected).float() / 255)
    assert part.train.labels.bincount().tolist() == [10] * count


def test_imagenette_is_also_read_at_32(root: Path) -> None:
    for split in ("train", "val"):
        for name in ("n01440764", "n03028079"):
            write_image(root / "imagenette2-64" / split / name / "0.png", (80, 64))
    whole = load("imagenette32")
    assert whole.name == "imagenette32"
    assert whole.shape == (3, 32, 32)
    assert torch.equal(whole.test.images(), load("imagenette", size=32).test.images())
    assert load("imagenette32/church").class_names == ("church",)
    with pytest.raises(InputError, match="imagenette32 are images of 32 x 32; leave size=16 out"):
        load("imagenette32", size=16)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("digits/", "expected classes between commas, as in mnist/0,1,2, got ''"),
        ("digits/0,,1", "got '0,,1'"),
        ("digits/0,10", "no class 10; expected 0 to 9"),
        ("digits/0,ten", "no class 'ten'"),
        ("digits/3,3", "3 given more than once"),
        ("cifar5/1,2", "cifar5 is a choice of classes already; give cifar10/1,2"),
        ("cifar1", r"no data set 'cifar1'; did you mean cifar\d"),
    ],
)
def test_a_wrong_choice_says_what_to_do(spec: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load(spec)


def test_digits_with_the_same_numbers_stand_in(root: Path) -> None:
    data = load_or_digits("cifar3")
    assert data.stands_in_for == "cifar3"
    assert data.class_names == ("1", "2", "3")
    assert torch.equal(data.train.images(), digits().subset(classes=[1, 2, 3]).train.images())
    for spec in ("fashion-mnist/Bag", "cifar100/50,51"):
        with pytest.raises(NotFound):
            load_or_digits(spec)


def test_random_labels_of_a_choice_are_of_its_classes() -> None:
    random = load("digits/4,7,9").with_random_labels(seed=2)
    assert random.train.labels.bincount().tolist() == pytest.approx([len(random.train) / 3] * 3, rel=0.2)


def test_three_thousand_of_the_real_mnist() -> None:
    part = require("mnist").subset(samples=3000)
    assert part.train.labels.bincount().tolist() == [300] * 10
