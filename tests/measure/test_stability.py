"""Perturbations through a trunk against states by forward hooks and dense Jacobians by reverse mode."""

from __future__ import annotations

import sys

import numpy
import pytest
import torch
from torch import Tensor, nn

import skipscope as ss
from skipscope.data import digits
from skipscope.data.perturbations import fgsm, uniform_like
from skipscope.measure import stability
from skipscope.models import build
from skipscope.training import Settings, train
from tests.measure.nets import Net, dense
from tests.trace.nets import CASES, Case, D, Residual, mlp
from tests.trace.test_cases import inputs, traced

NAMES = ("a", "b", "padded", "c", "projected")


def small(dtype: torch.dtype = torch.float64) -> tuple[Net, Tensor, Tensor]:
    torch.manual_seed(0)
    model = Net(bias=-0.5).to(dtype).eval()
    return model, torch.randn(3, 1, 8, 8).to(dtype), 0.1 * torch.randn(3, 1, 8, 8).to(dtype)


def by_hooks(model: nn.Module, x: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """Entry and exit of every unit."""
    found: dict[str, tuple[Tensor, Tensor]] = {}

    def keep(name: str) -> object:
        return lambda module, args, output: found.update({name: (args[0].clone(), output.clone())})

    handles = [model.get_submodule(name).register_forward_hook(keep(name)) for name in NAMES]
    with torch.no_grad():
        model(x)
    for handle in handles:
        handle.remove()
    return found


def norms(tensor: Tensor) -> numpy.ndarray:
    return tensor.flatten(1).norm(dim=1).cpu().numpy()


def test_sizes_and_actual_growth_are_those_of_hooked_states() -> None:
    model, x, change = small()
    kinds = {"one": change, "two": -2 * change}
    data = stability(ss.trace(model, x), x, perturbation=kinds)
    assert data["rms"].dims == data["relative"].dims == data["per_entry"].dims == ("kind", "state", "sample")
    assert data["actual"].dims == data["predicted"].dims == ("kind", "unit", "sample")
    assert data["state"].values.tolist() == [*NAMES, "exit of projected"]
    assert data["unit"].values.tolist() == list(NAMES)
    clean = by_hooks(model, x)
    for kind, given in kinds.items():
        moved = by_hooks(model, x + given)
        for name in NAMES:
            entry, exit_ = (moved[name][end] - clean[name][end] for end in (0, 1))
            here, n = data.sel(kind=kind, state=name), entry[0].numel()
            assert here["rms"].values == pytest.approx(norms(entry) / n**0.5)
            assert here["relative"].values == pytest.approx(norms(entry) / norms(clean[name][0]))
            assert here["per_entry"].values == pytest.approx(norms(entry) / n)
            assert int(here["size"]) == n
            actual = data["actual"].sel(kind=kind, unit=name).values
            assert actual == pytest.approx(norms(exit_) / norms(entry))
        last = data["rms"].sel(kind=kind, state="exit of projected").values
        assert last == pytest.approx(norms(exit_) / exit_[0].numel() ** 0.5)


def test_predicted_growth_is_that_of_the_dense_jacobian() -> None:
    model, x, change = small()
    data = stability(ss.trace(model, x), x, perturbation=change)
    clean, moved = by_hooks(model, x), by_hooks(model, x + change)
    for name in NAMES:
        entry = clean[name][0]
        J = dense(model.get_submodule(name), entry)  # B, m, n
        d = (moved[name][0] - entry).flatten(1)[:, :, None]
        expected = (J @ d).norm(dim=1) / d.norm(dim=1)
        assert data["predicted"].sel(unit=name)[0].values == pytest.approx(expected[:, 0].cpu().numpy(), rel=1e-10)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_on_a_linear_network_the_prediction_is_exact(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(Residual(nn.Linear(D, D)) for _ in range(3)), nn.Linear(D, 2)).to(dtype)
    x, change = torch.randn(4, D).to(dtype), torch.randn(4, D).to(dtype)
    data = stability(ss.trace(model, x), x, perturbation=change)
    assert data["predicted"].values == pytest.approx(data["actual"].values, rel=1e-10)
    assert data.attrs["dtype"] == str(dtype).removeprefix("torch.")


def test_small_perturbations_are_predicted_well() -> None:
    model, x, change = small()
    data = stability(ss.trace(model, x), x, perturbation=1e-7 * change)
    assert data["predicted"].values == pytest.approx(data["actual"].values, rel=1e-4)


def test_projections() -> None:
    model, x, change = small()
    names = ["a", "padded", "projected"]
    data = stability(ss.trace(model, x), x, perturbation={"one": change, "two": change.flip(0)}, project=names)
    assert data["projection"].dims == ("kind", "project", "sample", "index")
    assert data["singular_value"].dims == ("project", "sample", "index")
    assert data["share_top10"].dims == ("kind", "project", "sample")
    squares = data["projection"] ** 2
    assert squares.sum("index").sel(project="a").values == pytest.approx(1)  # as many vectors as entries
    assert (squares.sum("index") + data["share_rest"]).values == pytest.approx(1)
    assert (data["share_rest"].sel(project=["padded", "projected"]) > 0.01).all()  # fewer exits: a null space
    assert float(data["share_rest"].sel(project="a").max()) < 1e-12
    predicted = data["predicted"].sel(unit=names).rename(unit="project")
    growth = (squares * data["singular_value"] ** 2).sum("index")
    assert growth.values == pytest.approx(predicted.values**2, rel=1e-10)
    assert float(data["identity_error"].max()) < 1e-12
    assert data["share_top10"].values == pytest.approx(squares.isel(index=slice(10)).sum("index").values)
    assert data["converged"].all()
    clean, moved = by_hooks(model, x), by_hooks(model, x + change)
    for name in names:
        J = dense(model.get_submodule(name), clean[name][0])
        d = (moved[name][0] - clean[name][0]).flatten(1)
        size = min(J.shape[1:])
        values = data["singular_value"].sel(project=name).values
        assert values[:, :size] == pytest.approx(torch.linalg.svdvals(J).cpu().numpy(), abs=1e-10)
        assert numpy.isnan(values[:, size:]).all()
        for b in range(len(x)):
            v = torch.linalg.svd(J[b]).Vh[0]
            expected = abs(float(v @ d[b] / d[b].norm()))
            assert abs(data["projection"].sel(kind="one", project=name)[b, 0].item()) == pytest.approx(expected)


def test_leading_vectors_alone() -> None:
    model, x, change = small()
    trunk = ss.trace(model, x)
    whole = stability(trunk, x, perturbation=change, project=["a", "padded"])
    some = stability(trunk, x, perturbation=change, project=["a", "padded"], k=12)
    assert some.sizes["index"] == 12
    assert some["converged"].all()
    assert some["singular_value"].values == pytest.approx(whole["singular_value"][..., :12].values, rel=1e-8)
    assert some["share_top10"].values == pytest.approx(whole["share_top10"].values, rel=1e-5)
    rest = 1 - (whole["projection"][..., :12] ** 2).sum("index")
    assert some["share_rest"].values == pytest.approx(rest.values, rel=1e-5)
    assert some["identity_error"].isnull().all()
    assert stability(trunk, x, perturbation=change, project=["a"], k=3)["share_top10"].isnull().all()


def test_vectors_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x, change = small()
    trunk = ss.trace(model, x)
    monkeypatch.setattr(sys.modules["skipscope.spectrum.plan"], "free_bytes", lambda device: 10_000)
    with pytest.raises(ss.InputError, match=r"all singular vectors of a \(128 x 128\) need .* use k="):
        stability(trunk, x, perturbation=change, project=["a"])
    stability(trunk, x, perturbation=change)


def test_units_and_samples() -> None:
    model, x, change = small()
    trunk = ss.trace(model, x)
    whole = stability(trunk, x, perturbation=change, project=["a"])
    part = stability(trunk, x, perturbation=change, units=["b", "c"], samples=[2, 0], project=["a"])
    assert part["state"].values.tolist() == ["b", "c", "exit of c"]
    assert part["sample"].values.tolist() == [2, 0]
    for name in ("predicted", "actual"):
        expected = whole[name].sel(unit=["b", "c"], sample=[2, 0])
        assert part[name].values == pytest.approx(expected.values)
    assert part["rms"].sel(state="c").values == pytest.approx(whole["rms"].sel(state="c", sample=[2, 0]).values)
    assert part["projection"].values == pytest.approx(whole["projection"].sel(sample=[2, 0]).values)
    still = change.clone()
    still[1] = 0
    stability(trunk, x, perturbation=still, samples=[2, 0])  # the sample that does not move is not measured


def has_one_float_input(case: Case) -> bool:
    x = case.x(2)
    return isinstance(x, Tensor) and x.is_floating_point()


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.units and has_one_float_input(case)])
def test_works_on_every_trunk(name: str) -> None:
    _, trunk = traced(name)
    x = inputs(CASES[name], 3)
    torch.manual_seed(1)
    data = stability(trunk, x, perturbation=1e-7 * torch.randn_like(x), project=[trunk.units[-1].name])
    if all(not unit.context for unit in trunk.units):
        assert data["predicted"].values == pytest.approx(data["actual"].values, rel=1e-3)
    assert float(data["identity_error"].max()) < 1e-10


