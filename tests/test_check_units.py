"""The spectra of units in a check: against dense references, on a model that stays as it is, and in words."""

from __future__ import annotations

import copy
import itertools
import json
import math
import sys
import threading
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import skipscope as ss
from skipscope.check.units import PROBES, SAMPLES, NoUnitsError, moments, spectra_of_units
from skipscope.errors import InputError
from skipscope.linear.operator import Dense
from skipscope.numerics import seed_of
from skipscope.trace.inputs import Inputs
from skipscope.trace.running_statistics import take_batch_statistics
from tests.commands import run_command
from tests.seeded import generator
from tests.trace.nets import CASES, Residual

N, B = 10, 12  # width, samples
WIDE = 100


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


def branch(norm: bool = False, running: bool = True) -> nn.Sequential:
    norms = [nn.BatchNorm1d(N, track_running_stats=running)] if norm else []
    return nn.Sequential(nn.Linear(N, N), *norms, nn.Tanh(), nn.Linear(N, N))


def residual(depth: int = 2, norm: bool = False, running: bool = True) -> nn.Sequential:
    torch.manual_seed(0)
    units = (Residual(branch(norm, running)) for _ in range(depth))
    return nn.Sequential(nn.Linear(N, N), *units, nn.Linear(N, 3)).double()


def of_singular_values(jacobians: Tensor) -> tuple[float, float]:
    """gain and spread of (B, m, n) from the singular values themselves."""
    squares = torch.linalg.svdvals(jacobians).square()
    return math.log10(float(squares.mean())) / 2, float(squares.var(correction=0) / squares.mean() ** 2)


# -- numbers


@pytest.mark.parametrize(("rows", "columns"), [(6, 6), (4, 6), (9, 6)])
def test_moments_are_exact_where_all_signs_are_there(rows: int, columns: int) -> None:
    J = normal(3, rows, columns)
    signs = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=columns)), dtype=torch.float64).T
    found = moments(Dense(J), signs.expand(3, -1, -1).contiguous())
    gain, spread = of_singular_values(J)
    assert found["gain"] == pytest.approx(gain, abs=1e-12)
    assert found["spread"] == pytest.approx(spread, rel=1e-12)


@pytest.mark.slow
def test_units_agree_with_dense_jacobians() -> None:
    model, x = residual(3), normal(SAMPLES, N)
    found = spectra_of_units(model, x)
    assert list(found["unit"].values) == ["1", "2", "3"]
    state = model[0](x).detach()
    for index, name in enumerate(found["unit"].values):
        unit = model[int(name)]
        of_unit = torch.func.vmap(torch.func.jacrev(unit))(state).detach()
        of_branch = of_unit - torch.eye(N, dtype=torch.float64)
        gain, spread = of_singular_values(of_unit)
        row = found.isel(unit=index)
        assert 0 < float(row["gain_error"]) < 0.02
        assert float(row["gain"]) == pytest.approx(gain, abs=4 * float(row["gain_error"]))
        assert float(row["spread"]) == pytest.approx(spread, abs=4 * float(row["spread_error"]))
        assert float(row["branch_gain"]) == pytest.approx(of_singular_values(of_branch)[0], abs=0.03)
        state = unit(state).detach()


def test_standard_errors_are_those_of_many_draws() -> None:
    J = Dense(normal(2, 20, 20))
    signs = [torch.randint(0, 2, (2, 20, PROBES), generator=generator(seed)) * 2.0 - 1 for seed in range(300)]
    found = [moments(J, each.double()) for each in signs]
    for name in ("gain", "spread"):
        scatter = torch.tensor([each[name] for each in found]).std()
        said = torch.tensor([each[f"{name}_error"] for each in found]).square().mean().sqrt()
        assert float(said / scatter) == pytest.approx(1, abs=0.2)


def test_an_isometry_has_neither_gain_nor_spread() -> None:
    model = residual()
    for unit in model[1:3]:
        nn.init.zeros_(unit.branch[-1].weight)  # type: ignore[union-attr, index]
    found = spectra_of_units(model, normal(B, N))
    assert found["gain"].values == pytest.approx([0, 0], abs=1e-12)
    assert found["spread"].values == pytest.approx([0, 0], abs=1e-12)
    assert found["branch_gain"].values == pytest.approx(math.log10(1.4e-45))


