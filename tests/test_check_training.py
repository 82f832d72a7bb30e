"""The short training of a check: what learns, what does not, what it leaves alone and what it refuses."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import skipscope as ss
from skipscope.check import checking, short_training
from skipscope.check.short_training import (
    BATCH,
    CLASSES,
    DOUBTFUL,
    ENOUGH,
    FIRST,
    HOPELESS,
    QUICKLY,
    RATES,
    SAMPLES,
    Attempt,
    Lesson,
    ShortTraining,
    few_samples,
    train_shortly,
)
from skipscope.data import digits
from skipscope.errors import InputError
from skipscope.runs import as_json
from tests.commands import run_command
from tests.seeded import generator


def data(count: int = 600) -> tuple[Tensor, Tensor]:
    split, device = digits().train, torch.get_default_device()
    return split.images(slice(count)).to(device), split.labels[:count]


def trained(model: nn.Module, train_on: Any, *, optimiser: str) -> ShortTraining:
    return train_shortly(Lesson.of(model, train_on), optimiser=optimiser)


def perceptron(depth: int, gain: float = 1.0, width: int = 48) -> nn.Sequential:
    torch.manual_seed(3)
    layers: list[nn.Module] = [nn.Flatten()]
    for number in range(depth - 1):
        layer = nn.Linear(width if number else 64, width)
        nn.init.normal_(layer.weight, std=gain * layer.in_features**-0.5)
        nn.init.zeros_(layer.bias)
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 10))


def check(model: nn.Module, **options: Any) -> ss.Forecast:
    images, labels = data()
    return ss.check(model, images[:32], unit_spectra=False, train_on=(images, labels), **options)


def test_what_learns_trains_though_a_rule_is_broken() -> None:
    model = perceptron(4, gain=18.0)
    alone = ss.check(model, data()[0][:32], unit_spectra=False)
    assert alone.trains is False
    assert alone.short_training is None
    assert alone.to_dict()["short_training"] is None
    forecast = check(model)
    assert forecast.trains is True
    assert not forecast.near
    assert forecast.findings[0].name == "learns"
    broken = {finding.name for finding in alone.problems}
    notable = [finding for finding in forecast.findings if finding.severity == "notable"]
    assert {finding.name for finding in notable} == broken
    assert all(finding.sentence.endswith("A short training learns all the same.") for finding in notable)
    assert alone.trials
    assert not forecast.trials  # nothing is left to mend
    assert "A short training learns: within" in forecast.short
    assert "Copies were trained for" in forecast.short
    found = json.loads(as_json(forecast.to_dict()))["short_training"]
    assert found["learns"]
    assert found["learnt"] >= (QUICKLY if found["attempts"][-1]["steps"] <= FIRST else ENOUGH)
    assert found["samples"] == 600
    assert found["classes"] == 10


def test_what_does_not_learn_is_a_problem_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates that move nothing: no rule on the weights sees it."""
    monkeypatch.setitem(RATES, "sgd", (1e-12, 1e-11))
    forecast = check(perceptron(3, gain=1.4))
    assert [finding.name for finding in forecast.problems] == ["does not learn"]
    assert forecast.trains is False
    assert not forecast.near
    (finding,) = forecast.problems
    assert finding.value == finding.numbers["learnt"] < HOPELESS
    assert "expected: at least 70%" in finding.sentence
    assert forecast.short_training is not None
    assert {attempt.steps for attempt in forecast.short_training.attempts} == {FIRST}  # none goes on


def test_a_network_that_fails_keeps_what_the_rules_say_of_it() -> None:
    forecast = check(perceptron(70, gain=0.5, width=16))
    assert forecast.trains is False
    assert [finding.name for finding in forecast.problems][-1] == "does not learn"
    assert "states vanish" in [finding.name for finding in forecast.problems]
    assert all(finding.severity == "problem" for finding in forecast.findings)


def test_a_training_answers_what_few_samples_cannot() -> None:
    images, labels = data()
    model = perceptron(3, gain=1.4)
    assert ss.check(model, images[:2], unit_spectra=False).trains is None
    forecast = ss.check(model, images[:2], unit_spectra=False, train_on=(images, labels))
    assert forecast.trains is True
    assert forecast.unanswered
    assert not any(sentence in forecast.short for sentence in forecast.unanswered.values())


def test_the_model_is_left_as_it_is() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10)).train()
    before = copy.deepcopy(model.state_dict())
    random_state = torch.get_rng_state()
    images, labels = data(200)
    found = trained(model, (images, labels), optimiser="adam")
    assert found.learns
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(weight.grad is None for weight in model.parameters())
    assert torch.equal(torch.get_rng_state(), random_state)
    assert trained(model, (images, labels), optimiser="adam") == found


