"""The check before training: its numbers against dense references, what it says, and that it leaves a model alone."""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn

import skipscope as ss
from benchmarks.check import known
from skipscope.check.rules import rules_for
from skipscope.check.signals import PROBES, measured
from skipscope.check.states import training_pass
from skipscope.models import build
from skipscope.numerics import seed_of
from tests.commands import run_command
from tests.seeded import generator
from tests.slow import thinned
from tests.trace.families import FAMILIES
from tests.trace.nets import CASES, mlp

LARGE = {
    *("resnet50", "resnext50_32x4d", "wide_resnet50_2", "regnet_y_400mf", "convnext_tiny", "vit_b_16", "swin_t"),
    *("densenet121", "vgg16", "timm resnetv2_50", "timm mixer_s32", "efficientnet_b0", "googlenet"),
}
TABLE: dict[str, Any] = {**CASES, **FAMILIES}
ROOT = Path(ss.__file__).parent.parent
RULES = rules_for("sgd")
N, B = 12, 10  # the width of linear networks, samples


# -- any model


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in LARGE else []) for name in TABLE]
)
def test_every_model_of_the_trace_table(name: str) -> None:
    torch.manual_seed(0)
    model, x = TABLE[name].make().train(), TABLE[name].x(4)
    before = copy.deepcopy(model.state_dict())
    numbers = torch.get_rng_state()
    forecast = check(model, x)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert all(module.training for module in model.modules())
    assert all(weight.grad is None for weight in model.parameters())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in own_modules(model))
    assert torch.equal(torch.get_rng_state(), numbers)
    assert all(math.isfinite(value) for key, value in forecast.signals.items() if key != "loss")
    assert "xpected to train" in str(forecast)
    json.dumps(forecast.to_dict())


def check(model: Any, x: Any, **options: Any) -> Any:
    """Without the units, which take most of the time and change neither verdict nor signals (test_check_units.py)."""
    return ss.check(model, x, unit_spectra=False, **options)


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLE)
def test_the_units_of_every_model_of_the_trace_table(name: str) -> None:
    torch.manual_seed(0)
    forecast = ss.check(TABLE[name].make(), TABLE[name].x(4))
    if forecast.units is None:
        assert any("Units were not measured" in note for note in forecast.notes)
    else:
        assert numpy.isfinite(forecast.units["gain"]).all()
        assert f"Units: {forecast.units.sizes['unit']}." in str(forecast)


def own_modules(model: nn.Module) -> list[nn.Module]:
    """Without those of transformers, which registers hooks of its own."""
    return [module for module in model.modules() if not type(module).__module__.startswith("transformers")]


# -- numbers


def orthogonal(scale: float, seed: int) -> nn.Linear:
    layer = nn.Linear(N, N, bias=False, dtype=torch.float64)
    found, _ = torch.linalg.qr(torch.randn(N, N, generator=generator(seed), dtype=torch.float64))
    layer.weight.data = scale * found
    return layer


def samples(mean: float = 0.0) -> Tensor:
    return torch.randn(B, N, generator=generator(7), dtype=torch.float64) + mean


@pytest.mark.parametrize("scale", [0.2, 1.0, 3.0])
def test_scaled_rotations_change_sizes_and_nothing_else(scale: float) -> None:
    model = nn.Sequential(*(orthogonal(scale, seed) for seed in range(5)))
    signals = measured(model, samples()).signals
    lengths = 3 * math.log10(scale)  # from what enters the second layer to what enters the fifth
    expected = {"growth": lengths, "gradient_growth": lengths, "contrast": 0, "rank": 1, "gradient_rank": 1}
    for name, value in expected.items():
        assert signals[name] == pytest.approx(value, abs=1e-9), name
    assert signals["sensitivity"] == pytest.approx(0, abs=math.log10(1 + 3 / math.sqrt(2 * PROBES * B)))  # 3 sigma


