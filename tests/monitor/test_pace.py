"""When the monitor looks, with a clock that the test moves."""

from __future__ import annotations

import dataclasses
import re

import pytest
import torch

import skipscope as ss
from skipscope.monitor.measures import MEASURES
from skipscope.monitor.pace import Pace
from tests.monitor.loops import X, Y, small_model


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def simulated(
    costs: dict[str, float],
    *,
    budget: float | None,
    first: str = "",
    every: int = 10,
    steps: int = 20_000,
    step: float = 0.01,
) -> Pace:
    """A training whose steps take `step` seconds, and whose measures take what `costs` says."""
    clock = Clock()
    pace = Pace(dict.fromkeys(costs, 0.05), every=every, budget=budget, first=first, clock=clock)
    for number in range(1, steps + 1):
        clock.now += step
        pace.stepped()
        for name in pace.due(number):
            with pace.spending(name, number):
                clock.now += costs[name]
    return pace


@pytest.mark.parametrize("budget", [0.01, 0.05, 0.3])
def test_the_share_stays_within_the_budget_and_is_used(budget: float) -> None:
    pace = simulated({"cheap": 0.02, "dear": 1.0}, budget=budget)
    assert 0.5 * budget < pace.share <= budget


def test_cheap_measures_look_more_often_than_dear_ones() -> None:
    pace = simulated({"cheap": 0.002, "middle": 0.1, "dear": 2.0}, budget=0.1)
    cheap, middle, dear = (pace.items[name].runs for name in ("cheap", "middle", "dear"))
    assert cheap > 1700  # of 2000, but for the time that the first look of the dear one has to earn
    assert cheap > middle > dear >= 3


def test_half_of_the_budget_is_for_the_first_measure() -> None:
    costs = {"sizes": 0.05, "small": 0.02, "middle": 0.1, "large": 0.2, "largest": 0.4}
    pace = simulated(costs, budget=0.1, first="sizes")
    sizes, *others = pace.items.values()
    assert 0.4 * pace.own < sizes.seconds < 0.6 * pace.own
    assert all(item.runs >= 4 for item in others)
    assert 0.05 < pace.share <= 0.1
    equal = simulated(costs, budget=0.1)
    assert sizes.runs > 1.8 * equal.items["sizes"].runs


def test_what_the_first_measure_does_not_need_goes_to_the_others() -> None:
    costs = {"sizes": 0.0001, "dear": 1.0}
    assert simulated(costs, budget=0.1, first="sizes").items["dear"].runs >= (
        simulated({"dear": 1.0}, budget=0.1).items["dear"].runs - 1
    )


def test_what_a_cheap_measure_does_not_need_goes_to_the_others() -> None:
    alone = simulated({"dear": 1.0}, budget=0.1)
    beside = simulated({"cheap": 0.0001, "dear": 1.0}, budget=0.1)
    assert beside.items["dear"].runs >= alone.items["dear"].runs - 1


def test_a_measure_that_becomes_dear_is_asked_less_often() -> None:
    clock = Clock()
    pace = Pace({"one": 0.01}, every=10, budget=0.1, clock=clock)
    for number in range(1, 4001):
        clock.now += 0.01
        pace.stepped()
        for name in pace.due(number):
            with pace.spending(name, number):
                clock.now += 0.005 if number < 2000 else 0.2
    assert pace.share <= 0.1
    assert pace.items["one"].runs < 250


def test_fast_steps_are_no_measure_for_what_a_look_costs() -> None:
    clock = Clock()
    pace = Pace({"sizes": 0.1, "dear": 1.0}, every=10, budget=0.05, clock=clock)  # two hundred steps, and more
    shares = []
    for number in range(1, 200_001):
        clock.now += 0.0005
        pace.stepped()
        for name in pace.due(number):
            with pace.around(), pace.spending(name, number):
                clock.now += {"sizes": 0.1, "dear": 1.5}[name]
            shares.append(pace.share)
    assert max(shares) <= 0.05
    assert pace.items["dear"].runs > 0


@pytest.mark.parametrize("wrong", [1 / 3, 3])
def test_a_guess_that_is_wrong_by_a_factor_does_no_harm(wrong: float) -> None:
    clock = Clock()
    pace = Pace({"dear": 2.0 * wrong}, every=10, budget=0.05, clock=clock)
    shares = []
    for number in range(1, 60_001):
        clock.now += 0.01
        pace.stepped()
        for name in pace.due(number):
            with pace.spending(name, number):
                clock.now += 2.0
            shares.append(pace.share)
    assert max(shares) <= 0.1  # of the first look; it is made up for
    assert pace.share <= 0.05
    assert pace.items["dear"].runs >= 3


def test_a_pause_between_two_trainings_earns_nothing() -> None:
    clock = Clock()
    pace = Pace({"one": 1.0}, every=1, budget=0.1, clock=clock)
    pace.stepped()
    clock.now = 10.0
    pace.pause()
    clock.now = 1000.0
    assert pace.elapsed == 10
    pace.go_on()
    clock.now = 1005.0
    assert pace.elapsed == 15


def test_what_is_done_around_a_look_is_time_of_the_monitor() -> None:
    clock = Clock()
    pace = Pace({"one": 1.0}, every=1, budget=None, clock=clock)
    pace.stepped()
    with pace.around():
        clock.now += 1
        with pace.around(), pace.spending("one", 1):
            clock.now += 2
    assert pace.own == 3
    assert pace.items["one"].seconds == 2


