"""The networks of He et al. and their twins."""

from __future__ import annotations

import pytest
import torch

import skipscope as ss
from skipscope.errors import InputError
from skipscope.models.resnet import ResNet


@pytest.mark.parametrize(("depth", "units"), [(8, 3), (20, 9)])
@pytest.mark.parametrize("shortcut", ["pad", "projection"])
def test_every_block_is_found_as_a_unit(depth: int, units: int, shortcut: str) -> None:
    net = ResNet(depth, channels=(4, 6, 8), input_channels=2, classes=5, shortcut=shortcut).eval()
    x = torch.randn(3, 2, 9, 9)  # odd, so that halving rounds
    assert net(x).shape == (3, 5)
    trunk = ss.trace(net, x)
    assert [unit.name for unit in trunk.units] == list(net.blocks)
    assert len(trunk) == units
    assert [unit.kind for unit in trunk.units if unit.name.endswith(".0")] == ["identity", shortcut, shortcut]
    assert [len(stage.units) for stage in trunk.stages] == [units // 3] * 3


def test_depth_counts_the_layers_with_weights() -> None:
    net = ResNet(20)
    weights = [p for name, p in net.named_parameters() if p.dim() > 1 and "shortcut" not in name]
    assert len(weights) == 20


@pytest.mark.parametrize("shortcut", ["pad", "projection"])
def test_the_plain_twin_starts_from_the_same_weights_and_has_no_units(shortcut: str) -> None:
    states = []
    for skips in (True, False):
        torch.manual_seed(7)
        net = ResNet(14, channels=(4, 6, 8), input_channels=1, skips=skips, shortcut=shortcut).eval()
        states.append(net.state_dict())
    residual, plain = states
    extra = set(residual) - set(plain)
    assert bool(extra) == (shortcut == "projection")
    assert all("shortcut" in name for name in extra)
    assert all(torch.equal(residual[name], value) for name, value in plain.items())
    assert len(ss.trace(net, torch.randn(2, 1, 8, 8))) == 0


@pytest.mark.parametrize(
    "wrong", [{"depth": 21}, {"depth": 2}, {"shortcut": "wire"}, {"channels": (4, 8)}, {"channels": (8, 4, 16)}]
)
def test_wrong_options_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError, match="expected"):
        ResNet(**{"depth": 20, **wrong})  # type: ignore[arg-type]