def test_gradients_are_products_with_the_dense_jacobian() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(mlp(N, 20) for _ in range(3)), nn.Linear(N, 3)).double()
    x = samples()
    found = measured(model, x, seed=3)
    begin, rest = model[0][:2], nn.Sequential(*model[0][2:], *model[1:3])
    first, last = begin(x).detach(), model[:3](x).detach()
    jacobian = torch.func.vmap(torch.func.jacrev(rest))(first).detach()  # B, m, n
    drawn = torch.Generator("cpu").manual_seed(seed_of("functionals", 3))
    directions = torch.stack(
        [torch.randn(B, N, generator=drawn, dtype=torch.float64, device="cpu") for _ in range(PROBES)], 1
    ).to(x.device)
    back = directions @ jacobian  # B, PROBES, n
    assert found.layers["gradient_rms"].values[1] == pytest.approx(float(back.square().mean().sqrt()), rel=1e-9)
    assert found.signals["gradient_rank"] == pytest.approx(mean_rank(back) / mean_rank(directions), rel=1e-9)
    moved = (jacobian @ (first.roll(-1, 0) - first)[:, :, None])[:, :, 0]  # B, m
    along = (directions * moved[:, None]).sum(2).square().mean().sqrt()
    real = (last.roll(-1, 0) - last).square().sum(1).mean().sqrt()
    assert 10 ** found.signals["sensitivity"] == pytest.approx(float(along / real), rel=1e-9)
    lost = 1 - mean_rank(back) / mean_rank(directions)
    assert found.signals["shattering"] == pytest.approx(float(torch.log10(along / real)) * lost, rel=1e-9)


@pytest.mark.parametrize(("before", "after"), [(4000, 10), (10, 4000), (30, 20)])
def test_growth_of_the_gradient_does_not_depend_on_the_sizes_of_the_states(before: int, after: int) -> None:
    model = nn.Sequential(nn.Linear(N, before), nn.Linear(before, after), nn.Linear(after, 2)).double()
    nn.init.orthogonal_(model[1].weight)  # as many singular values of 1 as the smaller side has
    found = measured(model, samples()).signals["gradient_growth"]
    sampled = 3 / math.sqrt(2 * PROBES * B * before)  # of functionals, where some see nothing of the smaller space
    assert found == pytest.approx(0, abs=1e-9 if before >= after else sampled)


@pytest.mark.parametrize(("side", "layers"), [(8, 2), (64, 2), (224, 1)])
@pytest.mark.parametrize("pool", [nn.AdaptiveAvgPool2d(1), None])
def test_a_mean_over_places_is_no_vanishing_gradient(side: int, layers: int, pool: nn.Module | None) -> None:
    torch.manual_seed(0)
    forecast = check(Pooled(layers, pool), torch.randn(2, 3, side, side))
    assert forecast.problems == ()
    assert abs(forecast.signals["gradient_growth"]) < 0.3
    assert forecast.layers["layer"].values[-1] == "head"


class Pooled(nn.Module):
    """Convolutions, a mean over places as a module or as a function, a classifier."""

    def __init__(self, layers: int, pool: nn.Module | None) -> None:
        super().__init__()
        convolutions = (nn.Conv2d(channels, 8, 3, padding=1, bias=False) for channels in (3, 8)[:layers])
        self.body = nn.Sequential(*(nn.Sequential(each, nn.BatchNorm2d(8), nn.ReLU()) for each in convolutions))
        self.pool, self.head = pool, nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.body(x)
        return self.head(h.mean((2, 3)) if self.pool is None else self.pool(h).flatten(1))


@pytest.mark.parametrize("name", ["resnet8-digits-n4", "plainnet64-digits-connected-n2", "resnet8-digits-connected-n2"])
def test_units_of_the_input_do_not_change_the_verdict(name: str) -> None:
    model, x = network(name), digits()
    found = {units: check(model, units * x) for units in (1.0, 255.0, 1e-2)}
    assert found[255.0].trains == found[1e-2].trains == found[1.0].trains == name.startswith("resnet")
    assert "inputs are far from 1 in size" in str(found[255.0])
    assert "inputs are far from 1 in size" not in str(found[1.0])


def mean_rank(rows: Tensor) -> float:
    """exp(entropy) of the squared singular values, from the singular values themselves."""
    shares = torch.linalg.svdvals(rows).square()
    shares = shares / shares.sum(1, keepdim=True)
    return float((-(shares * shares.log()).sum(1)).exp().mean())


def test_contrast_and_rank_have_closed_forms() -> None:
    """A layer of rank one, then an offset: the samples' energy v against that of the offset."""
    direction = torch.linspace(1, 2, N, dtype=torch.float64)
    first, last = nn.Linear(N, N).double(), nn.Linear(N, 2).double()
    first.weight.data, first.bias.data = torch.outer(direction, torch.ones(N)), torch.full((N,), 5.0).double()
    x = samples()
    as_it_is = nn.Linear(N, N, bias=False).double()
    nn.init.eye_(as_it_is.weight)
    signals = measured(nn.Sequential(as_it_is, first, last), x).signals
    sums = x.sum(1)
    energy = (sums[:, None] * direction + 5).square().sum()
    share = (sums - sums.mean()).square().sum() * direction.square().sum() / energy
    before = (x - x.mean(0)).square().sum() / x.square().sum()
    assert 10 ** signals["contrast"] == pytest.approx(float(share / before), rel=1e-9)
    assert signals["rank"] * mean_rank((x - x.mean(0))[None]) == pytest.approx(1, rel=1e-9)


