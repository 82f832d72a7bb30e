"""The networks of He et al. and Xie et al., and their plain twins."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch

import skipscope as ss
from skipscope.errors import InputError
from skipscope.models.resnet import ResNet
from skipscope.models.schemes import translated
from tests.slow import thinned

VARIANTS = [
    {"block": block, "preactivation": preactivation, "shortcut": shortcut, "cardinality": cardinality}
    for block, preactivation, shortcut, cardinality in itertools.product(
        ("basic", "bottleneck"), (False, True), ("pad", "projection"), (1, 2)
    )
]


def small(depth: int | None = None, **options: Any) -> ResNet:
    depth = depth or (11 if options.get("block") == "bottleneck" else 14)
    return ResNet(depth, **{"channels": (4, 6, 9), "input_channels": 2, "classes": 5, **options})


def name_of(options: dict[str, Any]) -> str:
    return "-".join(str(value) for value in options.values())


def parameters(net: ResNet) -> int:
    return sum(p.numel() for p in net.parameters())


# ---- units


# Any two values of two options occur together in one of these.
PAIRWISE = [
    ("basic", False, "pad", 1),
    ("basic", False, "projection", 2),
    ("basic", True, "projection", 1),
    ("basic", True, "projection", 2),  # has a convolution of its own
    ("bottleneck", False, "projection", 1),
    ("bottleneck", True, "pad", 2),
]


@pytest.mark.parametrize(
    "options",
    thinned(VARIANTS, fast=[options for options in VARIANTS if tuple(options.values()) in PAIRWISE]),
    ids=name_of,
)
def test_every_block_is_found_as_a_unit(options: dict[str, Any]) -> None:
    net = small(**options).eval()
    x = torch.randn(3, 2, 9, 9)  # odd, so that halving rounds
    assert net(x).shape == (3, 5)
    trunk = ss.trace(net, x)
    assert [unit.name for unit in trunk.units] == list(net.blocks)
    changes = options["shortcut"]
    if options["block"] == "bottleneck":  # which lets out more channels than the stem
        assert [unit.kind for unit in trunk.units] == [changes, changes, changes]
    else:
        assert [unit.kind for unit in trunk.units] == ["identity", "identity", changes, "identity", changes, "identity"]
    assert torch.allclose(trunk.replay(x), net(x), atol=1e-5)


BARE = [{"batch_norm": False}, {"activation": "linear"}, {"batch_norm": False, "activation": "linear"}]


@pytest.mark.parametrize(
    ("options", "preactivation"),
    thinned(
        itertools.product(BARE, [False, True]),
        fast=[(BARE[0], False), (BARE[0], True), (BARE[1], True), (BARE[2], False)],
    ),
    ids=str,
)
def test_units_are_found_without_norm_and_without_activation(options: dict[str, Any], preactivation: bool) -> None:
    net = small(8, preactivation=preactivation, **options).eval()
    trunk = ss.trace(net, torch.randn(2, 2, 8, 8))
    assert [unit.name for unit in trunk.units] == list(net.blocks)
    assert [unit.kind for unit in trunk.units] == ["identity", "pad", "pad"]


@pytest.mark.parametrize("options", VARIANTS, ids=name_of)
def test_the_plain_twin_starts_from_the_same_weights(options: dict[str, Any]) -> None:
    states = []
    for skips in (True, False):
        torch.manual_seed(7)
        states.append(small(skips=skips, **options).state_dict())
    residual, plain = states
    extra = set(residual) - set(plain)
    assert bool(extra) == (options["shortcut"] == "projection")
    assert all("shortcut" in name for name in extra)
    assert all(torch.equal(residual[name], value) for name, value in plain.items())


@pytest.mark.parametrize(
    ("block", "preactivation"),
    thinned(itertools.product(["basic", "bottleneck"], [False, True]), fast=[("basic", False), ("bottleneck", True)]),
)
def test_the_plain_twin_has_no_units(block: str, preactivation: bool) -> None:
    net = small(skips=False, block=block, preactivation=preactivation).eval()
    assert len(ss.trace(net, torch.randn(2, 2, 8, 8))) == 0


def test_a_second_bottleneck_of_a_stage_has_an_identity() -> None:
    net = small(20, block="bottleneck", preactivation=True).eval()
    trunk = ss.trace(net, torch.randn(2, 2, 8, 8))
    assert [unit.kind for unit in trunk.units] == ["pad", "identity"] * 3


def test_the_network_is_its_stem_its_blocks_and_its_head() -> None:
    for preactivation in (False, True):
        net = small(preactivation=preactivation).eval()
        x = torch.randn(2, 2, 8, 8)
        h = net.stem(x)
        for block in net.blocks.values():
            h = block(h)
        assert torch.equal(net.head(h), net(x))


# ---- sizes


@pytest.mark.parametrize(("depth", "block"), [(20, "basic"), (29, "bottleneck")])
def test_depth_counts_the_layers_with_weights(depth: int, block: str) -> None:
    weights = [p for name, p in ResNet(depth, block=block).named_parameters() if p.dim() > 1 and "shortcut" not in name]
    assert len(weights) == depth


@pytest.mark.parametrize(
    ("depth", "millions"), [(20, 0.27), (32, 0.46), (44, 0.66), (56, 0.85), (110, 1.7), (1202, 19.4)]
)
def test_sizes_of_he_et_al(depth: int, millions: float) -> None:
    """Table 6 of the CVPR 2016 paper; shortcuts without weights."""
    with torch.device("meta"):
        assert parameters(ResNet(depth)) / 1e6 == pytest.approx(millions, abs=0.05 if millions > 1 else 0.005)


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"depth": 20}, 272_474),
        ({"depth": 110}, 1_730_714),
        ({"depth": 164, "block": "bottleneck"}, 1_704_154),
        ({"depth": 110, "preactivation": True}, 1_730_522),
        ({"depth": 164, "block": "bottleneck", "preactivation": True}, 1_703_258),
        ({"depth": 1001, "block": "bottleneck", "preactivation": True}, 10_327_706),
        (
            {
                "depth": 29,
                "block": "bottleneck",
                "channels": (64, 128, 256),
                "cardinality": 32,
                "group_width": 4,
            },
            4_775_754,
        ),
        (
            {
                "depth": 29,
                "block": "bottleneck",
                "channels": (64, 128, 256),
                "cardinality": 16,
                "group_width": 64,
            },
            68_155_210,
        ),
    ],
    ids=str,
)
def test_sizes_of_pytorchcv(options: dict[str, Any], count: int) -> None:
    """As its list of CIFAR-10 models gives them; all shortcuts between shapes are projections there."""
    with torch.device("meta"):
        assert parameters(ResNet(**options, shortcut="projection")) == count


@pytest.mark.parametrize(("cardinality", "width"), [(2, 40), (4, 24), (8, 14), (32, 4)])
def test_the_width_of_a_path_is_that_of_equal_cost(cardinality: int, width: int) -> None:
    """Table 2 of Xie et al., for a bottleneck of 64 channels."""
    with torch.device("meta"):
        net = ResNet(11, block="bottleneck", channels=(64, 128, 256), cardinality=cardinality)
    inner = [net.state_dict()[f"stage{stage}.0.conv2.weight"].shape[0] for stage in (1, 2, 3)]
    assert inner == [cardinality * width * factor for factor in (1, 2, 4)]


# ---- the form for large images


def large(depth: int, **options: Any) -> ResNet:
    return ResNet(
        depth,
        **{"large": True, "block": "bottleneck", "channels": (64, 128, 256, 512), "classes": 1000, **options},
    )


@pytest.mark.parametrize(
    ("depth", "options", "count"),
    [
        (50, {}, 25_557_032),
        (101, {}, 44_549_160),
        (152, {}, 60_192_808),
        (50, {"cardinality": 32, "group_width": 4}, 25_028_904),
        (101, {"cardinality": 32, "group_width": 8}, 88_791_336),
    ],
)
def test_sizes_of_torchvision(depth: int, options: dict[str, Any], count: int) -> None:
    """As its documentation gives them."""
    with torch.device("meta"):
        assert parameters(large(depth, shortcut="projection", **options)) == count


def test_a_large_network_is_that_of_torchvision() -> None:
    torchvision = pytest.importorskip("torchvision")
    theirs = torchvision.models.resnext50_32x4d(weights=None, num_classes=4, zero_init_residual=False).double().eval()
    ours = large(50, shortcut="projection", cardinality=32, group_width=4, classes=4).double().eval()
    ours.load_state_dict(translated(ours, theirs.state_dict(), Path("theirs")))
    x = torch.randn(1, 3, 40, 40, dtype=torch.float64)
    assert torch.allclose(ours(x), theirs(x), rtol=1e-10, atol=1e-12)


def test_blocks_of_large_networks_are_found_as_units() -> None:
    net = large(50, channels=(2, 2, 4, 4), classes=3, shortcut="projection", cardinality=2, group_width=1).eval()
    x = torch.randn(2, 3, 33, 33)
    trunk = ss.trace(net, x)
    assert [unit.name for unit in trunk.units] == list(net.blocks)
    kinds = [["projection", *["identity"] * (count - 1)] for count in (3, 4, 6, 3)]
    assert [unit.kind for unit in trunk.units] == list(itertools.chain(*kinds))
    assert torch.allclose(trunk.replay(x), net(x), atol=1e-5)


@pytest.mark.parametrize("wrong", [{"block": "basic"}, {"channels": (4, 8, 16)}, {"depth": 56}, {"depth": 18}], ids=str)
def test_wrong_large_networks_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="ResNet: expected"):
        large(**{"depth": 50, **wrong})


# ---- scaled branches


@pytest.mark.parametrize(("preactivation", "shortcut"), [(False, "pad"), (True, "projection")])
def test_the_scale_is_in_the_branch_of_a_unit(preactivation: bool, shortcut: str) -> None:
    net = small(8, scale=0.25, preactivation=preactivation, shortcut=shortcut).double().eval()
    usual = small(8, preactivation=preactivation, shortcut=shortcut).double().eval()
    usual.load_state_dict(net.state_dict())
    x = torch.randn(2, 2, 8, 8, dtype=torch.float64)
    scaled, unscaled = ss.trace(net, x), ss.trace(usual, x)
    assert [unit.name for unit in scaled.units] == list(net.blocks)
    assert [unit.kind for unit in scaled.units] == [unit.kind for unit in unscaled.units]
    entry = torch.randn(2, 4, 8, 8, dtype=torch.float64)
    assert torch.allclose(scaled[0].branch(entry), 0.25 * unscaled[0].branch(entry))
    assert torch.equal(scaled[0].skip(entry), entry)


def test_a_network_that_differs_in_its_scale_or_its_beginning_says_so() -> None:
    assert "scale=0.25" in repr(small(8, scale=0.25))
    assert "initial=xavier" in repr(small(8, initial="xavier"))
    assert not any(word in repr(small(8)) for word in ("scale=", "initial="))


# ---- options


def test_initial_weights_have_the_variance_of_he_et_al() -> None:
    for activation, gain in (("relu", 2), ("linear", 1)):
        net = ResNet(20, activation=activation)
        weight = net.state_dict()["stage3.1.conv1.weight"]
        assert weight.var().item() == pytest.approx(gain / (64 * 9), rel=0.05)


def test_without_norm_there_is_nothing_but_convolutions_and_the_classifier() -> None:
    names = {name for name, _ in small(batch_norm=False, shortcut="projection").named_parameters()}
    assert not any("norm" in name for name in names)
    assert {name for name in names if name.endswith("bias")} == {"classifier.bias"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"depth": 21},
        {"depth": 2},
        {"depth": -4},
        {"depth": 20, "block": "bottleneck", "group_width": 4},
        {"depth": 32, "block": "bottleneck"},
        {"block": "triple"},
        {"shortcut": "wire"},
        {"activation": "sigmoid"},
        {"channels": (4, 8)},
        {"channels": (8, 4, 16)},
        {"cardinality": 0},
        {"cardinality": 2, "group_width": 0},
        {"classes": 0},
        {"input_channels": 0},
        {"stochastic_depth": 1.0},
        {"stochastic_depth": 0.5, "skips": False},
        {"scale": 0.0},
        {"scale": 0.1, "skips": False},
        {"zero": True, "skips": False},
        {"initial": "he_normal"},
    ],
    ids=str,
)
def test_wrong_options_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="expected"):
        ResNet(**{"depth": 20, **wrong})


def test_a_wrong_depth_names_the_next_ones() -> None:
    with pytest.raises(InputError, match=r"6 n \+ 2 of basic blocks, such as 50 or 56, got 52"):
        ResNet(52)
    with pytest.raises(InputError, match=r"9 n \+ 2 of bottleneck blocks, such as 11 or 20, got 8"):
        ResNet(8, block="bottleneck")


# ---- stochastic depth


def test_survival_falls_linearly_to_the_last_block() -> None:
    net = small(stochastic_depth=0.6)
    assert [block.survival for block in net.blocks.values()] == pytest.approx([0.9, 0.8, 0.7, 0.6, 0.5, 0.4])


@pytest.mark.parametrize("preactivation", [False, True])
def test_evaluation_does_not_know_of_stochastic_depth(preactivation: bool) -> None:
    x = torch.randn(2, 2, 8, 8)
    nets = [small(preactivation=preactivation, stochastic_depth=drop).eval() for drop in (0.0, 0.5)]
    nets[1].load_state_dict(nets[0].state_dict())
    assert torch.equal(nets[0](x), nets[1](x))


@pytest.mark.parametrize("shortcut", ["pad", "projection"])
def test_training_has_the_expectation_of_evaluation(shortcut: str) -> None:
    """Without batch norm and activation a block is linear in what it drops, so its mean is exact."""
    torch.manual_seed(0)
    net = small(
        stochastic_depth=0.6, batch_norm=False, activation="linear", preactivation=True, shortcut=shortcut
    ).double()
    block = net.blocks["stage2.0"]
    h = torch.randn(2, 4, 8, 8, dtype=torch.float64)
    expected, skipped = block.eval()(h), block.shortcut(h)  # type: ignore[misc]
    block.train()
    outcomes = [block(h) for _ in range(400)]
    kept = [outcome for outcome in outcomes if not torch.equal(outcome, skipped)]
    assert all(torch.allclose(outcome, kept[0]) for outcome in kept)
    assert len(kept) / len(outcomes) == pytest.approx(0.7, abs=0.08)
    mean = 0.7 * kept[0] + 0.3 * skipped
    assert torch.allclose(mean, expected)


@pytest.mark.parametrize("convolutions", thinned([1, 2, 3, 4], fast=[1, 3]))
def test_shortcuts_of_any_depth_have_the_same_weights_in_number(convolutions: int) -> None:
    model = ResNet(38, channels=(4, 8, 16), preactivation=True, shortcut_depth=convolutions).eval()
    usual = ResNet(38, channels=(4, 8, 16), preactivation=True)
    assert len(ss.trace(model, torch.randn(2, 3, 8, 8)).units) == 36 // convolutions
    assert sum(p.numel() for p in model.parameters()) == sum(p.numel() for p in usual.parameters())
    assert sum("conv" in name for name, _ in model.stage2[1].named_children()) == convolutions


def test_blocks_of_a_fixed_length_refuse_another_shortcut_depth() -> None:
    with pytest.raises(InputError, match="shortcut_depth=3 expected basic pre-activation blocks"):
        ResNet(20, shortcut_depth=3)
    with pytest.raises(InputError, match=r"expected a depth of 12 n \+ 2"):
        ResNet(20, preactivation=True, shortcut_depth=4)
    with pytest.raises(InputError, match="ResNet: shortcut_depth: expected at least 1, got 0"):
        ResNet(20, preactivation=True, shortcut_depth=0)
