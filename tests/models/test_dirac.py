"""Layers that carry an identity in their weights, and the networks of them."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import skipscope as ss
from skipscope.data import digits
from skipscope.errors import InputError
from skipscope.models import DiracConv2d, DiracLinear, ResNet, build
from skipscope.training import Settings, accuracy, train

SHAPES = [(4, 4), (3, 7), (7, 3)]  # inputs, outputs


def passed_on(x: Tensor, outputs: int) -> Tensor:
    """Input channel i as output channel i; outputs beyond the inputs are 0."""
    found = torch.zeros(x.shape[0], outputs, *x.shape[2:], dtype=x.dtype)
    common = min(outputs, x.shape[1])
    found[:, :common] = x[:, :common]
    return found


def shaken(layer: DiracConv2d | DiracLinear) -> None:
    """a and b away from their beginnings."""
    layer.double()
    layer.a.data.uniform_(-2, 2)
    if layer.b is not None:
        layer.b.data.uniform_(-2, 2)


@pytest.mark.parametrize(("shape", "stride"), itertools.product(SHAPES, (1, 2)))
@pytest.mark.parametrize("parametrisation", ["dirac", "additive"])
def test_a_convolution_is_its_formula(shape: tuple[int, int], stride: int, parametrisation: str) -> None:
    inputs, outputs = shape
    torch.manual_seed(0)
    layer = DiracConv2d(inputs, outputs, 3, stride, parametrisation)
    shaken(layer)
    x = torch.randn(2, inputs, 7, 7, dtype=torch.float64)
    expected = layer.a[:, None, None] * passed_on(x[:, :, ::stride, ::stride], outputs)
    for output in range(outputs):
        own = layer.weight[output : output + 1]
        scale = 1.0 if layer.b is None else layer.b[output] / own.square().sum().sqrt()
        expected[:, output] += scale * F.conv2d(x, own, stride=stride, padding=1)[:, 0]
    torch.testing.assert_close(layer(x), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(F.conv2d(x, layer.effective_weight, stride=stride, padding=1), layer(x))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("parametrisation", ["dirac", "additive"])
def test_a_matrix_is_its_formula(shape: tuple[int, int], parametrisation: str) -> None:
    inputs, outputs = shape
    torch.manual_seed(0)
    layer = DiracLinear(inputs, outputs, parametrisation)
    shaken(layer)
    expected = torch.zeros(outputs, inputs, dtype=torch.float64)
    for output in range(outputs):
        row = layer.weight[output]
        expected[output] = row if layer.b is None else layer.b[output] * row / row.norm()
        if output < inputs:
            expected[output, output] += layer.a[output]
    torch.testing.assert_close(layer.effective_weight, expected, rtol=1e-12, atol=1e-12)
    x = torch.randn(5, inputs, dtype=torch.float64)
    torch.testing.assert_close(layer(x), x @ expected.T, rtol=1e-12, atol=1e-12)


def test_the_beginning() -> None:
    for layer in (DiracConv2d(3, 5, 3), DiracLinear(3, 5)):
        assert layer.a.tolist() == [1.0] * 5
        assert layer.b is not None
        assert layer.b.tolist() == pytest.approx([0.1] * 5)
    additive = DiracLinear(3, 5, "additive")
    assert additive.a.tolist() == [1.0] * 5
    assert additive.b is None
    assert set(additive.state_dict()) == {"weight", "a"}


def test_the_published_form_does_not_know_the_size_of_its_weights() -> None:
    layer = DiracConv2d(4, 4, 3)
    before = layer.effective_weight
    layer.weight.data.mul_(7)
    torch.testing.assert_close(layer.effective_weight, before)


@pytest.mark.parametrize(
    "form", ["digits-n4", "digits-n4-additive", "digits-connected-n8", "digits-connected-n8-additive"]
)
def test_all_layers_of_all_blocks_have_the_identity(form: str) -> None:
    net = build(f"diracnet14-{form}").eval()
    layers = [module for module in net.modules() if isinstance(module, DiracConv2d | DiracLinear)]
    assert len(layers) == 12
    assert {layer.parametrisation for layer in layers} == {"additive" if "additive" in form else "dirac"}
    assert net(torch.randn(2, 1, 8, 8)).shape == (2, 10)


def test_blocks_are_no_units_unless_they_are_named() -> None:
    net, x = build("diracnet8-digits-n4").eval(), torch.randn(2, 1, 8, 8)
    assert len(ss.trace(net, x)) == 0
    assert [unit.name for unit in ss.trace(net, x, units=["stage1.0"]).units] == ["stage1.0"]


def test_one_seed_gives_the_weights_of_the_plain_twin() -> None:
    for form in ("digits-n4", "digits-connected-n8"):
        states = []
        for family in ("diracnet", "plainnet"):
            torch.manual_seed(2)
            states.append(build(f"{family}8-{form}").state_dict())
        dirac, plain = states
        assert all(torch.equal(dirac[name], value) for name, value in plain.items())


@pytest.mark.parametrize("form", ["digits-n4", "digits-connected-n4-additive"])
def test_training_moves_the_identity(form: str) -> None:
    torch.manual_seed(0)
    net = build(f"diracnet8-{form}")
    train(net, digits().train, Settings(epochs=2, rate=0.1))
    assert accuracy(net, digits().test) > 0.5
    layers = [module for module in net.modules() if isinstance(module, DiracConv2d | DiracLinear)]
    assert all((layer.a - 1).abs().max() > 1e-4 for layer in layers)


@pytest.mark.parametrize(
    "wrong",
    [
        {"parametrisation": "dirac"},
        {"parametrisation": "delta", "skips": False},
        {"parametrisation": "dirac", "skips": False, "preactivation": True},
        {"parametrisation": "dirac", "skips": False, "cardinality": 2},
        {"parametrisation": "dirac", "skips": False, "depth": 20, "block": "bottleneck"},
    ],
    ids=str,
)
def test_what_has_no_identity_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError, match="expected"):
        ResNet(**wrong)  # type: ignore[arg-type]