def test_named_units() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(Residual(mlp()), Residual(mlp())), torch.randn(4, D)
    change = 0.1 * torch.randn(4, D)
    by_graph = stability(ss.trace(model, x), x, perturbation=change, project=[0])
    by_name = stability(ss.trace(model, x, units=["0", "1"]), x, perturbation=change, project=[0])
    for name in ("rms", "actual", "predicted", "singular_value", "share_top10"):
        assert by_name[name].values == pytest.approx(by_graph[name].values, rel=1e-5)


def test_an_input_among_others_in_a_dictionary() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.unit = Residual(mlp())

        def forward(self, state: Tensor, times: Tensor) -> Tensor:
            return self.unit(state) * times[:, None]

    torch.manual_seed(0)
    model, x, change = Scaled(), torch.randn(4, D), torch.randn(4, D)
    batch = {"state": x, "times": torch.ones(4).long()}
    data = stability(ss.trace(model, batch), batch, perturbation=change)
    assert data["rms"][0, 0].values == pytest.approx(norms(change) / D**0.5, rel=1e-6)


def test_the_model_is_left_as_it_was() -> None:
    model, x, change = small(torch.float32)
    model.train()
    trunk = ss.trace(model, x)
    stability(trunk, x, perturbation=change, project=["a"])
    assert all(module.training for module in model.modules())
    assert all(weight.grad is None and weight.requires_grad for weight in model.parameters())
    assert torch.equal(trunk.point.entry(trunk["a"]), trunk.at(x).entry(trunk["a"]))


