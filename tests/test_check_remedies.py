"""Remedies are tried before they are named, and known mistakes are told."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import skipscope as ss
from skipscope.check import remedies
from skipscope.check.diagnoses import diagnoses
from skipscope.check.rules import LOGARITHMS, rules_for
from skipscope.check.signals import measured
from skipscope.check.units import spectra_of_units
from tests.seeded import generator
from tests.trace.nets import Residual

WIDTH = 32
RULES = rules_for("sgd")


def x(count: int = 32) -> Tensor:
    return torch.randn(count, WIDTH, generator=generator(1))


def plain(depth: int, deviation: float) -> nn.Sequential:
    """deviation: of the weights, over that of He's."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(depth - 1):
        layer = nn.Linear(WIDTH, WIDTH)
        nn.init.normal_(layer.weight, std=deviation * math.sqrt(2 / WIDTH))
        nn.init.zeros_(layer.bias)
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 10))


def residual(depth: int, scale: float) -> nn.Sequential:
    torch.manual_seed(0)
    units = []
    for _ in range(depth):
        branch = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
        for layer in (branch[0], branch[2]):
            nn.init.orthogonal_(layer.weight, scale)  # type: ignore[arg-type]
        units.append(Residual(branch))
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), *units, nn.Linear(WIDTH, 10))


# -- remedies


def test_exploding_weights_of_a_plain_network_are_drawn_anew() -> None:
    forecast = ss.check(plain(12, 50.0), x())
    findings = {finding.name: finding for finding in forecast.findings}
    exploding = findings["gradients explode"]
    (named,) = [remedy for remedy in exploding.remedies if remedy.startswith("He's initial weights (")]
    (trial,) = [trial for trial in forecast.trials if trial.remedy == "He's initial weights"]
    assert abs(trial.signals["gradient_growth"]) < 0.5
    (rule,) = [rule for rule in RULES if rule.name == exploding.name]
    before, after = rule.shown(forecast.signals["gradient_growth"]), rule.shown(trial.signals["gradient_growth"])
    assert named == f"He's initial weights ({before} becomes {after})"
    assert "mends all of it on a copy, the best first: " in " ".join(str(forecast).split())
    assert "becomes" not in str(forecast)  # one list for all findings
    assert not any("branches" in trial.remedy for trial in forecast.trials)
    (skips,) = [trial for trial in forecast.trials if trial.remedy == "skips around layers"]
    assert skips.signals["gradient_growth"] > rule.threshold
    assert not any(remedy.startswith("skips around layers (") for remedy in exploding.remedies)


@pytest.mark.parametrize(("depth", "deviation"), [(12, 50.0), (12, 0.02), (40, 1.0)])
def test_what_is_named_mends_and_breaks_nothing_else(depth: int, deviation: float) -> None:
    """The deepest needs skips, which are tried where the residual units were looked for: with norms alone its gradients
    are shattered."""
    model = plain(depth, deviation)
    forecast = ss.check(model, x(), unit_spectra=depth == 40)
    before = {finding.name for finding in forecast.findings}
    assert before
    trials = {trial.remedy: trial for trial in forecast.trials}
    for finding in forecast.findings:
        assert finding.remedies
        for remedy in finding.remedies:
            trial = trials[remedy.rpartition(" (")[0]]
            assert finding.name not in trial.broken
            assert set(trial.broken) <= before
    for trial in forecast.trials:
        assert list(trial.broken) == [rule.name for rule in RULES if rule.broken(trial.signals)]


def test_remedies_that_leave_the_most_room_come_first() -> None:
    forecast = ss.check(plain(12, 50.0), x(), unit_spectra=False)
    whole = [trial.room("sgd") for trial in forecast.trials if not trial.broken]
    assert len(whole) > 1
    assert whole == sorted(whole, reverse=True)
    assert all(0 <= room <= 1 for room in whole)
    assert all(trial.room("sgd") < 0 for trial in forecast.trials if trial.broken)
    for rule in RULES:
        assert rule.room(rule.threshold) == pytest.approx(0)
        assert rule.room(0.0 if rule.signal in LOGARITHMS else 1.0) == 1


def test_one_finding_has_its_remedies_with_their_numbers() -> None:
    (finding,) = ss.check(plain(12, 0.02), x(), unit_spectra=False).findings[:1]
    forecast = replace(ss.check(plain(12, 0.02), x(), unit_spectra=False), findings=(finding,))
    assert f"Remedies: {finding.remedies[0]}" in " ".join(str(forecast).split())
    assert "becomes" in finding.remedies[0]


