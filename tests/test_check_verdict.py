"""What a check says where it cannot say, where a signal is near its threshold, and where numbers are not finite."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import skipscope as ss
from skipscope.check.rules import rules_for
from skipscope.check.signals import CALIBRATED, measured
from skipscope.data import digits
from tests.seeded import generator
from tests.trace.nets import mlp

N = 8


def images(count: int, first: int = 0) -> Tensor:
    return digits().train.images(torch.arange(first, first + count)).to(torch.get_default_device())


def plain(depth: int, width: int = 96, seed: int = 1) -> nn.Sequential:
    """Orthogonal weights for ReLU: sizes are kept, directions are lost with depth."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = [nn.Flatten()]
    for index in range(depth - 1):
        layer = nn.Linear(width if index else 64, width)
        nn.init.orthogonal_(layer.weight, math.sqrt(2))
        nn.init.zeros_(layer.bias)
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 10))


def check(model: nn.Module, x: Tensor) -> ss.Forecast:
    return ss.check(model, x, unit_spectra=False)


# -- too few samples


def test_three_samples_cannot_say_what_thirty_two_find() -> None:
    """Fails with 32 samples, for its rank; three samples differ in two directions, of which a half is always left."""
    model = plain(60)
    few, enough = check(model, images(3)), check(model, images(32))
    assert enough.trains is False
    assert few.problems == ()
    assert few.trains is None
    assert few.verdict == "Cannot say whether it is expected to train"
    assert list(few.unanswered) == ["representation collapses"]
    assert "3 samples are too few" in str(few)
    assert few.to_dict()["trains"] is None


def test_what_breaks_with_few_samples_is_broken() -> None:
    model = plain(60, width=16)
    with torch.no_grad():
        for weight in model.parameters():
            weight *= 0.8  # so that states vanish, which any number of samples shows
    forecast = check(model, images(4))
    assert forecast.trains is False
    assert "Cannot say" not in str(forecast)


@pytest.mark.parametrize("count", [2, 3, 8, 16])
def test_a_rank_is_never_below_what_few_samples_foresee(count: int) -> None:
    for seed, depth in ((0, 4), (1, 20), (2, 60)):
        model = plain(depth, seed=seed)
        assert measured(model, images(count)).rank_at_least <= measured(model, images(32)).signals["rank"]


def test_a_network_that_keeps_all_directions_is_answered_with_sixteen_samples() -> None:
    assert check(plain(3), images(16)).trains is True


def test_two_layers_have_nothing_between_them_to_lose() -> None:
    assert check(plain(2), images(3)).trains is True


def test_more_samples_make_a_rank_steadier_and_not_smaller() -> None:
    model = plain(30)
    groups = [measured(model, images(CALIBRATED, first)).signals["rank"] for first in (0, 32, 64, 96)]
    whole = measured(model, images(128 + 5))
    assert whole.signals["rank"] == pytest.approx(sum(groups) / 4, rel=0.1)  # a ratio of means for a mean of ratios
    assert whole.errors["rank"] < measured(model, images(32)).errors["rank"]


# -- margins


@pytest.mark.parametrize("count", [8, pytest.param(32, marks=pytest.mark.slow)])
def test_errors_are_those_of_many_draws(count: int) -> None:
    model = plain(12)
    shuffled = torch.randperm(1400, generator=torch.Generator("cpu").manual_seed(0), device="cpu")
    draws = [measured(model, digits().train.images(shuffled[i * count : (i + 1) * count]), seed=i) for i in range(30)]
    for name in ("growth", "rank", "gradient_growth", "gradient_rank", "shattering", "loss"):
        scatter = float(torch.tensor([draw.signals[name] for draw in draws]).std())
        said = float(torch.tensor([draw.errors[name] for draw in draws]).square().mean().sqrt())
        assert 0.7 < said / scatter < 2, name  # a jackknife errs on the large side


def test_a_signal_near_its_threshold_is_no_plain_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = plain(12), images(32)
    plainly = check(model, x)
    assert plainly.verdict == "Expected to train"
    assert not plainly.near
    rules = rules_for("sgd")
    (rule,) = [rule for rule in rules if rule.signal == "gradient_rank"]
    value, error = plainly.signals["gradient_rank"], plainly.errors["gradient_rank"]
    for distance, trains, near in ((-3, True, False), (-1, True, True), (1, False, True), (3, False, False)):
        moved = tuple(
            type(each)(**{**vars(each), "threshold": value + distance * error}) if each is rule else each
            for each in rules
        )
        for module in ("rules", "checking", "forecast", "remedies"):
            monkeypatch.setattr(sys.modules[f"skipscope.check.{module}"], "rules_for", lambda _, moved=moved: moved)
        forecast = check(model, x)
        assert forecast.trains is trains
        assert forecast.near is near
        margin = ", by a narrow margin" if near else ""
        assert str(forecast).startswith(f"{'Expected' if trains else 'Not expected'} to train{margin}.")
        assert forecast.to_dict()["near"] is near