def test_bad_input_is_refused() -> None:
    model, x, change = small(torch.float32)
    trunk = ss.trace(model, x)
    still, broken = change.clone(), change.clone()
    still[1] = 0
    broken[0, 0, 0, 0] = float("nan")
    for given, message in (
        (change[:2], r"expected a tensor of the batch's shape \(3, 1, 8, 8\), got \(2, 1, 8, 8\)"),
        (still, "perturbation of sample 1 is zero"),
        (1e-12 * change, "too small to change an input in torch.float32"),
        ({"broken": broken}, "broken: the perturbation has NaN"),
        ({}, "got none"),
        ({"text": "noise"}, "got str"),
    ):
        with pytest.raises(ss.InputError, match=message):
            stability(trunk, x, perturbation=given)
    for options, message in (
        ({"project": []}, "names no unit"),
        ({"k": 3}, "together with project="),
        ({"project": ["a"], "k": 0}, "expected at least 1"),
        ({"units": []}, "names no unit"),
    ):
        with pytest.raises(ss.InputError, match=message):
            stability(trunk, x, perturbation=change, **options)
    with pytest.raises(ss.InputError, match="got a point"):
        stability(trunk, trunk.at(x), perturbation=change)
    with torch.no_grad():
        model.stem.weight.mul_(100)
    with pytest.raises(ss.InputError, match="states of a have NaN or infinite entries, first in stem"):
        stability(trunk, x, perturbation=torch.full_like(x, 3e38))