def test_a_random_matrix_has_spread_one_and_spreads_of_free_factors_add_up() -> None:
    side = 400
    factors = [normal(1, side, side, seed=seed) / math.sqrt(side) for seed in range(3)]
    signs = torch.randint(0, 2, (1, side, PROBES), generator=generator(5)).double() * 2 - 1
    assert moments(Dense(factors[0]), signs)["spread"] == pytest.approx(1, abs=0.05)
    product = moments(Dense(factors[0] @ factors[1] @ factors[2]), signs)
    assert product["spread"] == pytest.approx(3, abs=0.2)
    assert product["gain"] == pytest.approx(0, abs=0.02)


@pytest.mark.parametrize("running", [True, False])
def test_batch_norms_have_the_statistics_of_the_whole_batch(running: bool) -> None:
    model, x = residual(1, norm=True, running=running), 3 + 0.1 * normal(B, N)
    found = spectra_of_units(model, x, seed=4)
    assert found.attrs["samples"] == SAMPLES < B
    stem, (first, norm, _, last) = model[0], model[1].branch  # type: ignore[misc]
    entry = stem(x).detach()
    before = first(entry).detach()
    mean, deviation = before.mean(0), (before.var(0, correction=0) + norm.eps).sqrt()

    def unit(state: Tensor) -> Tensor:
        return state + last(torch.tanh((first(state) - mean) / deviation))

    jacobian = torch.func.vmap(torch.func.jacrev(unit))(entry[:SAMPLES]).detach()
    drawn = torch.Generator("cpu").manual_seed(seed_of("units", 4))
    signs = torch.randint(0, 2, (SAMPLES, N, PROBES), generator=drawn, dtype=torch.int8, device="cpu") * 2.0 - 1
    expected = moments(Dense(jacobian), signs.double().to(x.device))
    for name, value in expected.items():
        assert found[name].values == pytest.approx([value], rel=1e-9)
    trunk = ss.trace(residual(1, norm=True), x)  # with running statistics
    assert abs(of_singular_values(trunk[0].jacobian(trunk.at(x)).dense())[0] - expected["gain"]) > 0.05


def test_a_norm_that_is_called_twice_has_the_mean_of_its_statistics() -> None:
    norm = nn.BatchNorm1d(N).double()
    x = normal(B, N)
    take_batch_statistics(nn.Sequential(norm, Times(3.0), norm), Inputs.of(norm, x))
    once = x.var(0, correction=0)
    again = 9 * once / (once + norm.eps)
    torch.testing.assert_close(norm.running_var, (once + again) / 2)
    torch.testing.assert_close(norm.running_mean, x.mean(0) / 2)