# -- numbers that are not finite


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(mlp(N, N) for _ in range(3)), nn.Linear(N, 3))


def x() -> Tensor:
    return torch.randn(12, N, generator=generator(3))


class Root(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (-1 - x.square()).sqrt()


class Attention(nn.Module):
    """Of two halves, the first of which does not see the second: minus infinity, which a softmax makes zero."""

    def __init__(self) -> None:
        super().__init__()
        self.keys, self.out = nn.Linear(N, N), nn.Linear(N, N)

    def forward(self, x: Tensor) -> Tensor:
        keys = self.keys(x).view(len(x), 2, -1)
        hidden = torch.tensor([[False, True], [False, False]], device=x.device)
        return self.out(((keys @ keys.mT).masked_fill(hidden, -math.inf).softmax(-1) @ keys).flatten(1))


def spoilt(path: str, number: float, index: int = 0) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        model = nn.Sequential(net(), Attention(), nn.Linear(N, 3))
        model[0][3] = nn.Linear(N, N)
        model.get_parameter(path).data.view(-1)[index] = number
        return model

    return make


@pytest.mark.parametrize(
    "path",
    ["0.0.0.weight", "0.1.2.bias", "0.2.0.weight", "0.3.bias", "1.keys.weight", "1.out.weight", "2.weight", "2.bias"],
)
@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_weight_that_is_not_finite_is_named(path: str, number: float) -> None:
    (finding,) = check(spoilt(path, number)(), x()).findings
    assert f"the weight {path} has 1 of " in finding.sentence
    assert "finite weights" in finding.remedies[0]


def test_the_first_of_several_is_named() -> None:
    model = spoilt("0.1.0.weight", math.nan)()
    model.get_parameter("2.weight").data.fill_(math.nan)
    (finding,) = check(model, x()).findings
    assert "the weight 0.1.0.weight has 1 of 64 numbers" in finding.sentence


def test_an_operation_that_makes_them_is_named() -> None:
    model = net()
    model[1] = Root()
    (finding,) = check(model, x()).findings
    assert "sqrt in 1 (Root) gives 96 of 96 numbers that are not finite, from finite ones" in finding.sentence
    assert finding.remedies == ("no division by zero, logarithm or root out of its range",)


def test_an_overflow_names_the_layer_and_a_remedy_that_ends_it() -> None:
    model = net()
    model[1][0].weight.data.fill_(3e38)  # type: ignore[index, union-attr, operator]
    forecast = check(model, x())
    (finding,) = forecast.findings
    assert "Numbers overflow: linear in 1.0 (Linear) gives" in finding.sentence
    assert "He's initial weights" in finding.remedies
    assert all(not trial.broken for trial in forecast.trials if trial.remedy in finding.remedies)


class Norm(nn.Module):
    """Its derivative at zero is not a number."""

    def forward(self, x: Tensor) -> Tensor:
        return x + (x - x.detach()).square().sum(1, keepdim=True).sqrt()


def test_gradients_that_are_not_finite_are_found() -> None:
    model = net()
    model[1] = Norm()
    forecast = check(model, x())
    assert forecast.trains is False
    (finding,) = forecast.findings
    assert "come back to what enters 0.2 are" in finding.sentence


def test_a_model_and_its_hooks_are_left_alone() -> None:
    model = spoilt("0.1.2.bias", math.nan)()
    check(model, x())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert all(weight.grad is None for weight in model.parameters())


def test_a_factor_of_one_is_said_as_one_says_it() -> None:
    (rank,) = (rule for rule in rules_for("sgd") if rule.signal == "rank")
    same = "samples differ in about as many directions at the last layer as at the first"
    assert rank.in_words(1.0) == rank.in_words(0.9996) == rank.in_words(1.004) == same
    assert rank.in_words(0.1) == same.replace("about", "0.1 times")
    (growth, _) = (rule for rule in rules_for("sgd") if rule.signal == "growth")
    assert growth.in_words(0.0) == "the last state is about as large as the first"
    assert growth.in_words(2.0) == "the last state is 100 times as large as the first"
