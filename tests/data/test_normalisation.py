from __future__ import annotations

from pathlib import Path

import pytest
import torch

from skipscope.data import Normalisation, load
from skipscope.data.dataset import IMAGENET, PUBLISHED, choose
from skipscope.errors import InputError
from tests.data.layouts import write_cifar_binary
from tests.data.real import require


def test_undo_undoes() -> None:
    images = torch.rand(2, 3, 4, 4, dtype=torch.float64)
    for normalisation in (IMAGENET, Normalisation()):
        torch.testing.assert_close(normalisation.undo(normalisation(images)), images)


@pytest.mark.parametrize(
    ("asked", "name", "channels", "expected"),
    [
        ("default", "cifar10", 3, IMAGENET),
        ("default", "mnist", 1, Normalisation()),
        ("none", "cifar10", 3, Normalisation()),
        ("imagenet", "cifar10", 3, IMAGENET),
        ("dataset", "cifar10", 3, PUBLISHED["cifar10"]),
        ("dataset", "mnist", 1, Normalisation((0.1307,), (0.3081,))),
        ("0.5,.4,.3/1,2,3", "cifar10", 3, Normalisation((0.5, 0.4, 0.3), (1.0, 2.0, 3.0))),
        ("0.5/0.25", "mnist", 1, Normalisation((0.5,), (0.25,))),
    ],
)
def test_every_way_to_ask(asked: str, name: str, channels: int, expected: Normalisation) -> None:
    assert choose(asked, name, channels) == expected


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("imagenet", "is for 3 channel.*mnist have 1"),
        ("0.5,0.5/1,1", "is for 2 channel"),
        ("0.5/1,1", "1 mean.* and 2 deviation"),
        ("0.5", "expected default, none, imagenet, dataset or means/deviations"),
        ("half/one", "expected default"),
        ("1/2/3", "expected default"),
        ("0.5/0", "positive deviations"),
        ("nan/1", "finite means"),
    ],
)
def test_a_wrong_one_says_what_to_do(asked: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        choose(asked, "mnist", 1)


def test_digits_have_no_published_constants() -> None:
    with pytest.raises(InputError, match="digits has no published constants; mnist, fashion-mnist"):
        load("digits", normalise="dataset")


def test_images_come_out_normalised(tmp_path: Path) -> None:
    spec = f"cifar10:{write_cifar_binary(tmp_path / 'made')}"
    plain, default = load(spec, normalise="none"), load(spec)
    mean, deviation = (
        torch.tensor(values, device="cpu")[:, None, None] for values in (IMAGENET.mean, IMAGENET.deviation)
    )
    torch.testing.assert_close(default.test.images(), (plain.test.images() - mean) / deviation)
    assert plain.test.digest() != default.test.digest()


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10", "cifar100"])
def test_the_published_constants_are_those_of_the_real_files(name: str) -> None:
    data = require(name).with_normalisation(Normalisation())
    images = data.train.images().transpose(0, 1).flatten(1)
    torch.testing.assert_close(images.mean(1).tolist(), list(PUBLISHED[name].mean), atol=2e-3, rtol=0)
    torch.testing.assert_close(images.std(1).tolist(), list(PUBLISHED[name].deviation), atol=2e-3, rtol=0)
