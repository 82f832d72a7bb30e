"""Each block against its formula, written out by hand with weights taken by name."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from skipscope.models.blocks import BLOCKS, Block, BlockPlan, Pad
from skipscope.models.specification import SHORTCUTS

State = dict[str, Tensor]
BEFORE, WIDTH, CARDINALITY, GROUP_WIDTH = 4, 6, 3, 2


def made(block: str, preactivation: bool, cardinality: int, stride: int, shortcut: str | None, **options: Any) -> Block:
    """In float64, with norms that are not the identity, so that leaving one out would show."""
    before = BEFORE if stride == 2 else WIDTH * (4 if block == "bottleneck" else 1)
    kind = BLOCKS[block, preactivation, cardinality > 1]
    torch.manual_seed(stride)
    plan = BlockPlan(before, WIDTH, stride, shortcut, cardinality=cardinality, group_width=GROUP_WIDTH, **options)
    made = kind(plan).double().eval()
    for name, value in made.state_dict().items():
        if value.is_floating_point() and value.dim() == 1:
            value.copy_(torch.rand(value.shape) + 0.5 * (name.endswith(("weight", "var"))))
    return made


def norm(h: Tensor, state: State, name: str) -> Tensor:
    if f"{name}.weight" not in state:
        return h
    weight, bias, mean, variance = (
        state[f"{name}.{part}"][:, None, None] for part in ("weight", "bias", "running_mean", "running_var")
    )
    return weight * (h - mean) / (variance + 1e-5).sqrt() + bias


def around(h: Tensor, state: State, stride: int, after: int) -> Tensor:
    if "shortcut.0.weight" in state:
        return norm(F.conv2d(h, state["shortcut.0.weight"], stride=stride), state, "shortcut.1")
    if stride == 1:
        return h
    padded = torch.zeros(h.shape[0], after, h.shape[2] // 2, h.shape[3] // 2, dtype=h.dtype)
    front = (after - h.shape[1]) // 2
    padded[:, front : front + h.shape[1]] = h[:, :, ::2, ::2]
    return padded


def basic(h: Tensor, w: State, stride: int, act: Callable[[Tensor], Tensor]) -> Tensor:
    """The sum over paths of two convolutions; one path: the whole."""
    inner = norm(F.conv2d(h, w["conv1.weight"], stride=stride, padding=1), w, "norm1")
    paths = w["conv2.weight"].split(GROUP_WIDTH, dim=1)
    branch = sum(
        F.conv2d(act(part), path, padding=1) for part, path in zip(inner.split(GROUP_WIDTH, 1), paths, strict=True)
    )
    return norm(branch, w, "norm2")  # type: ignore[arg-type]


def pre_basic(h: Tensor, w: State, stride: int, act: Callable[[Tensor], Tensor]) -> Tensor:
    inner = F.conv2d(act(norm(h, w, "norm1")), w["conv1.weight"], stride=stride, padding=1)
    return F.conv2d(act(norm(inner, w, "norm2")), w["conv2.weight"], padding=1)


def grouped(h: Tensor, weight: Tensor, stride: int) -> Tensor:
    """The convolution of each group on its own."""
    size = weight.shape[1]
    parts = zip(h.split(size, 1), weight.split(size, 0), strict=True)
    return torch.cat([F.conv2d(part, own, stride=stride, padding=1) for part, own in parts], 1)


def bottleneck(h: Tensor, w: State, stride: int, act: Callable[[Tensor], Tensor]) -> Tensor:
    h = act(norm(F.conv2d(h, w["conv1.weight"]), w, "norm1"))
    h = act(norm(grouped(h, w["conv2.weight"], stride), w, "norm2"))
    return norm(F.conv2d(h, w["conv3.weight"]), w, "norm3")


def pre_bottleneck(h: Tensor, w: State, stride: int, act: Callable[[Tensor], Tensor]) -> Tensor:
    h = F.conv2d(act(norm(h, w, "norm1")), w["conv1.weight"])
    h = grouped(act(norm(h, w, "norm2")), w["conv2.weight"], stride)
    return F.conv2d(act(norm(h, w, "norm3")), w["conv3.weight"])


FORMULAS = {
    ("basic", False): basic,
    ("basic", True): pre_basic,
    ("bottleneck", False): bottleneck,
    ("bottleneck", True): pre_bottleneck,
}


@pytest.mark.parametrize(
    ("block", "preactivation", "cardinality", "shortcut", "stride"),
    itertools.product(("basic", "bottleneck"), (False, True), (1, CARDINALITY), (None, "pad", "projection"), (1, 2)),
)
@pytest.mark.parametrize("options", [{}, {"activation": "linear"}, {"batch_norm": False}], ids=str)
def test_a_block_is_its_formula(
    block: str, preactivation: bool, cardinality: int, shortcut: str | None, stride: int, options: dict[str, Any]
) -> None:
    module = made(block, preactivation, cardinality, stride, shortcut, **options)
    w = module.state_dict()
    act = (lambda h: h) if "activation" in options else F.relu
    after = WIDTH * (4 if block == "bottleneck" else 1)
    h = torch.randn(2, BEFORE if stride == 2 else after, 8, 8, dtype=torch.float64)
    total = FORMULAS[block, preactivation](h, w, stride, act)
    if shortcut is not None:
        shared = preactivation and "shortcut.0.weight" in w  # a projection starts behind the pre-activation
        total = total + around(act(norm(h, w, "norm1")) if shared else h, w, stride, after)
    expected = total if preactivation else act(total)
    assert module(h).shape == (2, after, 8 // stride, 8 // stride)
    assert torch.allclose(module(h), expected, rtol=1e-12, atol=1e-12)
    assert torch.allclose(module.branch(h), FORMULAS[block, preactivation](h, w, stride, act))


@pytest.mark.parametrize(
    ("block", "preactivation", "shortcut"), itertools.product(("basic", "bottleneck"), (False, True), SHORTCUTS)
)
def test_a_branch_is_scaled_before_the_sum(block: str, preactivation: bool, shortcut: str) -> None:
    module = made(block, preactivation, 1, 2, shortcut, scale=0.3)
    w = module.state_dict()
    h = torch.randn(2, BEFORE, 8, 8, dtype=torch.float64)
    shared = preactivation and shortcut == "projection"
    skipped = around(F.relu(norm(h, w, "norm1")) if shared else h, w, 2, WIDTH * module.expansion)
    total = skipped + 0.3 * FORMULAS[block, preactivation](h, w, 2, F.relu)
    assert torch.allclose(module(h), total if preactivation else F.relu(total), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("block", "preactivation", "options", "ending"),
    [
        ("basic", False, {}, "norm2"),
        ("basic", False, {"batch_norm": False}, "conv2"),
        ("basic", True, {}, "conv2"),
        ("bottleneck", False, {}, "norm3"),
        ("bottleneck", True, {}, "conv3"),
    ],
)
def test_what_stands_last_on_a_branch(block: str, preactivation: bool, options: dict[str, Any], ending: str) -> None:
    module = made(block, preactivation, 1, 2, "projection", **options)
    assert module.ending() is module.get_submodule(ending)


def test_an_aggregated_bottleneck_has_a_grouped_convolution() -> None:
    w = made("bottleneck", False, CARDINALITY, 1, "pad").state_dict()
    assert w["conv2.weight"].shape == (CARDINALITY * GROUP_WIDTH, GROUP_WIDTH, 3, 3)


def test_zero_channels_stand_half_in_front_and_an_odd_one_behind() -> None:
    h = torch.arange(1.0, 19).reshape(1, 2, 3, 3)
    out = Pad(3, 2)(h)
    assert out.shape == (1, 5, 2, 2)
    assert out[0, 1:3].tolist() == [[[1, 3], [7, 9]], [[10, 12], [16, 18]]]
    assert out[0, [0, 3, 4]].count_nonzero() == 0
