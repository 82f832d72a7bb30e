"""Fully connected networks against their formulas, in float64 from weights taken by name."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import skipscope as ss
from skipscope.data import digits
from skipscope.errors import InputError
from skipscope.models import ConnectedNet, ConnectedSpec, build
from skipscope.training import Settings, accuracy, train
from tests import seeded

WIDTH, PATH = 6, 4
VARIANTS = [
    {"preactivation": preactivation, "skips": skips, "cardinality": cardinality}
    for preactivation, skips, cardinality in itertools.product((False, True), (True, False), (1, 3))
]


def spec(**options: Any) -> ConnectedSpec:
    path = {"group_width": PATH} if options.get("cardinality", 1) > 1 else {}
    return ConnectedSpec(**{"depth": 8, "width": WIDTH, "input_shape": (2, 3, 3), "classes": 5, **path, **options})


def network(**options: Any) -> ConnectedNet:
    """In float64, with norms that do something, in evaluation mode."""
    torch.manual_seed(0)
    net = ConnectedNet(spec(**options)).double()
    for name, value in net.state_dict().items():
        if "norm" in name and value.is_floating_point():
            value.copy_(torch.rand(value.shape) + 0.5 * name.endswith(("weight", "var")))
    return net.eval()


def images() -> Tensor:
    generator = seeded.generator(1)
    return torch.randn(4, 2, 3, 3, dtype=torch.float64, generator=generator, device=generator.device)


def reference(net: ConnectedNet, x: Tensor) -> Tensor:
    w, spec = net.state_dict(), net.spec

    def act(h: Tensor) -> Tensor:
        return h.clamp(min=0) if spec.activation == "relu" else h

    def norm(h: Tensor, name: str) -> Tensor:
        if not spec.batch_norm:
            return h
        scale, shift, mean, variance = (w[f"{name}.{key}"] for key in ("weight", "bias", "running_mean", "running_var"))
        return (h - mean) / (variance + 1e-5).sqrt() * scale + shift

    def paths(h: Tensor, block: str) -> Tensor:
        """The sum over paths W2_k relu norm W1_k h."""
        size = PATH if spec.cardinality > 1 else WIDTH
        middle = act(norm(h @ w[f"{block}.linear1.weight"].T, f"{block}.norm{2 if spec.preactivation else 1}"))
        second = w[f"{block}.linear2.weight"].split(size, dim=1)
        return torch.stack([part @ matrix.T for part, matrix in zip(middle.split(size, 1), second, strict=True)]).sum(0)

    h = x.reshape(len(x), -1) @ w["first.weight"].T
    if not spec.preactivation:
        h = act(norm(h, "norm"))
    for number in range(3):
        block = f"stage1.{number}"
        if spec.preactivation:
            total = paths(act(norm(h, f"{block}.norm1")), block)
        else:
            total = norm(paths(h, block), f"{block}.norm2")
        total = h + spec.scale * total if spec.skips else total
        h = total if spec.preactivation else act(total)
    if spec.preactivation:
        h = act(norm(h, "final_norm"))
    return h @ w["classifier.weight"].T + w["classifier.bias"]


@pytest.mark.parametrize("more", [{}, {"batch_norm": False}, {"activation": "linear"}, {"scale": 0.3}], ids=str)
@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_a_network_is_its_formula(options: dict[str, Any], more: dict[str, Any]) -> None:
    if "scale" in more and not options["skips"]:
        more = {"batch_norm": False, "activation": "linear"}
    net = network(**options, **more)
    torch.testing.assert_close(net(images()), reference(net, images()), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "options",
    [
        {"scale": 0.1},
        {"cardinality": 3, "batch_norm": False},
        {"preactivation": True, "cardinality": 3, "scale": 2.0},
        {"batch_norm": False, "activation": "linear"},
    ],
    ids=str,
)
def test_every_block_is_found_as_a_unit(options: dict[str, Any]) -> None:
    net, x = network(**options), images()
    trunk = ss.trace(net, x)
    assert [(unit.name, unit.kind) for unit in trunk.units] == [(f"stage1.{k}", "identity") for k in range(3)]
    entry = net.stem(x)
    branch = net.blocks["stage1.0"].branch(entry)
    torch.testing.assert_close(trunk[0].branch(entry), net.spec.scale * branch)  # the scale is in the branch


def test_the_plain_twin_has_named_units() -> None:
    net, x = network(skips=False), images()
    assert len(ss.trace(net, x)) == 0
    assert len(ss.trace(net, x, units=list(net.blocks)).units) == 3


@pytest.mark.parametrize("initial", ["he", "xavier", "orthogonal", "small"])
@pytest.mark.parametrize("preactivation", [False, True])
def test_twins_start_from_the_same_weights(initial: str, preactivation: bool) -> None:
    residual, plain = (network(skips=skips, initial=initial, preactivation=preactivation) for skips in (True, False))
    assert residual.state_dict().keys() == plain.state_dict().keys()
    assert all(torch.equal(value, plain.state_dict()[name]) for name, value in residual.state_dict().items())


def test_depth_counts_the_matrices() -> None:
    net = build("plainnet60-mnist-connected")
    assert sum(isinstance(module, nn.Linear) for module in net.modules()) == 60
    assert net.state_dict()["first.weight"].shape == (64, 784)
    assert len(net.blocks) == 29


def test_a_path_is_as_wide_as_the_state() -> None:
    weights = build("resnext8-digits-connected-n4-c3").state_dict()
    assert weights["stage1.0.linear1.weight"].shape == (48, 16)
    assert weights["stage1.0.linear2.weight"].shape == (16, 48)


def test_without_norm_there_are_matrices_and_the_classifier_alone() -> None:
    names = [name for name, _ in network(batch_norm=False).named_parameters()]
    assert not any("norm" in name for name in names)
    assert [name for name in names if name.endswith("bias")] == ["classifier.bias"]


def test_states_keep_their_size_without_norm() -> None:
    """He et al.'s variance of the fan-in: the mean square of linear states is that of the image, whatever its size."""
    torch.manual_seed(0)
    net = ConnectedNet(ConnectedSpec(depth=10, width=400, skips=False, batch_norm=False, activation="linear"))
    x = torch.randn(50, 1, 28, 28)
    h = net.stage1(net.stem(x))
    assert h.square().mean().item() == pytest.approx(1, rel=0.15)


@pytest.mark.parametrize(
    "wrong",
    [
        {"depth": 9},
        {"depth": 2},
        {"width": 0},
        {"input_shape": (1, 8)},
        {"input_shape": (1, 0, 8)},
        {"scale": 0.0},
        {"scale": float("nan")},
        {"scale": 0.1, "skips": False},
        {"zero": True, "skips": False},
        {"initial": "uniform"},
        {"activation": "sigmoid"},
        {"classes": 0},
        {"cardinality": 0},
        {"group_width": 3},
        {"parametrisation": "dirac"},
        {"parametrisation": "identity", "skips": False},
    ],
    ids=str,
)
def test_wrong_options_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"ConnectedNet: .*expected"):
        ConnectedSpec(**wrong)


def test_images_of_another_size_are_refused() -> None:
    with pytest.raises(InputError, match="expected images of 2 x 3 x 3, got a tensor of 4 x 2 x 4 x 3"):
        network()(torch.zeros(4, 2, 4, 3, dtype=torch.float64))


def test_it_trains() -> None:
    torch.manual_seed(0)
    net = build("resnet8-digits-connected-n4")
    train(net, digits().train, Settings(epochs=2, rate=0.1))
    assert accuracy(net, digits().test) > 0.8