def test_a_trial_is_what_the_user_would_measure() -> None:
    model, data = residual(5, 2.5), x()
    forecast = ss.check(model, data)
    trials = {trial.remedy: trial.signals for trial in forecast.trials}
    changed = copy.deepcopy(model)
    for unit in changed[1:-1]:
        for parameter in unit.branch[2].parameters():  # type: ignore[union-attr, index]
            parameter.data.mul_(0.1)
    assert trials["branches times 0.1"] == measured(changed, data).signals
    normal = plain(8, 0.01)
    found = {trial.remedy: trial.signals for trial in ss.check(normal, data, unit_spectra=False).trials}
    norms = [nn.Sequential(layer, nn.BatchNorm1d(WIDTH)) if isinstance(layer, nn.Linear) else layer for layer in normal]
    by_hand = measured(nn.Sequential(*norms[:-1], normal[-1]), data).signals
    for name, value in found["normalisation after every layer but the last"].items():
        assert value == pytest.approx(by_hand[name], rel=1e-4, abs=1e-4), name


def test_branches_are_scaled_where_there_are_some() -> None:
    model = residual(5, 2.5)
    forecast = ss.check(model, x())
    assert {"branches times 0.1", "branches that start at zero"} <= {trial.remedy for trial in forecast.trials}
    assert not any("skips" in trial.remedy for trial in forecast.trials)
    growing = next(finding for finding in forecast.findings if finding.name == "states grow")
    assert any(remedy.startswith("branches times 0.1 (") for remedy in growing.remedies)


def test_the_ends_of_branches() -> None:
    class Two(nn.Module):
        """Two paths, one of which ends in a norm."""

        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
            self.second = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU())

        def forward(self, x: Tensor) -> Tensor:
            return x + self.first(x) + self.second(x)

    ends = spectra_of_units(nn.Sequential(nn.Linear(WIDTH, WIDTH), Two(), nn.Linear(WIDTH, 3)), x())["branch_end"]
    assert ends.values.tolist() == ["1.first.2.bias,1.first.2.weight,1.second.1.bias,1.second.1.weight"]


def test_no_norms_for_what_has_them() -> None:
    model = plain(40, 0.02)
    model.insert(1, nn.BatchNorm1d(WIDTH))
    forecast = ss.check(model, x(), unit_spectra=False)
    assert forecast.trials
    assert not any("normalisation" in trial.remedy for trial in forecast.trials)


def test_the_model_stays_as_it_is_and_what_trains_has_no_trials() -> None:
    model = plain(12, 50.0).train()
    before, numbers = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    forecast = ss.check(model, x())
    assert forecast.trials
    assert "Remedies, each tried on a copy" in str(forecast)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), numbers)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert ss.check(plain(4, 1.0), x()).trials == ()


def test_what_cannot_be_copied_has_no_remedies_named() -> None:
    import threading

    model = plain(12, 50.0)
    model.lock = threading.Lock()  # type: ignore[assignment]
    forecast = ss.check(model, x(), unit_spectra=False)
    assert forecast.findings
    assert all(finding.remedies == () for finding in forecast.findings)
    assert any(note.startswith("No remedies were tried: Sequential cannot be copied") for note in forecast.notes)


def remedies_of(forecast: ss.Forecast) -> set[str]:
    return {trial.remedy for trial in forecast.trials}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_remedies_in_half_precision(dtype: torch.dtype) -> None:
    forecast = ss.check(plain(12, 0.02).to(dtype), x().to(dtype), unit_spectra=False)
    assert forecast.findings
    assert {"He's initial weights", "orthogonal weights"} <= remedies_of(forecast)
    (trial,) = [trial for trial in forecast.trials if trial.remedy == "orthogonal weights times sqrt(2)"]
    assert trial.signals["growth"] == pytest.approx(0, abs=0.5)  # 1e-17 or less as it was


def test_tied_weights_are_scaled_once() -> None:
    model, data = residual(5, 2.5), x()
    for unit in model[2:-1]:
        unit.branch[2].weight = model[1].branch[2].weight  # type: ignore[union-attr, index]
    trials = {trial.remedy: trial.signals for trial in ss.check(model, data).trials}
    changed = copy.deepcopy(model)
    changed[1].branch[2].weight.data.mul_(0.1)  # type: ignore[union-attr, index, operator]
    for unit in changed[1:-1]:
        unit.branch[2].bias.data.mul_(0.1)  # type: ignore[union-attr, index, operator]
    assert trials["branches times 0.1"] == measured(changed, data).signals


def test_a_last_layer_tied_to_the_first_is_scaled() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH))
    nn.init.orthogonal_(model[0].weight, 100)  # type: ignore[arg-type]
    model[3].weight = model[0].weight
    assert "the last layer times 0.01" in remedies_of(ss.check(model, x(), unit_spectra=False))