def test_adversarial_perturbations_grow_more_than_random_ones() -> None:
    """The papers' experiment on a network of seconds: growth over the trunk, and the linear prediction of it."""
    torch.manual_seed(0)
    data = digits().to(torch.get_default_device())
    model = build("resnet8-digits-n8")
    train(model, data.train, Settings(epochs=2))
    found = fgsm(model, data.test.images(slice(0, 24)), data.test.labels[:24])
    kinds = {"adversarial": found.perturbation, "random": uniform_like(found.perturbation, seed=0)}
    trunk = ss.trace(model, found.images)
    measured = stability(trunk, found.images, perturbation=kinds, project=[trunk.units[-1].name])
    over = measured["rms"].isel(state=-1) / measured["rms"].isel(state=0)
    medians = over.median("sample")
    assert float(medians.sel(kind="adversarial")) > float(medians.sel(kind="random"))
    ratio = (measured["predicted"] / measured["actual"]).median("sample")
    assert ((ratio > 0.5) & (ratio < 2)).all()
    shares = measured["share_top10"].median("sample")
    assert float(shares.sel(kind="adversarial").item()) > float(shares.sel(kind="random").item())


class Conditioned(nn.Module):
    """x + branch(x) * gate(input): the input is a context, which a perturbation of it changes too."""

    def __init__(self) -> None:
        super().__init__()
        self.branch, self.gate = mlp(), nn.Linear(D, D)

    def forward(self, h: Tensor, x: Tensor) -> Tensor:
        return h + self.branch(h) * self.gate(x)


class WithContext(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.first, self.second = nn.Linear(D, D), Conditioned(), Conditioned()

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        return self.second(self.first(h, x), x)


@pytest.mark.parametrize("units", [None, ["first", "second"]])
def test_actual_growth_has_the_context_of_the_clean_point(units: list[str] | None) -> None:
    torch.manual_seed(0)
    model = WithContext().double().eval()
    x, change = torch.randn(3, D).double(), torch.randn(3, D).double()
    trunk = ss.trace(model, x, units=units)
    assert all(unit.context for unit in trunk.units)
    data = stability(trunk, x, perturbation=change)
    with torch.no_grad():
        states = []
        for batch in (x, x + change):
            h = model.stem(batch)
            first = model.first(h, batch)
            states.append((h, first, model.second(first, batch)))
        clean, moved = states
        for k, name in enumerate(("first", "second")):
            block = model.get_submodule(name)
            grown = norms(block(moved[k], x) - block(clean[k], x)) / norms(moved[k] - clean[k])
            assert data["actual"].sel(unit=name).values[0] == pytest.approx(grown)
            assert data["rms"].sel(state=name).values[0] == pytest.approx(norms(moved[k] - clean[k]) / D**0.5)
        # The last state is one of the trunk: there the context has changed with the input.
        last = data["rms"].isel(state=-1).values[0]
        assert last == pytest.approx(norms(moved[2] - clean[2]) / D**0.5)
    small = stability(trunk, x, perturbation=1e-7 * change)
    assert small["actual"].values == pytest.approx(small["predicted"].values, rel=1e-5)
