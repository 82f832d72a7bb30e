from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from skipscope.data import augmentation
from skipscope.data.augmentation import affine, crop, flip, jitter
from skipscope.data.dataset import IMAGENET
from skipscope.errors import InputError
from tests.seeded import generator

NAMES = ("none", "crop", "crop-flip", "paper-a")


def batch(count: int = 64, channels: int = 3, size: int = 16) -> Tensor:
    return torch.rand(count, channels, size, size, generator=generator(0))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("channels", [1, 3])
def test_the_generator_decides_and_shapes_stay(name: str, channels: int) -> None:
    images = batch(channels=channels)
    kept = images.clone()
    state = torch.get_rng_state()
    change = augmentation(name)
    first, again, other = change(images, generator(1)), change(images, generator(1)), change(images, generator(2))
    assert first.shape == images.shape
    assert first.dtype == images.dtype
    assert torch.equal(first, again)
    assert torch.equal(first, other) == (name == "none")
    assert torch.equal(images, kept)
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize(("size", "padding"), [(32, 4), (28, 3), (8, 1), (4, 1)])
def test_a_crop_is_a_window_of_the_padded_image(size: int, padding: int) -> None:
    images = batch(size=size)
    padded = F.pad(images, (padding,) * 4)
    places = set()
    for cropped, whole in zip(crop(images, generator(1)), padded, strict=True):
        windows = whole.unfold(1, size, 1).unfold(2, size, 1)  # C, places, places, H, W
        matches = (windows == cropped[:, None, None]).all(dim=(0, 3, 4)).nonzero()
        assert len(matches) == 1
        places.add(tuple(matches[0].tolist()))
    assert len(places) > min(20, (2 * padding + 1) ** 2 // 2)
    assert {max(place) for place in places} >= {2 * padding}


def test_half_of_the_images_are_flipped() -> None:
    images = batch(1000, size=4)
    flipped = flip(images, generator(1))
    mirrored = (flipped == images.flip(-1)).flatten(1).all(1)
    assert (mirrored | (flipped == images).flatten(1).all(1)).all()
    assert 400 < int(mirrored.sum()) < 600


def test_an_affine_change_is_within_its_bounds() -> None:
    """Read off from images of coordinates: a bilinear reading of a linear image gives the place it was read at."""
    size = 33
    line = torch.linspace(-1, 1, size, dtype=torch.float64)
    coordinates = torch.stack([line.expand(size, size), line[:, None].expand(size, size)])  # x, y
    moved = affine(coordinates.expand(500, 2, size, size), generator(1))
    middle, step = size // 2, float(line[1] - line[0])
    assert moved[:, :, middle, middle].abs().max() < 1e-12
    matrix = (
        torch.stack([moved[:, :, middle, middle + 1], moved[:, :, middle + 1, middle]], dim=2) / step
    )  # 500, 2, 2: where a step right and a step down lead
    scale = 1 / torch.linalg.det(matrix).sqrt()
    assert 0.8 <= scale.min() < 0.83
    assert 1.17 < scale.max() <= 1.2
    angle = torch.atan2(matrix[:, 1, 0], matrix[:, 0, 0]) * 180 / math.pi
    assert -20 <= angle.min() < -19
    assert 19 < angle.max() <= 20
    right, down = matrix[:, :, 0] * scale[:, None], matrix[:, :, 1] * scale[:, None]
    shear = torch.atan((right * down).sum(1)) * 180 / math.pi
    assert -20.001 <= shear.min() < -19
    assert 19 < shear.max() <= 20.001


def test_jitter_is_that_of_torchvision_before_it_clamps() -> None:
    from torchvision.transforms import functional

    images = 0.2 + 0.4 * batch(size=5)
    draws = 2 * torch.rand(3, 64, 1, 1, 1, generator=generator(1)) - 1
    brightness, contrast, saturation = (1 + 0.2 * draws).flatten(1).tolist()
    for number, changed in enumerate(jitter(images, generator(1))):
        expected = functional.adjust_brightness(images[number], brightness[number])
        expected = functional.adjust_contrast(expected, contrast[number])
        expected = functional.adjust_saturation(expected, saturation[number])
        torch.testing.assert_close(changed, expected, atol=1e-3, rtol=0)  # torchvision's grey weights have 4 digits


def test_colours_are_changed_without_the_normalisation() -> None:
    images = IMAGENET(batch())
    normalised = augmentation("paper-a", IMAGENET)(images, generator(1))
    assert not torch.allclose(normalised, augmentation("paper-a")(images, generator(1)))
    pixels = IMAGENET.undo(normalised)
    assert pixels.min() > -0.2
    assert pixels.max() < 1.6


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(InputError, match="no augmentation 'mixup'; known: none, crop, crop-flip, paper-a"):
        augmentation("mixup")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", NAMES)
def test_the_device_is_never_waited_for(name: str) -> None:
    images = torch.rand(8, 3, 32, 32, device="cuda")
    numbers = torch.Generator("cuda").manual_seed(0)
    change = augmentation(name, IMAGENET)
    change(images, numbers)
    torch.cuda.set_sync_debug_mode("error")
    try:
        change(images, numbers)
    finally:
        torch.cuda.set_sync_debug_mode("default")
