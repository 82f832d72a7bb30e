"""skipscope:NAME."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.models import build, resolve
from skipscope.models.names import FAMILIES, INPUTS, any_size, fitting, parse

CIFAR = {"input_channels": 3, "classes": 10, "input_shape": (3, 32, 32)}
DIGITS = {"classes": 10, "input_shape": (1, 8, 8)}
IMAGENET = {"input_channels": 3, "classes": 1000, "input_shape": (3, 224, 224)}
LARGE = {"large": True, "block": "bottleneck", "channels": (64, 128, 256, 512)}
PATHS = {"cardinality": 8, "group_width": 3}
DIRAC, ADDITIVE = {"parametrisation": "dirac"}, {"parametrisation": "additive"}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("resnet56-cifar", {"depth": 56, **CIFAR}),
        ("resnet110-cifar-projection", {"depth": 110, "shortcut": "projection", **CIFAR}),
        ("preresnet164-cifar-bottleneck", {"depth": 164, "preactivation": True, "block": "bottleneck", **CIFAR}),
        (
            "plainnet110-mnist",
            {"depth": 110, "skips": False, "input_channels": 1, "classes": 10, "input_shape": (1, 28, 28)},
        ),
        ("resnext29-cifar-bottleneck-c8", {"depth": 29, "block": "bottleneck", "cardinality": 8, **CIFAR}),
        (
            "resnext29-cifar-bottleneck-w4-c32-d4",
            {
                "depth": 29,
                "block": "bottleneck",
                "channels": (64, 128, 256),
                "cardinality": 32,
                "group_width": 4,
                **CIFAR,
            },
        ),
        ("resnet20-cifar100-w2", {"depth": 20, "channels": (32, 64, 128), **CIFAR, "classes": 100}),
        ("resnet20-cifar-n4", {"depth": 20, "channels": (4, 8, 16), **CIFAR}),
        ("resnet20-cifar-linear-nonorm", {"depth": 20, "activation": "linear", "batch_norm": False, **CIFAR}),
        ("plainnet60-digits-connected", {"depth": 60, "skips": False, "connected": True, **DIGITS}),
        ("resnet60-digits-connected-n8-scale10", {"depth": 60, "connected": True, "width": 8, "scale": 0.1, **DIGITS}),
        ("resnext8-digits-connected-w2-d3", {"depth": 8, "connected": True, "width": 128, **PATHS, **DIGITS}),
        ("plainnet20-cifar-orthogonal", {"depth": 20, "skips": False, "initial": "orthogonal", **CIFAR}),
        ("resnet20-cifar-xavier-zero", {"depth": 20, "initial": "xavier", "zero": True, **CIFAR}),
        ("diracnet20-cifar-small", {"depth": 20, "skips": False, **DIRAC, "initial": "small", **CIFAR}),
        ("diracnet8-digits-connected-additive", {"depth": 8, "skips": False, **ADDITIVE, "connected": True, **DIGITS}),
        ("resnet50-cifar-large", {"depth": 50, **LARGE, "shortcut": "projection", **CIFAR}),
        (
            "plainnet101-imagenet-n2",
            {"depth": 101, "skips": False, **LARGE, "channels": (32, 64, 128, 256), **IMAGENET},
        ),
        (
            "resnext101-imagenet",
            {"depth": 101, **LARGE, "shortcut": "projection", "cardinality": 32, "group_width": 4, **IMAGENET},
        ),
    ],
)
def test_a_name_stands_for_options(name: str, options: dict[str, Any]) -> None:
    assert parse(name) == options


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_can_be_built(family: str) -> None:
    with torch.device("meta"):
        net = build(f"{family}8-digits")
        assert net(torch.empty(2, 1, 8, 8)).shape == (2, 10)
    assert net.skips == ("plain" not in family and "dirac" not in family)
    assert net.preactivation == family.startswith("pre")


@pytest.mark.parametrize("kind", INPUTS)
def test_every_input_gets_its_batch(kind: str) -> None:
    source = resolve(f"skipscope:resnet8-{kind}")
    shape, classes = INPUTS[kind]
    assert isinstance(source.batch, Tensor)
    assert source.batch.shape == (2, *shape)
    assert source.model(source.batch).shape == (2, classes)
    assert not source.model.training
    assert str(source) == f"skipscope resnet8-{kind}, random weights"


def test_digits_go_through_three_stages() -> None:
    net = build("resnet20-digits").eval()
    h = net.stem(torch.zeros(2, 1, 8, 8))
    shapes = [(h := stage(h)).shape[1:] for stage in (net.stage1, net.stage2, net.stage3)]
    assert shapes == [(16, 8, 8), (32, 4, 4), (64, 2, 2)]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resent56-cifar", "no family 'resent'; did you mean resnet.*families: resnet, preresnet, plainnet"),
        ("vgg16-cifar", r"no family 'vgg' \(families"),
        ("resnet-cifar", "no depth after 'resnet'"),
        ("resnet56", "no input .*inputs: cifar, cifar100, mnist, digits, imagenette, imagenet;"),
        ("resnet56-cifer", "no input 'cifer'; did you mean cifar"),
        ("resnet56-cifar-projektion", "no option 'projektion'; did you mean projection"),
        ("resnet56-cifar-z8", "no option 'z8'.*options: projection, .*nonorm, connected, .*wK, nK, cK, dK, sK, scaleK"),
        ("resnet56-cifar-w0", "at least 1"),
        ("resnet56-cifar-n3", "does not divide the 16 channels"),
        ("resnet56-cifar-w2-n2", "channels a second time"),
        ("resnet56-cifar-c8", "use resnext"),
        ("resnet56-cifar-w2-w3", "channels a second time"),
        ("resnext20-cifar-c8-c4", "cardinality a second time"),
        ("plainnet56-cifar-projection", "no shortcuts"),
        ("resnet55-cifar", "such as 50 or 56, got 55"),
        ("resnet32-cifar-bottleneck", r"9 n \+ 2"),
        ("", "no family"),
        (f"resnet{'9' * 5000}-cifar", r"depth '9{40}\.\.\.' expected a number of at least 1 and at most 20000$"),
        ("resnet6000002-cifar", "at most 20000"),
        ("resnet0-cifar", "at least 1"),
        ("resnet8-cifar-w1000000", "'w1000000' expected a number of at least 1 and at most 10000"),
        (f"resnext8-cifar-c{'9' * 5000}", "at most 10000"),
        ("resnet56-cifar-", "no option ''"),
        ("plainnet20-cifar-zero", "'zero' is for branches beside a skip"),
        ("plainnet20-cifar-scale10", "'scale10' is for branches beside a skip"),
        ("diracnet20-cifar-zero", "diracnet has no skips"),
        ("resnet20-cifar-scale0", "at least 1"),
        ("resnet20-cifar-scale", "no option 'scale'"),
        ("resnet20-cifar-xavier-small", "initial a second time"),
        ("resnet20-cifar-additive", "for diracnet"),
        ("diracnet20-cifar-c4", "use resnext"),
        ("diracnet20-cifar-bottleneck", "expected basic blocks"),
        ("resnet20-cifar-connected-bottleneck", "'bottleneck' is for networks of convolutions"),
        ("preresnet20-cifar-connected-s3", "'s3' is for networks of convolutions"),
        ("resnet50-imagenet-connected", "'large' is for networks of convolutions"),
        ("resnet21-cifar-connected", r"2 n \+ 2, such as 20 or 60, got 21"),
        ("resnet20-cifar-connected-n3", "does not divide the 64 units"),
        ("resnet18-imagenet", "50, 101, 152, got bottleneck blocks and 18"),
    ],
)
def test_a_wrong_name_says_what_is_allowed(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse(name)


def test_numbers_may_begin_with_zeros() -> None:
    assert parse("resnet000020-cifar-w0002") == parse("resnet20-cifar-w2")


def test_text_is_refused() -> None:
    with pytest.raises(InputError, match="language model"):
        resolve("skipscope:resnet8-digits", text="hello")


def test_fully_connected_networks_take_images_of_one_size() -> None:
    assert any_size("resnet20-digits-n2")
    assert not any_size("resnet20-digits-connected")
    assert fitting("resnet20-digits-connected-n2", (3, 32, 32), 100) == "resnet20-cifar100-connected-n2"


def test_networks_for_large_images_stay_large() -> None:
    assert fitting("resnet50-imagenet-n4", (3, 32, 32), 10) == "resnet50-cifar-n4-large"
    assert fitting("resnet50-cifar-large", (3, 224, 224), 1000) == "resnet50-imagenet"
    assert fitting("resnet20-cifar", (3, 224, 224), 1000) == ""
    assert parse("resnet50-imagenet-large") == parse("resnet50-imagenet")


@pytest.mark.parametrize(
    "name", ["resnext8-digits-connected-n8", "diracnet8-digits-n4", "resnet8-digits-n4-orthogonal"]
)
def test_new_forms_get_their_batch(name: str) -> None:
    source = resolve(f"skipscope:{name}")
    assert isinstance(source.batch, Tensor)
    assert source.model(source.batch).shape == (2, 10)