def test_what_has_not_been_looked_at_is_said(monkeypatch: pytest.MonkeyPatch, trunk: ss.Trunk) -> None:
    monitor = ss.Monitor(trunk, X[:8], 5, ["sizes", "singular"], 0.05)
    monitor.pace.expect({"sizes": 1000.0, "singular": 2000.0})
    for _ in range(4):
        monitor.step(1.0)
    assert "looks: none;" in str(monitor)
    assert re.search(
        r"Not looked at yet: sizes \(expected to take \S+ s\), singular \(expected to take 3e\+03 s\); the budget "
        r"has earned \S+ s\.",
        str(monitor),
    )
    monitor.look()
    assert "looks: sizes 1, singular 1;" in str(monitor)
    assert "Not looked at" not in str(monitor)


def test_looks_that_fail_are_not_counted(trunk: ss.Trunk, monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = ss.Monitor(trunk, X[:8], 1, ["sizes", "stable_rank"], None)
    failing = dataclasses.replace(MEASURES["stable_rank"], measure=lambda look: 1 / 0)
    monkeypatch.setitem(MEASURES, "stable_rank", failing)
    with pytest.warns(UserWarning, match="stable_rank cannot be measured at step 1: division by zero"):
        monitor.step(1.0)
    assert "looks: sizes 1;" in str(monitor)


def test_without_a_budget_everything_is_looked_at_each_time() -> None:
    pace = simulated({"cheap": 0.1, "dear": 1.0}, budget=None, steps=100)
    assert [item.runs for item in pace.items.values()] == [10, 10]


@pytest.mark.slow
def test_the_share_of_a_real_training_is_printed() -> None:
    model = small_model(blocks=1)
    monitor = ss.Monitor(model, X[:8], every=1, measures=["sizes"], budget=0.5)
    for _ in range(300):
        model(X).sum().backward()
        monitor.step()
    assert 0 < monitor.share <= 0.5
    assert "of the time (budget 50 %)" in str(monitor)


@pytest.fixture(scope="module", name="trunk")
def _trunk() -> ss.Trunk:
    return ss.trace(small_model(blocks=1), X[:8])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": 0}, "every=0: expected a whole number"),
        ({"budget": 0.0}, "budget=0.0: expected a share"),
        ({"budget": 5}, "budget=5: expected a share"),
        ({"measures": ["size"]}, "expected some of sizes, .*, got size"),
        ({"measures": "sizes"}, "expected a list of names"),
        ({"measures": ["sharpness"]}, "sharpness cannot be measured: it needs the loss"),
        ({"measures": ["streams"]}, "no unit mixes several streams"),
        ({"loss": 3}, "expected loss= to be a function"),
        ({"writers": ["tensorbord"]}, "expected one of tensorboard, wandb, mlflow"),
        ({"writers": [3]}, "a function of the numbers and the step, got int"),
        ({"measures": 5}, "measures=5: expected a list of names"),
        ({"samples": 0}, "samples=0: expected a whole number"),
        ({"samples": "a"}, "samples='a': expected a whole number"),
        ({"seed": "x"}, "seed='x': expected a whole number"),
        ({"rate": "abc"}, "rate='abc': expected the rate as a number"),
        ({"rate": -0.1}, "rate=-0.1: expected a number from 0 on"),
        ({"rate": float("nan")}, "rate=nan: expected a number from 0 on"),
        ({"rate": 0.1, "optimizer": torch.optim.SGD([torch.zeros(1)])}, "expected optimizer= or rate=, got both"),
        ({"follow": "model"}, "follow='model': expected the sharded model"),
        ({"rate": lambda: None}, "expected the rate as a number, or a function"),
        ({"optimizer": 3}, "optimizer=3: expected a torch.optim.Optimizer"),
        ({"out": 5}, "out=5: expected the path of a run folder"),
        ({"on_alarm": 3}, "on_alarm=3: expected a function"),
        ({"targets": Y[:5]}, r"a label for each of the 8 samples of the output, got targets of shape \(5,\)"),
        ({"targets": [1] * 8}, "expected labels as a tensor"),
        ({"loss": lambda output: output}, "expected loss to return one number"),
        ({"loss": lambda output: output.nothing}, "the loss of the model's output at x cannot be computed"),
    ],
)
def test_wrong_options_are_refused(trunk: ss.Trunk, options: dict[str, object], message: str) -> None:
    with pytest.raises(ss.InputError, match=message):
        ss.Monitor(trunk, X[:8], **options)  # type: ignore[arg-type]


def test_a_batch_with_nan_is_refused(trunk: ss.Trunk) -> None:
    with pytest.raises(ss.InputError, match="x contains NaN"):
        ss.Monitor(trunk, X[:8] * float("nan"))


def test_a_model_without_units_is_refused() -> None:
    with pytest.raises(ss.InputError, match="no residual units to look at; name modules"):
        ss.Monitor(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()), X[:8])
    with pytest.raises(ss.InputError, match=r"expected a torch.nn.Module or a trunk"):
        ss.Monitor("resnet18", X[:8])  # type: ignore[arg-type]