def test_batch_norms_are_those_of_training_and_dropout_is_off() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(N, N), nn.BatchNorm1d(N), nn.ReLU(), nn.Dropout(0.5), nn.Linear(N, 3)).double()
    model.eval()
    with training_pass(model, samples(3.0)) as run:
        entered = run.states[1].tensor.detach()
    expected = copy.deepcopy(model[:3]).train()(samples(3.0))
    torch.testing.assert_close(entered, expected)
    assert int(model[1].num_batches_tracked) == 0  # type: ignore[arg-type]


def test_the_loss_is_that_of_a_guess_where_all_scores_are_equal() -> None:
    model = mlp(N)
    nn.init.zeros_(model[2].weight), nn.init.zeros_(model[2].bias)
    assert measured(model, samples().float()).signals["loss"] == pytest.approx(1, rel=1e-9)


def test_states_are_named_by_the_layers_that_they_enter() -> None:
    model, x = CASES["called twice"].make(), CASES["called twice"].x(4)
    names = list(check(model, x).layers["layer"].values)
    assert names == ["block.branch.0", "block.branch.2", "block.branch.0#2", "block.branch.2#2", "output"]


# -- words


def network(name: str) -> nn.Module:
    torch.manual_seed(0)
    return build(name)


def digits(count: int = 32) -> Tensor:
    from skipscope.data import load

    return load("digits").test_batch(count).to(torch.get_default_device())


def test_a_network_that_trains() -> None:
    forecast = check(network("resnet20-digits-n2"), digits())
    assert forecast.trains
    assert str(forecast).startswith("Expected to train.")
    assert "broken" not in str(forecast)


KNOWN = [("resnet18", 32), ("alexnet", 64), ("timm vit_tiny_patch16_224", 224)]


@pytest.mark.parametrize(("name", "side"), thinned(KNOWN, fast=KNOWN[:2]))
def test_known_networks_are_expected_to_train(name: str, side: int) -> None:
    torch.manual_seed(0)
    assert check(known(name), torch.randn(4, 3, side, side)).problems == ()


def test_what_is_broken_is_said_with_its_number_its_threshold_and_a_remedy() -> None:
    forecast = check(network("plainnet64-digits-connected-n2-nonorm-small"), digits())
    assert not forecast.trains
    text = " ".join(str(forecast).split())
    assert text.startswith("Not expected to train.")
    for finding in forecast.findings:
        (rule,) = [rule for rule in RULES if rule.name == finding.name]
        assert finding.value == forecast.signals[rule.signal]
        assert finding.threshold == rule.threshold
        assert rule.shown(forecast.signals[rule.signal]) in finding.sentence
        assert rule.shown(rule.threshold) in finding.sentence
        assert set(finding.numbers) == {rule.signal, "threshold"}
        assert f"{finding.numbers[rule.signal]:.3g}" in finding.sentence  # a factor, where the value is a logarithm
        assert finding.unit in {"", *forecast.layers["layer"].values}
        assert finding.sentence in text
        assert all(remedy in text for remedy in finding.remedies)
    assert {"states vanish", "gradients vanish"} <= {finding.name for finding in forecast.findings}


def test_where_nothing_is_broken_the_findings_say_what_was_looked_at() -> None:
    forecast = check(network("resnet8-digits"), digits())
    assert forecast.trains
    assert forecast.problems == ()
    assert {finding.severity for finding in forecast.findings} == {"normal"}
    assert [finding.name for finding in forecast.findings] == [
        "growth",
        "rank",
        "gradient growth",
        "gradient rank",
        "shattering",
        "loss",
    ]
    gradients = forecast.findings[2]
    assert gradients.numbers == {"gradient_growth": pytest.approx(10 ** forecast.signals["gradient_growth"])}
    assert gradients.sentence.endswith("(expected: at least 0.00251, at most 3.98e+03).")
    text = " ".join(forecast.short.split())
    assert all(f"normal {finding.sentence}" in text for finding in forecast.findings)
    assert [one["sentence"] for one in forecast.to_dict()["findings"]] == [one.sentence for one in forecast.findings]


def test_numbers_that_overflow_are_named() -> None:
    model = mlp(N)
    model[0].weight.data.fill_(1e38)
    forecast = check(model, samples().float())
    assert not forecast.trains
    assert "linear in 0 (Linear) gives 96 of 120 numbers that are not finite" in str(forecast)
    assert "not all of what enters 2 is finite" in " ".join(str(forecast).split())


