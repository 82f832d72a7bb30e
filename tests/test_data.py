from __future__ import annotations

import pytest
import torch

from skipscope.data import load
from skipscope.errors import InputError


def test_digits_are_scaled_images_with_labels() -> None:
    data = load("digits")
    assert data.train_images.shape[1:] == data.test_images.shape[1:] == (1, 8, 8)
    assert data.train_images.dtype == torch.float32
    assert (data.train_images.min(), data.train_images.max()) == (0, 1)
    assert len(data.train_images) == len(data.train_labels)
    assert len(data.test_images) == len(data.test_labels)
    assert len(data.train_labels) + len(data.test_labels) == 1797
    assert data.classes == 10


def test_the_split_is_fixed_and_balanced() -> None:
    first, second = load("digits"), load("digits")
    assert torch.equal(first.train_images, second.train_images)
    assert torch.equal(first.test_labels, second.test_labels)
    counts = torch.bincount(first.test_labels, minlength=10)
    assert counts.min() >= 35
    assert counts.max() <= 37


def test_a_test_batch_follows_its_seed() -> None:
    data = load("digits")
    assert data.test_batch(2, seed=1).shape == (2, 1, 8, 8)
    assert torch.equal(data.test_batch(2, seed=1), data.test_batch(2, seed=1))
    assert not torch.equal(data.test_batch(2, seed=1), data.test_batch(2, seed=2))


@pytest.mark.parametrize(("spec", "message"), [("mnits", "known: digits"), ("digits:/data", "take no path")])
def test_a_wrong_name_or_path_says_what_to_do(spec: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load(spec)
