"""Counts against the bounds of the law: met by random units, contradicted by a wrong claim."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy
import pytest
import torch
import xarray
from torch import nn

import skipscope as ss
from skipscope.measure import law
from skipscope.measure.law import BOUNDS, violation
from tests.measure.nets import Net, Unit, dense
from tests.trace.nets import Residual, mlp


@pytest.fixture(scope="module")
def net() -> tuple[Net, torch.Tensor, ss.Trunk]:
    torch.manual_seed(0)
    model, x = Net(-2.0), torch.randn(3, 1, 8, 8)
    return model, x, ss.trace(model, x)


@pytest.fixture(scope="module")
def found(net: tuple[Net, torch.Tensor, ss.Trunk]) -> xarray.Dataset:
    return law(net[2], net[1])


def test_random_units_meet_the_bounds(found: xarray.Dataset) -> None:
    assert found["violated"].dims == ("unit", "sample", "bound")
    assert not found["violated"].any()
    applies = found.sel(unit=found["reason"] == "")
    assert applies["unit"].values.tolist() == ["a", "b", "padded", "c"]
    assert applies["generic"].all()
    assert (applies["ones_at_least"] > 0).all()
    same = applies.sel(unit=applies["skip"] == "identity")
    assert (same["ones"] == same["ones_at_least"]).mean() >= 0.75  # local columns may add to it
    assert (same["above"] == same["above_at_most"]).mean() >= 0.75
    plateau = same["size"] - same["inactive"] - 2 * same["inner_active"]
    numpy.testing.assert_array_equal(same["ones_at_least"], plateau)
    numpy.testing.assert_array_equal(same["zeros_at_least"], same["inactive"])
    total = sum(applies[name] for name in ("zeros", "ones", "above", "below"))
    numpy.testing.assert_array_equal(total, applies["size"])


def test_units_without_a_law_say_why(found: xarray.Dataset) -> None:
    other = found.sel(unit="projected")
    assert other["reason"].item() == "the projection skip has rows that are not orthogonal"
    assert bool(other["ones"].isnull().all())
    torch.manual_seed(0)
    x = torch.randn(2, 8)
    model = nn.Sequential(Residual(mlp()), nn.LeakyReLU(), Residual(mlp()), nn.LayerNorm(8), Residual(mlp()))
    data = law(ss.trace(model, x), x)
    for unit, reason in zip(data["unit"].values, data["reason"].values, strict=True):
        assert (reason == "") == bool(data["ones"].sel(unit=unit).notnull().all())
    assert law(ss.trace(model, x, units=["0"]), x)["reason"].item() == "no unit of an exported graph"


def test_a_tail_that_is_neither_zero_nor_one_has_a_reason() -> None:
    class Leaky(Unit):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.leaky_relu(x + self.second(torch.relu(self.first(x))), 0.1)

    torch.manual_seed(0)
    x = torch.randn(2, 2, 6, 6)
    data = law(ss.trace(nn.Sequential(Leaky(2, 2, 1, -2.0, lambda h: h)), x), x)
    assert "passes other shares of an entry than 0 and 1" in data["reason"].item()


def test_both_routes_count_the_same(net: tuple[Net, torch.Tensor, ss.Trunk], found: xarray.Dataset) -> None:
    _, x, trunk = net
    gram = law(trunk, x, route="gram", units=["a", "padded"])
    for name in ("zeros", "ones", "above", "below"):
        numpy.testing.assert_array_equal(gram[name], found[name].sel(unit=["a", "padded"]))
    with pytest.raises(ss.InputError, match="know nothing of the law"):
        law(trunk, x, route="law")


def test_counts_are_those_of_a_dense_decomposition(
    net: tuple[Net, torch.Tensor, ss.Trunk], found: xarray.Dataset
) -> None:
    """The float32 model's own states, then all in float64 by reverse mode."""
    model, x, trunk = net
    point = trunk.at(x)
    double = Net(-2.0).double()
    double.load_state_dict(model.state_dict())
    for name in ("a", "padded"):
        unit, state = double.get_submodule(name), point.entry(trunk[name]).detach().double()
        values = torch.linalg.svdvals(dense(unit, state)).cpu()
        here = found.sel(unit=name)
        assert here["ones"].values.tolist() == ((values - 1).abs() <= 1e-7).sum(1).tolist()
        assert here["zeros"].values.tolist() == (values <= 1e-10).sum(1).tolist()
        assert here["near"].values.tolist() == ((values - 1).abs() <= 0.01).sum(1).tolist()
        branch = torch.linalg.svdvals(dense(lambda h, u=unit: u.second(torch.relu(u.first(h))), state))  # type: ignore[misc]
        assert here["inner_above"].values.tolist() == (branch > 0.01).sum(1).tolist()