def test_numbers_that_are_not_defined_are_told_from_overflow() -> None:
    model = nn.Sequential(nn.Linear(N, N), Root(), nn.Linear(N, 3))
    (finding,) = check(model, samples().float()).findings
    assert finding.name == "not finite"
    assert "2 has some that are not a number" in finding.sentence


class Root(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (-1 - x.square()).sqrt()


class Cut(nn.Module):
    """Without gradients of what lies before layer `at`."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.layers, self.at = nn.ModuleList(nn.Linear(N, N) for _ in range(5)), at

    def forward(self, x: Tensor) -> Tensor:
        for index, layer in enumerate(self.layers):
            x = layer(x.detach() if index == self.at else x)
        return x


@pytest.mark.parametrize("at", [1, 2, 4])
def test_a_gradient_that_is_cut_off_is_found(at: int) -> None:
    forecast = check(Cut(at), samples().float())
    finding = forecast.findings[0]
    assert finding.name == "gradients are cut off"
    named = ", ".join(f"layers.{index}" for index in range(at))
    assert f"there is none for {'layer' if at == 1 else 'layers'} {named}," in finding.sentence


def test_what_the_user_froze_is_a_note() -> None:
    torch.manual_seed(0)
    model = Cut(0)
    before = check(model, samples().float())
    model.layers[1].requires_grad_(False)
    after = check(model, samples().float())
    assert after.findings == before.findings
    assert after.signals == before.signals
    assert any(note.startswith("Frozen") and "layer layers.1" in note for note in after.notes)
    assert not any(note.startswith("Frozen") for note in before.notes)
    assert not model.layers[1].weight.requires_grad
    features = Cut(2)
    features.layers[:2].requires_grad_(False)
    assert "gradients are cut off" not in {finding.name for finding in check(features, samples().float()).findings}


def test_parametrised_layers_count() -> None:
    from torch.nn.utils import parametrizations

    layers = [orthogonal(1.0, seed) for seed in range(4)]
    model = nn.Sequential(parametrizations.orthogonal(layers[0]), parametrizations.weight_norm(layers[1]), *layers[2:])
    forecast = check(model, samples())
    assert list(forecast.layers["layer"].values) == ["0", "1", "2", "3"]
    assert forecast.signals["gradient_growth"] == pytest.approx(0, abs=1e-9)
    dirac = check(network("diracnet8-digits-connected-n2"), digits())
    assert dirac.layers.sizes["layer"] == 8
    assert dirac.trains


def test_a_model_may_change_its_input_in_place() -> None:
    x = samples().float()
    kept = x.clone()
    model = nn.Sequential(
        nn.ReLU(inplace=True), nn.Linear(N, N), nn.ReLU(inplace=True), nn.Linear(N, N), nn.Linear(N, 3)
    )
    check(model, x)
    assert torch.equal(x, kept)


def test_a_broken_rule_names_the_layer_where_it_breaks() -> None:
    model = nn.Sequential(*(orthogonal(0.1, seed) for seed in range(8)))
    findings = {finding.name: finding.sentence for finding in check(model, samples()).findings}
    steps = {rule.name: math.floor(-rule.threshold) + 1 for rule in RULES if not rule.above}
    assert f"from layer {1 + steps['states vanish']} on" in findings["states vanish"]
    assert f"back to layer {7 - steps['gradients vanish']}." in findings["gradients vanish"]


def test_a_model_that_was_in_training_is_described_as_it_is() -> None:
    model = network("resnet8-digits-n4").train()
    assert "has been in training" not in str(check(model, digits(4)))
    model(digits(4))
    assert any("4 samples are few" in note for note in check(model, digits(4)).notes)
    assert not any("samples are few" in note for note in check(model, digits(16)).notes)
    assert "has been in training before: its batch norms have counted 1 batches" in " ".join(
        str(check(model, digits(4))).split()
    )


def scripted() -> nn.Module:
    return torch.jit.trace(mlp(), torch.randn(4, 8))


@pytest.mark.parametrize(
    ("make", "x", "said"),
    [
        (mlp, torch.randn(1, 8, device="cpu"), "at least 2 samples to compare, got 1"),
        (mlp, torch.ones(3, 8, device="cpu"), "expected samples that differ, got 3"),
        (lambda: nn.Embedding(5, 8), torch.arange(4, device="cpu"), "at least two layers with weights"),
        (mlp, torch.randn(4, 9, device="cpu"), r"Sequential does not run on inputs of shapes \[\(4, 9\)\]"),
        (mlp, torch.arange(32, device="cpu").view(4, 8), "does not run on inputs of shapes"),
        (mlp, torch.full((4, 8), math.nan, device="cpu"), "expected finite inputs"),
        (nn.ReLU, torch.randn(4, 8, device="cpu"), "weight of two dimensions or more, ReLU has none"),
        (lambda: "text", torch.randn(4, 8, device="cpu"), "expected a torch.nn.Module as the model, got str"),
        (lambda: nn.LazyLinear(8), torch.randn(4, 8, device="cpu"), "weights that have no shape yet"),
        (scripted, torch.randn(4, 8, device="cpu"), "written in Python, got a TorchScript module"),
    ],
)
def test_bad_input(make: Callable[[], nn.Module], x: Tensor, said: str) -> None:
    with pytest.raises(ss.InputError, match=said):
        check(make(), x.to(torch.get_default_device()))


def test_the_rules_are_those_of_the_documentation() -> None:
    page = (ROOT / "docs" / "check.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| ([a-z ]+) \| `(\w+)` is (above|below) \| (\S+) \| (\S+) \|", page, re.MULTILINE)
    said = [
        (rule.name, rule.signal, "above" if rule.above else "below", f"{rule.threshold:g}", f"{other.threshold:g}")
        for rule, other in zip(RULES, rules_for("adam"), strict=True)
    ]
    assert listed == said


@pytest.mark.parametrize(("name", "kind"), [("AdamW", "adam"), ("rmsprop", "adam"), ("SGD", "sgd")])
def test_optimisers_are_known_by_the_names_that_people_use(name: str, kind: str) -> None:
    assert rules_for(name) == rules_for(kind)
    assert check(mlp(), torch.randn(4, 8), optimiser=name).optimiser == kind


def test_a_name_that_is_nearly_one_is_pointed_out() -> None:
    with pytest.raises(ss.InputError, match=r"optimiser='adm' \(did you mean adam\?\): expected one that thresholds"):
        rules_for("adm")


def test_an_optimiser_without_thresholds_is_refused() -> None:
    with pytest.raises(ss.InputError, match=r"optimiser='newton': expected .*'sgd' for .*'adam' for "):
        check(mlp(), torch.randn(4, 8), optimiser="newton")


def test_adam_trains_what_gradient_descent_does_not() -> None:
    """Gradients of a size that only a rescaled step can use."""
    model = nn.Sequential(*(orthogonal(0.5, seed) for seed in range(9)))
    plainly, rescaled = (check(model, samples(), optimiser=name) for name in ("sgd", "adam"))
    assert plainly.signals == rescaled.signals
    assert {finding.name for finding in plainly.problems} == {"states vanish"}
    assert rescaled.trains
    assert "gradient descent with momentum" in str(plainly)
    assert "Adam" in str(rescaled)
    assert [plainly.to_dict()["optimiser"], rescaled.to_dict()["optimiser"]] == ["sgd", "adam"]
    assert [rule["threshold"] for rule in rescaled.to_dict()["rules"]] == [r.threshold for r in rules_for("adam")]


# -- the command


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    bad = ("check", "skipscope:plainnet32-digits-connected-n2-nonorm-small", "--data", "digits")
    assert run_command(monkeypatch, *bad) == 0
    assert "random weights: initial weights, before training\n\nNot expected to train." in capsys.readouterr().out
    assert run_command(monkeypatch, *bad, "--strict", "--json", "--out", tmp_path) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out) == json.loads((tmp_path / "check.json").read_text())
    assert json.loads(captured.out)["trains"] is False
    assert "not expected to train: states vanish" in captured.err
    assert run_command(monkeypatch, "check", "skipscope:resnet8-digits", "--data", "digits", "--strict") == 0
    assert run_command(monkeypatch, "check", "skipscope:resnet8-digits", "--samples", 1) == 2
    capsys.readouterr()
    assert run_command(monkeypatch, "check", "skipscope:resnet8-digits", "--input-shape", "3,8,8") == 2
    assert "Traceback" not in capsys.readouterr().err


def test_given_weights_are_described_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save(network("resnet8-digits-n4").state_dict(), tmp_path / "weights.pt")
    arguments = ("check", "skipscope:resnet8-digits-n4", "--weights", tmp_path / "weights.pt")
    assert run_command(monkeypatch, *arguments) == 0
    assert "the weights given, not a fresh start" in capsys.readouterr().out
    factory = tmp_path / "own.py"
    factory.write_text(
        "import torch\ndef make():\n    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 3))\n"
    )
    assert run_command(monkeypatch, "check", f"{factory}:make", "--input-shape", "8") == 0
    said = capsys.readouterr().out
    assert "weights as the factory made them\n" in said
    assert "not a fresh start" not in said
