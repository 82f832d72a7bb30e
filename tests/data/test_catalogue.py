from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
import torch

from skipscope.data import NotFound, catalogue, digits, download, load, load_or_digits
from skipscope.errors import InputError
from tests.data.layouts import write_cifar_binary, write_cifar_pickles, write_idx
from tests.flips import flipped

DOWNLOADED = ("mnist", "fashion-mnist", "cifar10", "cifar100", "imagenette")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SKIPSCOPE_DATA", str(tmp_path / "root"))
    return tmp_path / "root"


# ---- where


def test_the_root_is_the_variable_or_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SKIPSCOPE_DATA", str(tmp_path / "mine"))
    assert catalogue.root() == tmp_path / "mine"
    monkeypatch.delenv("SKIPSCOPE_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert catalogue.root() == tmp_path / "cache" / "skipscope" / "data"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert catalogue.root() == tmp_path / "home" / ".cache" / "skipscope" / "data"


def test_a_name_alone_is_looked_for_under_the_root(root: Path) -> None:
    folder = write_idx(root / "MNIST" / "raw")
    assert load("mnist").source == str(folder)


def test_files_directly_in_the_root_are_not_guessed_at(root: Path) -> None:
    """Fashion-MNIST's files have the same names."""
    write_idx(root)
    with pytest.raises(NotFound):
        load("mnist")


def test_the_binary_layout_is_preferred(root: Path) -> None:
    write_cifar_pickles(root / "cifar-10-batches-py")
    assert load("cifar10").source.endswith("-py")
    write_cifar_binary(root / "cifar-10-batches-bin")
    assert load("cifar10").source.endswith("-bin")


@pytest.mark.parametrize("name", [*DOWNLOADED, "imagenet", "folder"])
def test_a_path_that_holds_nothing_says_what_was_expected(tmp_path: Path, name: str) -> None:
    with pytest.raises(NotFound, match=r"expected .*(train-images-idx3-ubyte|\.bin|train/ and val/)"):
        load(f"{name}:{tmp_path}")
    with pytest.raises(NotFound, match="nowhere does not exist"):
        load(f"{name}:{tmp_path / 'nowhere'}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("mnits", r"no data set 'mnits'; did you mean mnist\? \(known: digits, mnist, fashion-mnist, cifar10"),
        ("zzz", r"no data set 'zzz' \(known: "),
        ("", "no data set ''"),
        ("folder", "folder needs a path: folder:PATH"),
        ("folder:", "folder needs a path"),
    ],
)
def test_a_wrong_name_says_what_to_do(spec: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load(spec)


def test_size_is_for_image_folders(root: Path) -> None:
    with pytest.raises(InputError, match="size is for image folders"):
        load("mnist", size=14)
    with pytest.raises(InputError, match="positive"):
        load("imagenette", size=0)


# ---- downloads


@pytest.mark.parametrize("name", DOWNLOADED)
def test_no_network_is_one_line(root: Path, name: str) -> None:
    with pytest.raises(NotFound) as caught:
        load(name)
    title = catalogue.ENTRIES[name].title
    assert str(caught.value) == (
        f"no {title} files under {root} and the download failed (SKIPSCOPE_OFFLINE is set); "
        f"put them there, give {name}:PATH or set SKIPSCOPE_DATA"
    )


def test_imagenet_is_never_fetched(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SKIPSCOPE_OFFLINE")
    with pytest.raises(NotFound, match=r"no ImageNet files under .*; put them there, give imagenet:PATH"):
        load("imagenet")


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stands in for torchvision: writes a tiny MNIST, talks, and records what was asked for."""
    asked: list[str] = []

    def fetch(class_name: str, options: dict[str, Any], folder: str) -> None:
        asked.append(class_name)
        print("noise")
        assert socket.getdefaulttimeout() == download.PATIENCE
        write_idx(Path(folder) / "MNIST" / "raw")

    monkeypatch.setattr(download, "_fetch", fetch)
    monkeypatch.delenv("SKIPSCOPE_OFFLINE")
    return asked


def test_a_download_arrives_whole_and_quietly(
    root: Path, fetched: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(load("mnist").train) == 20
    assert len(load("mnist").train) == 20
    assert fetched == ["MNIST"]
    assert [path.name for path in root.iterdir()] == ["MNIST"]
    assert capsys.readouterr().out == ""
    assert socket.getdefaulttimeout() is None


def test_no_flipped_bit_of_a_download_gives_other_images(root: Path, fetched: list[str]) -> None:
    expected = load("mnist").describe()
    for file in sorted(path for path in (root / "MNIST").rglob("*") if path.is_file()):
        whole = file.read_bytes()
        for place, changed in flipped(whole, 10):
            file.write_bytes(changed)
            with pytest.raises(InputError, match=r"not as it was downloaded.*fetched again") as caught:
                load("mnist")
            assert file.name in str(caught.value), place
            with pytest.raises(InputError, match="not as it was downloaded"):  # and no digits stand in for it
                load_or_digits("mnist")
        file.write_bytes(whole)
    assert load("mnist").describe() == load(f"mnist:{root}").describe() == expected
    assert fetched == ["MNIST"]


def test_a_download_that_brings_something_else(root: Path, fetched: list[str]) -> None:
    with pytest.raises(NotFound, match=r"no CIFAR-10 files under .* and the download failed"):
        load("cifar10")
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("name", DOWNLOADED)
def test_a_failing_download_leaves_nothing(name: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through torchvision itself, with the network cut at the socket."""

    def unreachable(*_: object, **__: object) -> None:
        raise OSError("Network is unreachable")

    monkeypatch.delenv("SKIPSCOPE_OFFLINE")
    monkeypatch.setattr(socket, "getaddrinfo", unreachable)
    with pytest.raises(NotFound, match=r"the download failed \(.*Network is unreachable.*\); put them") as caught:
        load(name)
    assert "\n" not in str(caught.value)
    assert list(root.iterdir()) == []


def test_a_root_that_cannot_be_written(tmp_path: Path, fetched: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SKIPSCOPE_DATA", str(tmp_path / "file" / "root"))
    with pytest.raises(NotFound, match=r"the download failed \(.*Not a directory"):
        load("mnist")
    assert fetched == []


def test_torchvision_has_what_we_call() -> None:
    from torchvision import datasets

    assert all(hasattr(datasets, class_name) for class_name, _, _ in download.KNOWN.values())
    assert set(download.KNOWN) == set(DOWNLOADED)


# ---- standing in


def test_digits_stand_in_and_say_so(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = load_or_digits("cifar10", normalise="imagenet")
    assert data.stands_in_for == "cifar10"
    assert data.name == "digits"
    assert torch.equal(data.train.images(), digits().train.images())
    assert data.describe()["stands_in_for"] == "cifar10"
    assert capsys.readouterr().out == ""


def test_nothing_stands_in_for_what_is_there(root: Path) -> None:
    write_idx(root / "MNIST")
    assert load_or_digits("mnist").stands_in_for == ""
    assert load_or_digits("digits").stands_in_for == ""


def test_nothing_stands_in_for_malformed_files_wrong_paths_or_wrong_names(root: Path) -> None:
    (write_idx(root / "MNIST") / "train-labels-idx1-ubyte").write_bytes(b"\0\0")
    with pytest.raises(InputError, match="not an idx file") as caught:
        load_or_digits("mnist")
    assert not isinstance(caught.value, NotFound)
    with pytest.raises(InputError, match="does not exist"):
        load_or_digits(f"mnist:{root / 'nowhere'}")
    with pytest.raises(InputError, match="did you mean"):
        load_or_digits("cifar1")


def test_an_empty_variable_does_not_cut_the_network(
    root: Path, fetched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKIPSCOPE_OFFLINE", "0")
    load("mnist")
    assert fetched == ["MNIST"]
