from __future__ import annotations

import pytest
import torch

from skipscope.data import Dataset, Images, digits
from skipscope.errors import InputError


@pytest.fixture(scope="module")
def data() -> Dataset:
    return digits()


def test_classes_are_relabelled_in_the_order_given(data: Dataset) -> None:
    part = data.subset(classes=[7, "2"])
    assert part.name == "digits, classes 7, 2"
    assert part.class_names == ("7", "2")
    for whole, split in ((data.train, part.train), (data.test, part.test)):
        kept = (whole.labels == 7) | (whole.labels == 2)
        assert torch.equal(split.images(), whole.images(kept))
        assert torch.equal(split.labels, (whole.labels[kept] == 2).long())


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"classes": range(5), "samples": 100}, "digits, classes 0 to 4, 100 samples"),
        ({"classes": [3]}, "digits, class 3"),
        ({"samples": 20, "test_samples": 10, "seed": 4}, "digits, 20 samples, 10 test samples, seed 4"),
        ({}, "digits"),
    ],
)
def test_the_name_says_what_was_done(data: Dataset, options: dict[str, object], name: str) -> None:
    assert data.subset(**options).name == name  # type: ignore[arg-type]


def test_samples_are_drawn_equally_from_every_class(data: Dataset) -> None:
    part = data.subset(samples=103, test_samples=20)
    assert part.train.labels.bincount().tolist() == [11] * 3 + [10] * 7
    assert part.test.labels.bincount().tolist() == [2] * 10
    assert len(data.subset(samples=100).test) == len(data.test)


def numbered(count: int) -> Dataset:
    """Each image holds its own number."""
    split = Images(
        torch.arange(count, device="cpu").float().reshape(-1, 1, 1, 1), torch.arange(count, device="cpu") % 4
    )
    return Dataset("numbered", ("a", "b", "c", "d"), split, split)


def test_draws_follow_their_seed_and_contain_each_other() -> None:
    def drawn(samples: int, seed: int) -> list[float]:
        return numbered(400).subset(samples=samples, seed=seed).train.images().flatten().tolist()

    state = torch.get_rng_state()
    assert drawn(40, 1) == drawn(40, 1) == sorted(drawn(40, 1))
    assert drawn(40, 1) != drawn(40, 2)
    assert len(set(drawn(40, 1))) == 40
    assert set(drawn(40, 1)) < set(drawn(80, 1))
    assert torch.equal(state, torch.get_rng_state())


def test_random_labels_touch_the_training_split_alone(data: Dataset) -> None:
    random = data.with_random_labels(seed=3)
    assert random.name == "digits, random labels, seed 3"
    assert torch.equal(random.train.images(), data.train.images())
    assert torch.equal(random.test.labels, data.test.labels)
    assert torch.equal(random.train.labels, data.with_random_labels(3).train.labels)
    assert not torch.equal(random.train.labels, data.with_random_labels(4).train.labels)
    assert random.train.labels.bincount(minlength=10).min() > 100
    assert (random.train.labels == data.train.labels).float().mean() < 0.15
    assert random.describe()["digest"] != data.describe()["digest"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": [10]}, "no class 10; expected 0 to 9 or a name"),
        ({"classes": ["ten"]}, "no class 'ten'"),
        ({"classes": [-1]}, "no class -1"),
        ({"classes": []}, "empty list"),
        ({"classes": "12"}, "expected a list"),
        ({"classes": [1, "1"]}, "1 given more than once"),
        ({"samples": 9}, "less than one for each of the 10 classes"),
        ({"samples": 1430}, "samples: 1430 in equal parts needs 143 of class '0', which has 142; ask for fewer"),
        ({"test_samples": 370}, "test samples: 370"),
    ],
)
def test_a_wrong_request_says_what_to_do(data: Dataset, options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        data.subset(**options)  # type: ignore[arg-type]


def test_a_share_of_the_labels_is_random(data: Dataset) -> None:
    some, more = (data.with_random_labels(3, share) for share in (0.25, 0.5))
    whole = data.with_random_labels(3)
    own = data.train.labels
    drawn = [some.train.labels != own, more.train.labels != own]
    for share, changed in zip((0.25, 0.5), drawn, strict=True):
        assert 0.85 * share < float(changed.float().mean()) / 0.9 < 1.15 * share  # a tenth stays by chance
    assert not bool((drawn[0] & ~drawn[1]).any())
    assert bool((some.train.labels == torch.where(drawn[0], whole.train.labels, own)).all())
    assert some.name.endswith("25 % random labels, seed 3")
    assert torch.equal(some.test.labels, data.test.labels)
    with pytest.raises(InputError, match=r"expected above 0 and at most 1, got 1\.5"):
        data.with_random_labels(3, 1.5)