def test_the_epsilon_version_holds_where_the_exact_one_is_empty() -> None:
    """Small weights and a dense middle: nothing is exactly 1, much is near it."""
    torch.manual_seed(0)
    model, x = nn.Sequential(Unit(2, 2, 1, 0.5, lambda h: h)), torch.randn(3, 2, 6, 6)
    with torch.no_grad():
        model[0].second.weight *= 0.005
    data = law(ss.trace(model, x), x)
    assert not data["generic"].any()
    assert (data["ones_at_least"] == 0).all()
    assert (data["near_at_least"] > 0).all()
    assert not data["violated"].any()


def test_a_wrong_claim_is_contradicted(found: xarray.Dataset) -> None:
    """Fewer inner ReLUs than there are, an inactive output more, more near one than there are: every bound breaks."""
    applies = found.sel(unit=["a", "b", "c"])
    n, z, r = applies["size"], applies["inactive"] + 1, applies["inner_active"] - 2
    claimed = applies.assign(
        zeros_at_least=z, ones_at_least=n - z - 2 * r, above_at_most=r, below_at_most=r, near_at_least=n - z - 2 * r
    )
    for name in BOUNDS:
        assert violation(claimed, name).mean() > 0.5, name


# -- counts alone


def test_counts_alone_are_the_bounds_of_the_whole_measurement(
    net: tuple[Net, torch.Tensor, ss.Trunk], found: xarray.Dataset
) -> None:
    counted = law(net[2], net[1], count_only=True)
    assert counted["reason"].values.tolist() == found["reason"].values.tolist()
    for name in counted.data_vars:
        numpy.testing.assert_array_equal(counted[name], found[name])
    assert "ones" not in counted
    generic = found.sel(unit=["a", "b", "c"]).where(found["generic"] == 1)
    assert (counted["ones_at_least"] <= found["ones"]).where(generic["generic"] == 1).sum() > 0


def test_many_samples_are_counted_in_pieces(
    net: tuple[Net, torch.Tensor, ss.Trunk], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, trunk = net
    torch.manual_seed(1)
    x = torch.randn(7, 1, 8, 8)
    whole = law(trunk, x, count_only=True)
    monkeypatch.setattr(sys.modules["skipscope.measure.law"], "AT_ONCE", 3)
    xarray.testing.assert_equal(law(trunk, x, count_only=True), whole)
    assert whole.sizes == {"unit": 5, "sample": 7}


def test_units_are_counted_as_they_are_changed(net: tuple[Net, torch.Tensor, ss.Trunk]) -> None:
    _, x, trunk = net
    half = law(trunk, x, units=["a"], count_only=True, changed=lambda unit: ss.with_scaled_skip(unit, 0.5))
    assert (half["factor"] == 0.5).all()
    whole = law(trunk, x, units=["a"], changed=lambda unit: ss.with_scaled_skip(unit, 0.5))
    for name in half.data_vars:
        numpy.testing.assert_array_equal(half[name], whole[name])
    assert not whole["violated"].any()


def test_counts_equal_the_spectra_of_a_trained_network_where_the_law_is_generic(tmp_path: Path) -> None:
    """Exact zeros and ones from a forward pass, against full spectra by a route that knows nothing of the law."""
    from skipscope.data import load
    from skipscope.training import Settings
    from skipscope.training.networks import Network

    data = load("digits").subset(samples=400)
    network = Network("resnet14-digits-n8-projection", data, Settings(epochs=2, batch=50, rate=0.05), 1000, "cpu")
    model = network.initial()
    network.train(model, tmp_path / "weights.safetensors", lambda done, total: None)
    for name, norm in model.named_modules():
        if name.endswith("norm1"):
            norm.bias.data -= 2.0  # few inner ReLUs stay active, so that the law is generic
    x = data.test.images(torch.arange(4, device="cpu"))
    trunk = ss.trace(model.eval(), x)
    regular = [unit.name for unit in trunk.units if unit.kind == "identity"]
    counted, found = law(trunk, x, units=regular, count_only=True), law(trunk, x, units=regular)
    numpy.testing.assert_array_equal(counted["zeros_at_least"], found["zeros_at_least"])
    assert (found["zeros"] >= counted["zeros_at_least"]).all()
    generic = counted["generic"].values == 1
    assert (found["ones"].values[generic] >= counted["ones_at_least"].values[generic]).all()
    assert generic.mean() > 0.5
    assert (found["ones"].values[generic] == counted["ones_at_least"].values[generic]).mean() >= 0.9
