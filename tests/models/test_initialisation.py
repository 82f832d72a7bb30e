"""Initial weights by what is measured on them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.models import ConnectedNet, ConnectedSpec, ResNet, build

CHANNELS = (32, 32, 32)


def weight_of(initial: str, activation: str = "relu") -> Tensor:
    """Of a 3 x 3 convolution from 32 to 32 channels."""
    torch.manual_seed(1)
    net = ResNet(8, channels=CHANNELS, initial=initial, activation=activation)
    return net.state_dict()["stage2.0.conv2.weight"]


@pytest.mark.parametrize(
    ("initial", "activation", "variance"),
    [
        ("he", "relu", 2 / (9 * 32)),
        ("he", "linear", 1 / (9 * 32)),
        ("xavier", "relu", 2 / (9 * 32 + 9 * 32)),
        ("small", "relu", 1e-4),
    ],
)
def test_normal_weights_have_their_variance(initial: str, activation: str, variance: float) -> None:
    weight = weight_of(initial, activation)
    assert weight.var().item() == pytest.approx(variance, rel=0.05)
    kurtosis = (weight**4).mean() / weight.var() ** 2
    assert kurtosis.item() == pytest.approx(3, abs=0.3)  # 1.8 if it were uniform


@pytest.mark.parametrize(("activation", "gain"), [("relu", 2.0), ("linear", 1.0), ("tanh", 1.0)])
def test_orthogonal_weights_have_equal_singular_values(activation: str, gain: float) -> None:
    filters = weight_of("orthogonal", activation).double().flatten(1)
    torch.testing.assert_close(filters @ filters.T, gain * torch.eye(32, dtype=torch.float64), rtol=0, atol=1e-5)
    torch.manual_seed(0)
    net = ConnectedNet(ConnectedSpec(depth=4, width=16, initial="orthogonal", activation=activation))
    values = torch.linalg.svdvals(net.state_dict()["stage1.0.linear1.weight"])
    torch.testing.assert_close(values, torch.full((16,), gain**0.5), rtol=1e-5, atol=0)


def test_weights_by_which_relus_look_linear() -> None:
    """Every layer maps the difference of its pairs by an orthogonal matrix, whatever its units' signs."""
    torch.manual_seed(0)
    spec = ConnectedSpec(depth=6, width=16, initial="looks_linear", skips=False, batch_norm=False)
    net = ConnectedNet(spec).double().requires_grad_(False)
    images = torch.randn(40, 1, 28, 28, dtype=torch.float64)
    states = [net.stem(images)]
    for block in net.stage1:
        states.append(block(states[-1]))
    first, last = (state[:, :8] - state[:, 8:] for state in (states[0], states[-1]))
    map = torch.linalg.lstsq(first, last).solution
    torch.testing.assert_close(first @ map, last, rtol=0, atol=1e-10)
    torch.testing.assert_close(map @ map.T, torch.eye(8, dtype=torch.float64), rtol=0, atol=1e-6)
    for wrong in ({"width": 15}, {"activation": "linear"}):
        with pytest.raises(InputError, match="looks_linear"):
            ConnectedSpec(**{"depth": 6, "initial": "looks_linear", **wrong})
    with pytest.raises(InputError, match="expected a fully connected network"):
        ResNet(8, initial="looks_linear")


@pytest.mark.parametrize("initial", ["xavier", "orthogonal", "small"])
@pytest.mark.parametrize("shortcut", ["pad", "projection"])
def test_twins_start_from_the_same_weights(initial: str, shortcut: str) -> None:
    states = []
    for skips in (True, False):
        torch.manual_seed(7)
        states.append(ResNet(8, channels=(4, 8, 8), initial=initial, skips=skips, shortcut=shortcut).state_dict())
    residual, plain = states
    assert all(torch.equal(residual[name], value) for name, value in plain.items())


def test_the_classifier_does_not_change() -> None:
    found = []
    for initial in ("he", "xavier", "orthogonal", "small"):
        torch.manual_seed(3)
        found.append(ResNet(8, channels=(4, 8, 8), initial=initial).classifier.weight)
    assert all(torch.equal(found[0], other) for other in found)


@pytest.mark.parametrize(
    "name",
    [
        "resnet8-digits-n4-zero",
        "resnet8-digits-n4-zero-nonorm",
        "preresnet8-digits-n4-zero",
        "preresnet11-digits-n4-bottleneck-zero",
        "resnext11-digits-n4-bottleneck-zero",
        "resnet8-digits-n8-connected-zero",
        "resnet8-digits-n8-connected-zero-nonorm-linear",
        "preresnext8-digits-n8-connected-zero",
    ],
)
def test_zero_makes_every_block_its_shortcut_and_leaves_it_trainable(name: str) -> None:
    torch.manual_seed(0)
    net = build(name).train()
    h = net.stem(torch.randn(6, 1, 8, 8))
    for block in net.blocks.values():
        assert torch.count_nonzero(block.branch(h)) == 0
        assert torch.equal(block(h), block.tail(block.get_submodule("shortcut")(h)))
        h = block(h)
    net(torch.randn(6, 1, 8, 8)).square().sum().backward()
    weights = [block.ending().get_parameter("weight") for block in net.blocks.values()]
    assert all(weight.grad is not None and weight.grad.abs().max() > 0 for weight in weights)


def test_zero_draws_the_other_weights_as_without() -> None:
    states: list[dict[str, Any]] = []
    for name in ("resnet8-digits-n4", "resnet8-digits-n4-zero"):
        torch.manual_seed(0)
        states.append(build(name).state_dict())
    usual, zero = states
    different = [key for key, value in usual.items() if not torch.equal(value, zero[key])]
    assert different == [f"stage{stage}.0.norm2.weight" for stage in (1, 2, 3)]