class Style(nn.Module):
    """One of its layers sees a single row, which a batch norm does not take."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.style = plain(12, 50.0), nn.Linear(WIDTH, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x) + self.style(x.new_ones(1, WIDTH))


def test_a_remedy_that_does_not_run_leaves_the_others() -> None:
    forecast = ss.check(Style(), x(), unit_spectra=False)
    assert "He's initial weights" in remedies_of(forecast)
    assert not any("normalisation" in remedy for remedy in remedies_of(forecast))
    (note,) = [note for note in forecast.notes if "ried: " in note]
    assert note.startswith("Not tried: normalisation after every layer but the last: Style does not run")


def test_a_lack_of_memory_for_one_remedy_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any) -> Tensor:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")

    monkeypatch.setattr(remedies, "_normalised", full)
    forecast = ss.check(plain(12, 50.0), x(), unit_spectra=False)
    assert "He's initial weights" in remedies_of(forecast)
    assert any(note.startswith("Not tried: normalisation") and "not enough memory" in note for note in forecast.notes)


class Deciding(nn.Sequential):
    """Cannot be exported or recorded: it computes with a number that depends on values."""

    def forward(self, x: Tensor) -> Tensor:
        h = super().forward(x)
        return h * h.square().mean().item()


@pytest.mark.parametrize(
    ("model", "units"), [(residual(5, 2.5), False), (Deciding(*residual(5, 2.5)), True), (plain(12, 50.0), False)]
)
def test_no_skips_where_units_were_not_looked_for(model: nn.Module, units: bool) -> None:
    tried = remedies_of(ss.check(model, x(), unit_spectra=units))
    assert tried
    assert not any("skips" in remedy or "branches" in remedy for remedy in tried)


# -- diagnoses


def told(model: nn.Module, **options: Any) -> str:
    return " ".join(diagnoses(model, x(), **options))


def test_nothing_to_tell() -> None:
    assert told(plain(6, 1.0)) == ""
    assert told(plain(60, 1.0)) == ""  # half of its ReLUs are zero for all samples, which have one direction


class Function(nn.Module):
    """A ReLU written as a function."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(F.relu(self.first(x)))


@pytest.mark.parametrize(
    ("model", "layer", "said"),
    [(plain(6, 1.0), "2", "module 3 (100%)"), (Function(), "first", "module the model itself")],
)
def test_dead_rectifiers(model: nn.Module, layer: str, said: str) -> None:
    model.get_submodule(layer).bias.data.fill_(-100)  # type: ignore[union-attr, operator]
    assert "ReLUs are dead" in told(model)
    assert said in told(model)
    model.get_submodule(layer).bias.data[: WIDTH // 2] = 100  # type: ignore[union-attr, operator, index]
    assert "dead" not in told(model)


def test_zero_weights() -> None:
    model = plain(6, 1.0)
    nn.init.zeros_(model[-1].weight)  # type: ignore[arg-type]
    assert told(model) == ""  # usual in a last layer
    nn.init.zeros_(model[2].weight)  # type: ignore[arg-type]
    assert "All weights are zero in layer 2:" in told(model)
    assert "layer 2" not in told(model, branch_ends={"2.weight"})


def test_branches_that_start_at_zero_are_no_mistake() -> None:
    model = residual(3, 1.0)
    for unit in model[1:-1]:
        nn.init.zeros_(unit.branch[2].weight)  # type: ignore[union-attr, index]
    assert ss.check(model, x()).diagnoses == ()


def test_tied_branches_that_start_at_zero_are_no_mistake() -> None:
    model = residual(3, 1.0)
    for unit in model[1:-1]:
        unit.branch[2].weight = model[1].branch[2].weight  # type: ignore[union-attr, index]
    nn.init.zeros_(model[1].branch[2].weight)  # type: ignore[union-attr, index, arg-type]
    assert ss.check(model, x()).diagnoses == ()


@pytest.mark.parametrize("constant", [0.01, -3.0])
def test_constant_weights(constant: float) -> None:
    model = plain(6, 1.0)
    for layer in (model[2], model[4]):
        nn.init.constant_(layer.weight, constant)  # type: ignore[arg-type]
    assert "All rows of the weights are the same in layers 2, 4:" in told(model)


def test_softmax_before_the_loss() -> None:
    model = plain(6, 1.0)
    forecast = ss.check(nn.Sequential(*model, nn.Softmax(1)), x(), unit_spectra=False)
    assert any("after a softmax" in each for each in forecast.diagnoses)
    assert "after a softmax" in " ".join(str(forecast).split())
    assert "softmax" not in told(nn.Sequential(*model, nn.LogSoftmax(1)))
    assert "softmax" not in told(nn.Sequential(*model, nn.Sigmoid()))