def test_the_best_rates_go_on_and_the_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough is out of reach: all rates get their first steps, two of them more, and the better of them all."""
    for name, number in (("QUICKLY", 2.0), ("ENOUGH", 2.0), ("DOUBTFUL", 0.0), ("HOPELESS", -1.0)):
        monkeypatch.setattr(short_training, name, number)
    for name, steps in (("FIRST", 30), ("LAST", 50), ("LONGEST", 60)):
        monkeypatch.setattr(short_training, name, steps)
    images, labels = data(BATCH)
    found = trained(perceptron(3, gain=1.4), (images, labels), optimiser="sgd")
    assert [attempt.rate for attempt in found.attempts] == list(RATES["sgd"])
    assert sorted(attempt.steps for attempt in found.attempts) == [30, 30, 50, 60]
    last = max(attempt.learnt for attempt in found.attempts if attempt.steps == 30)
    assert all(attempt.learnt >= last for attempt in found.attempts if attempt.steps > 30)
    assert found.best.steps == 60
    assert found.steps == 170
    assert not found.learns


def test_the_best_goes_on_only_where_it_is_not_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, number in (("QUICKLY", 2.0), ("ENOUGH", 2.0), ("DOUBTFUL", 1.5), ("HOPELESS", -1.0)):
        monkeypatch.setattr(short_training, name, number)
    for name, steps in (("FIRST", 30), ("LAST", 50), ("LONGEST", 60)):
        monkeypatch.setattr(short_training, name, steps)
    found = trained(perceptron(3, gain=1.4), data(BATCH), optimiser="sgd")
    assert sorted(attempt.steps for attempt in found.attempts) == [30, 30, 50, 50]


@pytest.mark.parametrize(
    ("learnt", "steps", "learns", "near"),
    [
        (QUICKLY, FIRST, True, False),
        (QUICKLY, FIRST + 1, False, True),  # what learns more slowly has to learn more
        (ENOUGH, FIRST + 1, True, False),
        (DOUBTFUL, FIRST, False, True),
        (DOUBTFUL - 0.01, 1000, False, False),
    ],
)
def test_how_much_has_to_be_learnt(learnt: float, steps: int, learns: bool, near: bool) -> None:
    found = ShortTraining((Attempt(0.1, 40, 0.0, float("inf")), Attempt(0.01, steps, learnt, 1.0)), 600, 10, 0.1)
    assert (found.learns, found.near) == (learns, near)
    assert found.finding.threshold == (QUICKLY if steps <= FIRST else ENOUGH)
    assert found.finding.name == ("learns" if learns else "does not learn")


def test_shares_have_the_digits_that_tell_them_apart() -> None:
    """0.5 % of the samples are rare: a guess is right about 99.5 %, and 100 % would be said of everything."""
    found = ShortTraining((Attempt(0.1, FIRST, 0.5, 1.0),), 1500, 2, 0.995)
    assert "up to 99.75% of the answers are right (a guess has 99.50%, expected: at least 99.83%)" in (
        found.finding.sentence
    )


def test_a_loss_that_is_never_finite_is_said_so() -> None:
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = perceptron(3)

        def forward(self, x: Tensor) -> Tensor:
            return self.body(x) / 0

    found = trained(Broken(), data(200), optimiser="sgd")
    assert found.steps == 0
    assert found.finding.sentence == "A short training fails: at no rate is the loss finite before the first step."
    assert "0 steps in all" in found.note


def test_where_all_rates_diverge_the_longest_is_named() -> None:
    found = ShortTraining((Attempt(0.1, 30, 0.1, float("inf")), Attempt(0.01, 100, 0.0, float("inf"))), 600, 10, 0.1)
    assert "at no rate is the loss finite for more than 100 steps" in found.finding.sentence


def test_a_rate_at_which_the_loss_is_not_finite_is_given_up() -> None:
    images, labels = data()
    found = trained(perceptron(40, gain=8.0), (images, labels), optimiser="sgd")
    assert not found.learns
    assert any(attempt.steps < 20 and attempt.last_loss == float("inf") for attempt in found.attempts)
    assert json.loads(as_json(found.to_dict()))["attempts"][0]["last_loss"] is None


def test_a_rate_that_diverges_does_not_take_the_place_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fragile(nn.Module):
        """Its output is not finite once a weight has moved far."""

        def __init__(self) -> None:
            super().__init__()
            self.body = perceptron(3, gain=1.4)
            self.start = nn.Parameter(self.body[1].weight.detach().clone(), requires_grad=False)

        def forward(self, x: Tensor) -> Tensor:
            moved = (self.body[1].weight - self.start).detach().norm()
            return self.body(x) / (moved < 0.5)

    monkeypatch.setattr(short_training, "HOPELESS", -1.0)
    found = trained(Fragile(), data(), optimiser="sgd")
    steps = {attempt.rate: attempt.steps for attempt in found.attempts}
    assert steps[0.1] < FIRST
    assert steps[0.01] < FIRST
    assert steps[0.001] > FIRST
    assert steps[0.0001] > FIRST


def test_the_best_that_has_diverged_later_leaves_its_steps_to_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the larger rate more is learnt until the loss is not finite; at the other one it goes on being finite."""

    class Fragile(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = perceptron(3, gain=1.4)
            self.calls = 0
            self.start = nn.Parameter(self.body[1].weight.detach().clone(), requires_grad=False)

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            moved = (self.body[1].weight - self.start).detach().norm()
            return self.body(x) / ~((self.calls > FIRST + 20) & (moved > 0.3))

    for name, number in (("QUICKLY", 2.0), ("ENOUGH", 2.0), ("DOUBTFUL", 0.0), ("HOPELESS", -1.0)):
        monkeypatch.setattr(short_training, name, number)
    monkeypatch.setitem(RATES, "sgd", (0.01, 0.0001))
    for name, steps in (("LAST", FIRST + 40), ("LONGEST", FIRST + 60)):
        monkeypatch.setattr(short_training, name, steps)
    large, small = trained(Fragile(), data(), optimiser="sgd").attempts
    assert large.last_loss == float("inf")
    assert FIRST < large.steps < FIRST + 40
    assert large.learnt > small.learnt
    assert small.steps == FIRST + 60


def test_few_samples_of_the_most_frequent_classes() -> None:
    labels = torch.cat([torch.full((20 + 60 * number,), number, device="cpu") for number in range(14)])
    chosen = few_samples(labels)
    assert len(chosen) == len(set(chosen.tolist())) == SAMPLES
    assert set(labels[chosen].tolist()) == set(range(14 - CLASSES, 14))
    assert few_samples(labels).equal(chosen)
    assert not few_samples(labels, seed=1).equal(chosen)


def test_a_part_of_a_data_set_has_samples_and_labels() -> None:
    model = perceptron(3, gain=1.4)
    split = digits().train
    found = trained(model, split, optimiser="sgd")
    chosen = few_samples(split.labels)
    assert found == trained(model, (split.images(chosen), split.labels[chosen]), optimiser="sgd")


def test_inputs_by_name_and_what_carries_no_batch() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = perceptron(3, gain=1.4)

        def forward(self, images: Tensor, factors: Tensor) -> Tensor:
            return self.body(images * factors)

    images, labels = data()
    found = trained(Scaled(), ({"images": images, "factors": torch.ones(8)}, labels), optimiser="sgd")
    assert found.learns


def test_a_constant_as_long_as_the_choice_of_samples_is_no_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = perceptron(3, gain=1.4)

        def forward(self, images: Tensor, mask: Tensor) -> Tensor:
            assert len(mask) == 150
            return self.body(images) * mask.mean()

    monkeypatch.setattr(short_training, "SAMPLES", 150)
    images, labels = data(300)
    assert trained(Masked(), ({"images": images, "mask": torch.ones(150)}, labels), optimiser="sgd").learns


class NotCopied(nn.Module):
    """A generator cannot be copied."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.numbers = perceptron(3, gain=1.4), (number for number in range(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


class _Failing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        raise ValueError("no gradient today")


class FailsBackwards(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = perceptron(3, gain=1.4)

    def forward(self, x: Tensor) -> Tensor:
        return _Failing.apply(self.body(x))


class Values(nn.Module):
    """One number for each sample."""

    def __init__(self) -> None:
        super().__init__()
        self.body = perceptron(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)[:, 0]


def frozen() -> nn.Module:
    return perceptron(3).requires_grad_(False)


@pytest.mark.parametrize(
    ("make", "labels", "message"),
    [
        (lambda: perceptron(3), torch.zeros(200, device="cpu"), "expected labels as a tensor of whole numbers"),
        (lambda: perceptron(3), [1, 2, 3], "expected labels as a tensor of whole numbers"),
        (lambda: perceptron(3), torch.arange(7, device="cpu"), "one label for each of the 200 samples"),
        (lambda: perceptron(3), torch.ones(200, device="cpu").long(), "labels of two classes or more"),
        (lambda: perceptron(3), torch.arange(200, device="cpu") - 5, "labels of two classes or more"),
        (
            lambda: perceptron(3),
            torch.arange(200, device="cpu") % 12,
            "has 10 scores per sample, and the largest label is 11",
        ),
        (Values, torch.arange(200, device="cpu") % 2, "leave the short training out"),
        (frozen, torch.arange(200, device="cpu") % 2, "no weights to train"),
        (
            lambda: perceptron(3),
            (torch.arange(200, device="cpu") < 3).long(),
            "98.5% of the samples .* have the label 0",
        ),
        (
            NotCopied,
            torch.arange(200, device="cpu") % 2,
            "NotCopied cannot be copied: .*; leave the short training out",
        ),
        (lambda: NotCopied().bfloat16(), torch.arange(200, device="cpu") % 2, "NotCopied cannot be copied"),
        (FailsBackwards, torch.arange(200, device="cpu") % 2, "cannot be trained: no gradient today; leave the short"),
        (lambda: perceptron(3), torch.zeros(200, dtype=torch.long, device="meta"), "expected labels as a tensor of"),
        (lambda: nn.ReLU().forward, torch.arange(200, device="cpu") % 2, "expected a torch.nn.Module as the model"),
        (lambda: nn.Sequential(nn.Flatten(), nn.LazyLinear(10)), torch.arange(200, device="cpu") % 2, "no shape yet"),
    ],
)
def test_what_cannot_be_trained_is_refused(make: Any, labels: Any, message: str) -> None:
    images, _ = data(200)
    with pytest.raises(InputError, match=message):
        trained(make(), (images, labels), optimiser="sgd")


def test_samples_that_are_not_finite_are_refused() -> None:
    images, labels = data(200)
    images = images.clone()
    images[150, 0, 3, 3] = float("nan")
    with pytest.raises(InputError, match="expected finite inputs"):
        trained(perceptron(3), (images, labels), optimiser="sgd")


def test_what_does_not_fit_is_refused_before_anything_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "measured", None)
    images, labels = data(200)
    with pytest.raises(InputError, match="10 scores per sample, and the largest label is 10"):
        ss.check(perceptron(3), images[:32], train_on=(images, torch.where(labels == 9, 10, labels)))


def test_too_few_samples_and_what_is_no_pair() -> None:
    images, labels = data(BATCH - 1)
    with pytest.raises(InputError, match=f"at least {BATCH} samples to train on"):
        trained(perceptron(3), (images, labels), optimiser="sgd")
    with pytest.raises(InputError, match=r"train_on=\(samples, labels\).* got Tensor"):
        ss.check(perceptron(3), images[:32], unit_spectra=False, train_on=images)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="got 3 entries"):
        Lesson.of(perceptron(3), (images, labels, labels))


def test_samples_that_a_choice_leaves_too_few_of() -> None:
    images, _ = data(300)
    hundred = torch.arange(300, device="cpu") % 100
    with pytest.raises(InputError, match="got 30 of the 10 most frequent of all classes"):
        Lesson.of(perceptron(3), (images, hundred))
    rare = torch.zeros(4000, device="cpu").long()
    rare[0] = 1
    while 0 in few_samples(rare).tolist():  # the one sample of the second class is not drawn
        rare = rare.roll(1)
    with pytest.raises(InputError, match="none of them so rare"):
        Lesson.of(perceptron(3), (torch.zeros(4000, 1, 8, 8), rare))


def test_of_several_outputs_none_is_guessed() -> None:
    class Two(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.body, self.more = perceptron(3, gain=1.4), nn.Linear(10, width)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            scores = self.body(x)
            return self.more(scores), scores

    images, labels = data()
    with pytest.raises(InputError, match=r"several are possible \(\(64, 30\), \(64, 10\)\)"):
        trained(Two(30), (images, labels), optimiser="sgd")
    assert trained(Two(5), (images, labels), optimiser="sgd").learns


def test_what_an_optimiser_does_not_take_is_said() -> None:
    class Sparse(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.EmbeddingBag(17, 10, sparse=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.words(x.flatten(1).mul(16).long())

    images, labels = data()
    with pytest.raises(InputError, match=r"Sparse cannot be trained: .*sparse gradients"):
        trained(Sparse(), (images, labels), optimiser="adam")


def test_remedies_are_not_said_to_mend_a_training() -> None:
    """They were tried for the rule, and no training was repeated with them."""
    forecast = check(perceptron(40, gain=8.0))
    assert forecast.trials
    assert "does not learn" in [finding.name for finding in forecast.problems]
    sentence = forecast.problems[-1].sentence
    assert f"- {sentence[:40]}" in forecast.short
    assert f"{sentence} No remedy" not in forecast.short.replace("\n  ", " ")
    assert "does not learn" not in str(forecast._tried())


class Cut(nn.Module):
    """No gradient reaches its first layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.body = nn.Linear(8, 8), perceptron(3, gain=1.4)

    def forward(self, x: Tensor) -> Tensor:
        return self.body(self.first(x).detach())


def test_layers_without_gradients_stay_a_problem() -> None:
    forecast = check(Cut())
    assert forecast.trains is False
    assert [finding.name for finding in forecast.problems] == ["gradients are cut off"]
    assert "A short training learns: within" in forecast.short


def test_a_verdict_is_not_narrow_where_something_definite_stands_against_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, number in (("QUICKLY", 2.0), ("ENOUGH", 2.0), ("LAST", FIRST), ("LONGEST", FIRST)):
        monkeypatch.setattr(short_training, name, number)
    narrow, definite = check(perceptron(3, gain=1.4)), check(Cut())
    for forecast in (narrow, definite):
        assert forecast.short_training is not None
        assert forecast.short_training.near
        assert forecast.trains is False
    assert narrow.verdict == "Not expected to train, by a narrow margin"
    assert definite.verdict == "Not expected to train"


def test_half_precision_is_trained_in_full() -> None:
    images, labels = data()
    found = trained(perceptron(3, gain=1.4).bfloat16(), (images.bfloat16(), labels), optimiser="sgd")
    assert found.learns


def test_gradients_reach_the_copies_alone() -> None:
    """Hooks and functions of the model may hold on to its own weights, samples to what made them."""
    images, labels = data(200)
    scale = torch.ones((), requires_grad=True)
    scale.grad = torch.tensor(5.0)
    samples = images * scale
    model = perceptron(3, gain=1.4)
    found = trained(model, (samples, labels), optimiser="sgd")
    assert found.learns
    assert float(scale.grad) == 5.0
    assert all(weight.grad is None for weight in model.parameters())


def test_a_copy_that_computes_with_the_models_own_weights_is_refused() -> None:
    model = perceptron(3, gain=1.4)
    own = model.forward
    model.forward = lambda x: own(x)  # type: ignore[method-assign]  # as torch.compile(model.forward) does
    with pytest.raises(InputError, match="computes with the weights of the model that it is copied from"):
        trained(model, data(200), optimiser="sgd")
    assert all(weight.grad is None for weight in model.parameters())


def test_an_output_of_probabilities_is_trained_by_its_logarithm() -> None:
    class Evaluated(nn.Module):
        """Scores in training, probabilities in evaluation mode, as here."""

        def __init__(self) -> None:
            super().__init__()
            self.body = perceptron(5, gain=1.4)

        def forward(self, x: Tensor) -> Tensor:
            return self.body(x) if self.training else self.body(x).softmax(1)

    found = trained(Evaluated(), data(), optimiser="sgd")
    assert found.learns
    assert found.probabilities
    assert "took their logarithm" in found.note
    assert not trained(perceptron(5, gain=1.4), data(), optimiser="sgd").probabilities


@pytest.mark.parametrize("rare", [45, 75])
def test_to_say_the_most_frequent_label_always_is_not_to_learn(rare: int) -> None:
    class Constant(nn.Module):
        """Its scores are a bias: there is nothing else to learn."""

        def __init__(self) -> None:
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.zeros(1, 64)), nn.Parameter(torch.zeros(2))

        def forward(self, x: Tensor) -> Tensor:
            return self.bias + 0 * (x.flatten(1) @ self.weight.T)

    images = torch.randn(1500, 1, 8, 8, generator=generator(0))
    labels = (torch.arange(1500, device="cpu") < rare).long()
    found = trained(Constant(), (images, labels), optimiser="sgd")
    assert found.best.learnt < HOPELESS


def test_progress_is_that_above_a_guess() -> None:
    """Nine tenths have one label: to say it always is no progress."""
    images = torch.randn(400, 1, 8, 8, generator=generator(0))
    labels = (torch.arange(400, device="cpu") % 10 == 0).long()
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 1), nn.ReLU(), nn.Linear(1, 2))
    found = trained(model, (images, labels), optimiser="sgd")
    assert found.guess == pytest.approx(0.9)
    assert found.best.learnt < 0.2
    assert not found.learns


def test_the_command_trains_on_a_data_set(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--data", "digits", "--train", "--no-units", "--json")
    assert run_command(monkeypatch, "check", "skipscope:resnet8-digits-n4", *options) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["trains"]
    assert found["short_training"]["learns"]
    assert run_command(monkeypatch, "check", "skipscope:resnet8-digits-n4", "--train") == 2
    assert "name a data set with --data" in capsys.readouterr().err
