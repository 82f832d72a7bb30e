from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms

from skipscope.data import Images, load
from skipscope.data.files import Files
from skipscope.errors import InputError
from tests.data.layouts import write_folder, write_image
from tests.data.real import require


def numbers(*values: int) -> torch.Tensor:
    return torch.tensor(values, device="cpu")


def files(root: Path) -> Files:
    split = load(f"folder:{root}", normalise="none", size=8).train
    assert isinstance(split, Files)
    return split


@pytest.mark.parametrize("held_out", ["val", "test"])
def test_a_folder_of_images(tmp_path: Path, held_out: str) -> None:
    data = load(f"folder:{write_folder(tmp_path / 'pets', held_out)}")
    assert data.name == "folder pets"
    assert data.class_names == ("cat", "dog")
    assert data.shape == (3, 224, 224)
    assert isinstance(data.train, Files)
    assert data.train.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert data.test.images(numbers(5, 0)).shape == (2, 3, 224, 224)


@pytest.mark.parametrize("size", [(50, 40), (40, 50), (9, 300), (32, 32), (33, 37)])
def test_scaling_is_that_of_torchvision(tmp_path: Path, size: tuple[int, int]) -> None:
    root = write_folder(tmp_path)
    write_image(root / "train" / "cat" / "0.png", size)
    expected = transforms.Compose([transforms.Resize(9), transforms.CenterCrop(8), transforms.ToTensor()])
    with Image.open(root / "train" / "cat" / "0.png") as image:
        wanted = expected(image.convert("RGB"))
    split = files(root)
    assert split.names[1] == "cat/0.png"
    np.testing.assert_array_equal(split.images(numbers(1))[0].numpy(), wanted.numpy())


def test_what_is_chosen_is_what_is_decoded(tmp_path: Path) -> None:
    split = files(write_folder(tmp_path))
    everything = split.images()
    assert everything.dtype == torch.float32
    for chosen in (numbers(4, 1, 1), numbers(-1), everything.mean((1, 2, 3)) > 0.5, slice(1, 5, 2)):
        assert torch.equal(split.images(chosen), everything[chosen])
    part = split.select(numbers(5, 2))
    assert part.names == (split.names[5], split.names[2])
    assert part.labels.tolist() == [1, 0]
    assert torch.equal(part.images(), everything[[5, 2]])


def test_in_memory_is_the_same_in_bytes(tmp_path: Path) -> None:
    split = files(write_folder(tmp_path))
    held = split.in_memory()
    assert held.pixels.dtype == torch.uint8
    assert torch.equal(held.images(), split.images())
    assert torch.equal(held.labels, split.labels)


def test_grey_and_transparent_images_become_colour(tmp_path: Path) -> None:
    root = write_folder(tmp_path)
    for name, mode in (("grey", "L"), ("clear", "RGBA"), ("palette", "P")):
        write_image(root / "train" / "cat" / f"{name}.png", mode=mode)
    assert files(root).images().shape == (9, 3, 8, 8)


def test_other_files_are_passed_over_and_deeper_folders_are_not(tmp_path: Path) -> None:
    root = write_folder(tmp_path)
    (root / "train" / "cat" / "notes.txt").write_text("nice cats")
    (root / "train" / ".hidden").mkdir()
    write_image(root / "train" / "cat" / "more" / "1.bmp")
    assert [name for name in files(root).names if name.startswith("cat")] == [
        *("cat/0.JPEG", "cat/1.png", "cat/2.JPEG", "cat/more/1.bmp")
    ]


def test_the_digest_follows_names_sizes_labels_and_scaling(tmp_path: Path) -> None:
    root = write_folder(tmp_path)
    split = files(root)
    digests = {split.digest(), split.with_labels(1 - split.labels).digest(), split.select(numbers(0, 1)).digest()}
    digests.add(load(f"folder:{root}", normalise="none", size=7).train.digest())
    assert len(digests) == 4
    assert files(root).digest() == split.digest()
    write_image(root / "train" / "cat" / "1.png", (30, 30))
    assert split.digest() not in digests


def test_imagenette_is_held_in_memory_with_readable_names(tmp_path: Path) -> None:
    write_folder(tmp_path / "imagenette2-160", classes=("n01440764", "n03888257"))
    data = load(f"imagenette:{tmp_path}")
    assert isinstance(data.train, Images)
    assert data.shape == (3, 64, 64)
    assert data.class_names == ("tench", "parachute")
    assert load(f"imagenette:{tmp_path / 'imagenette2-160'}", size=32).shape == (3, 32, 32)


def test_imagenet_is_read_when_asked(tmp_path: Path) -> None:
    data = load(f"imagenet:{write_folder(tmp_path, classes=('n1', 'n2'))}")
    assert isinstance(data.train, Files)
    assert (data.train.size, data.train.shorter_side) == (224, 256)


@pytest.mark.parametrize("content", [b"", b"not an image", None], ids=["empty", "text", "cut short"])
def test_a_broken_image_is_named(tmp_path: Path, content: bytes | None) -> None:
    root = write_folder(tmp_path)
    path = root / "train" / "dog" / "2.JPEG"
    path.write_bytes(path.read_bytes()[:-40] if content is None else content)
    split = files(root)
    split.images(numbers(0, 1))
    with pytest.raises(InputError, match="cannot be decoded as an image") as caught:
        split.images()
    assert str(path) in str(caught.value)


def test_folders_that_differ_are_named(tmp_path: Path) -> None:
    root = write_folder(tmp_path)
    write_image(root / "train" / "bird" / "0.png")
    write_image(root / "val" / "fish" / "0.png")
    with pytest.raises(InputError, match="only in train/: bird; only in val/: fish"):
        load(f"folder:{root}")


@pytest.mark.parametrize(
    ("size", "message"),
    [(0, "size: expected at least 1, got 0"), (300, "size: expected at most shorter_side=256, got 300")],
)
def test_images_cannot_be_cropped_to_any_size(tmp_path: Path, size: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Files(tmp_path, (), numbers(), size)


def test_an_empty_class_is_named(tmp_path: Path) -> None:
    root = write_folder(tmp_path)
    for split in ("train", "val"):
        (root / split / "bird").mkdir()
    with pytest.raises(InputError, match=r"train/bird: no images in it"):
        load(f"folder:{root}")


def test_folders_without_classes_or_splits_are_explained(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    with pytest.raises(InputError, match=r"expected the folders train/ and val/ \(or test/\)"):
        load(f"folder:{tmp_path}")
    (tmp_path / "val").mkdir()
    with pytest.raises(InputError, match="train: no folders in it; expected one folder of images per class"):
        load(f"folder:{tmp_path}")


@pytest.mark.slow
def test_the_real_imagenette() -> None:
    data = require("imagenette")
    assert (len(data.train), len(data.test), data.shape) == (9_469, 3_925, (3, 64, 64))
    assert data.classes == 10