class Times(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * x


# -- the user's model


def test_the_model_and_its_input_stay_as_they_are() -> None:
    model, x = residual(2, norm=True).train(), normal(B, N)
    model.insert(0, nn.ReLU(inplace=True))
    model[2].eval()
    before, modes = copy.deepcopy(model.state_dict()), [module.training for module in model.modules()]
    kept, numbers = x.clone(), torch.get_rng_state()
    spectra_of_units(model, x)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert [module.training for module in model.modules()] == modes
    assert not any(module._forward_pre_hooks for module in model.modules())
    assert torch.equal(x, kept)
    assert torch.equal(torch.get_rng_state(), numbers)


def test_half_precision_is_measured_in_single() -> None:
    model, x = residual(1, norm=True).bfloat16(), normal(B, N).bfloat16()
    found, expected = spectra_of_units(model, x), spectra_of_units(copy.deepcopy(model).float(), x.float())
    assert found["spread"].values == pytest.approx(expected["spread"].values, rel=1e-6)
    assert model[0].weight.dtype == torch.bfloat16


# -- words


class Parallel(nn.Module):
    """Two branches, and no skip."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(N, N), nn.Linear(N, N)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.first(x)) + torch.relu(self.second(x))


class Locked(nn.Module):
    """Cannot be copied."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.lock = residual(1), threading.Lock()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


class Deciding(nn.Module):
    """Cannot be exported or recorded: it computes with a number that depends on values."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = residual(1)

    def forward(self, x: Tensor) -> Tensor:
        h = self.inner(x)
        return h * h.square().mean().item()


@torch.library.custom_op("skipscope_tests::backward_only", mutates_args=())
def backward_only(x: Tensor) -> Tensor:
    return 2 * x


backward_only.register_fake(torch.empty_like)
backward_only.register_autograd(lambda context, gradient: 2 * gradient)


class BackwardOnly(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return backward_only(x)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: nn.Sequential(nn.Linear(N, N), nn.ReLU(), nn.Linear(N, 3)).double(), "has no residual units."),
        (
            lambda: nn.Sequential(nn.Linear(N, N), Parallel(), nn.Linear(N, 3)).double(),
            "has no residual units; 1 is none: every path has an activation",
        ),
        (Locked, "Locked cannot be copied: cannot pickle"),
        (Deciding, "Deciding cannot be exported: "),
    ],
)
def test_what_has_no_units_to_measure_is_checked_all_the_same(make: type[nn.Module], said: str) -> None:
    torch.manual_seed(0)
    forecast = ss.check(make(), normal(B, N))
    assert forecast.units is None
    assert forecast.to_dict()["units"] is None
    (note,) = [note for note in forecast.notes if note.startswith("Units were not measured: ")]
    assert said in note
    assert "Name the modules" not in note
    assert "Units: " not in str(forecast)


def test_an_operation_with_a_backward_rule_alone_is_measured() -> None:
    model = nn.Sequential(nn.Linear(N, N), Residual(BackwardOnly()), nn.Linear(N, 3)).double()
    found = spectra_of_units(model, normal(B, N))
    assert found["gain"].values == pytest.approx([math.log10(3)])  # x + 2 x
    assert found["branch_gain"].values == pytest.approx([math.log10(2)])


class OfTheMean(nn.Module):
    """Its residual unit has no samples: it works on their mean."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.unit, self.last = nn.Linear(N, N), Residual(nn.Linear(N, N)), nn.Linear(N, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        return self.last(h * self.unit(h.mean(0)))


def test_units_that_cannot_be_measured_are_not_taken_for_none() -> None:
    with pytest.raises(NoUnitsError, match=r"has no residual units$"):
        spectra_of_units(nn.Sequential(nn.Linear(N, N), nn.Linear(N, 3)).double(), normal(B, N))
    with pytest.raises(InputError, match="has no residual units to measure; unit is none: ") as raised:
        spectra_of_units(OfTheMean().double(), normal(B, N))
    assert not isinstance(raised.value, NoUnitsError)


def test_a_lack_of_memory_for_units_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(sys.modules[spectra_of_units.__module__], "_unit", full)
    forecast = ss.check(residual(1), normal(B, N))
    assert any(note.startswith("Units were not measured: there is not enough memory") for note in forecast.notes)


def test_numbers_that_are_not_finite_have_no_spectra() -> None:
    model = residual(1)
    model[0].weight.data.fill_(1e308)  # type: ignore[operator, union-attr]
    forecast = ss.check(model, normal(B, N))
    assert not forecast.trains
    assert "Units were not measured: not all numbers are finite." in forecast.notes


def test_units_are_described() -> None:
    model, x = residual(3), normal(B, N)
    forecast = ss.check(model, x)
    units = forecast.units
    assert units is not None
    text = " ".join(str(forecast).split())
    gains, spreads = units["gain"].values, units["spread"].values
    assert (
        f"Units: 3. Root mean square of the singular values {10 ** gains.min():.3g} to {10 ** gains.max():.3g}" in text
    )
    assert f"10^{gains.sum():.1f} over all of them (product); spread {spreads.sum():.3g} in all" in text
    assert f"largest at {units['unit'].values[spreads.argmax()]} ({spreads.max():.3g})" in text
    json.dumps(forecast.to_dict()["units"])
    without = ss.check(model, x, unit_spectra=False)
    assert without.units is None
    assert "nits" not in str(without)
    assert without.signals == forecast.signals


def test_a_finding_names_the_units_that_contribute_most() -> None:
    model = residual(6)
    for index, scale in ((2, 2e3), (5, 1e5)):
        model[index].branch = nn.Linear(N, N).double()
        nn.init.orthogonal_(model[index].branch.weight, scale)  # type: ignore[union-attr, arg-type]
    forecast = ss.check(model, normal(B, N))
    assert forecast.units is not None
    findings = {finding.name: finding for finding in forecast.findings}
    gains = dict(zip(forecast.units["unit"].values, forecast.units["gain"].values, strict=True))
    for name in ("states grow", "gradients explode"):
        value = findings[name].value
        assert value is not None
        shares = {unit: gain / value for unit, gain in gains.items()}
        named = f"contribute most: 5 ({shares['5']:.1%}), 2 ({shares['2']:.1%}); all 6 together"
        assert f"{named} {sum(shares.values()):.0%}" in findings[name].sentence
    assert not any("skips" in trial.remedy for trial in forecast.trials)
    without = ss.check(model, normal(B, N), unit_spectra=False)
    assert "Units that contribute most" not in without.findings[0].sentence
    assert not any("branches" in trial.remedy for trial in without.trials)


def test_units_that_are_like_the_others_are_not_named() -> None:
    model = residual(6)
    for index in range(1, 7):
        model[index].branch = nn.Linear(N, N).double()
        nn.init.orthogonal_(model[index].branch.weight, 3.0)  # type: ignore[union-attr, arg-type]
    forecast = ss.check(model, normal(B, N))
    assert not forecast.trains
    assert not any("contribute most" in finding.sentence for finding in forecast.findings)


def test_spread_is_named_where_gradients_are_of_one_kind() -> None:
    """A unit of rank one, between others: WIDE - 1 is the spread of one singular value among WIDE. In narrow networks
    the gradients that are sent have fewer directions themselves."""
    torch.manual_seed(0)
    units = [Residual(nn.Linear(WIDE, WIDE)) for _ in range(3)]
    model = nn.Sequential(nn.Linear(WIDE, WIDE), *units, nn.Linear(WIDE, 3)).double()
    units[1].branch.weight.data = torch.ones(WIDE, WIDE).double() - torch.eye(WIDE).double()  # type: ignore[union-attr]
    forecast = ss.check(model, normal(B, WIDE))
    assert forecast.units is not None
    (finding,) = [finding for finding in forecast.findings if finding.name == "gradients are of one kind"]
    spread = forecast.units["spread"]
    assert float(spread[1]) == pytest.approx(WIDE - 1, abs=4 * float(forecast.units["spread_error"][1]))
    assert (
        f"Units that contribute most: 2 ({float(spread[1] / spread.sum()):.1%}) of the spread of all their"
        in finding.sentence
    )
    assert f" singular values, {float(spread.sum()):.3g}." in finding.sentence


def test_units_inside_others_are_part_of_them() -> None:
    case = CASES["residual in residual"]
    model, x = case.make(), case.x(4)
    trunk = ss.trace(model, x)
    along = [unit.name for stage in trunk.stages for unit in stage.units]
    assert len(along) < len(trunk.units)
    assert list(spectra_of_units(model, x)["unit"].values) == along


# -- the command


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    residual_one = ("check", "skipscope:resnet8-digits-connected-n2", "--data", "digits")
    assert run_command(monkeypatch, *residual_one, "--out", tmp_path, "--full") == 0
    assert "\nUnits: 3. " in capsys.readouterr().out
    assert len(json.loads((tmp_path / "check.json").read_text())["units"]["data_vars"]["gain"]["data"]) == 3
    assert run_command(monkeypatch, *residual_one, "--no-units") == 0
    assert "nits" not in capsys.readouterr().out
    assert run_command(monkeypatch, "check", "skipscope:plainnet8-digits-connected-n2", "--data", "digits") == 0
    assert "Units were not measured: " in capsys.readouterr().out
