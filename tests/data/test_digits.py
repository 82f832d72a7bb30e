from __future__ import annotations

import pytest
import torch

from skipscope.data import digits, load
from skipscope.errors import InputError


def test_digits_are_scaled_images_with_labels() -> None:
    data = load("digits")
    images = data.train.images()
    assert data.shape == data.train.shape == (1, 8, 8)
    assert images.shape[1:] == data.test.images().shape[1:] == (1, 8, 8)
    assert images.dtype == torch.float32
    assert (float(images.min()), float(images.max())) == (0, 1)
    assert len(images) == len(data.train) == len(data.train.labels)
    assert len(data.train) + len(data.test) == 1797
    assert data.classes == 10


def test_the_split_is_fixed_and_balanced() -> None:
    first, second = digits(), digits()
    assert first.describe() == second.describe()
    assert torch.equal(first.train.images(), second.train.images())
    counts = torch.bincount(first.test.labels, minlength=10)
    assert counts.min() >= 35
    assert counts.max() <= 37


def test_a_test_batch_follows_its_seed() -> None:
    data = digits()
    assert data.test_batch(2, seed=1).shape == (2, 1, 8, 8)
    assert torch.equal(data.test_batch(2, seed=1), data.test_batch(2, seed=1))
    assert not torch.equal(data.test_batch(2, seed=1), data.test_batch(2, seed=2))
    with pytest.raises(InputError, match="364 test images; asked for 365"):
        data.test_batch(365)


def test_digits_take_neither_path_nor_size() -> None:
    with pytest.raises(InputError, match="take no path"):
        load("digits:/data")
    with pytest.raises(InputError, match="8 x 8"):
        load("digits", size=16)
