"""Alarms: from looks that were written for them to sentences; and from trainings that fail."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
import xarray
from torch import nn

import skipscope as ss
from skipscope.findings import findings_of
from skipscope.monitor.alarms import Judge, from_dataset, to_dataset
from skipscope.monitor.recording import Recorded
from skipscope.monitor.steps import Steps
from skipscope.runs import load_run
from tests.monitor.loops import X, Y, small_model

UNITS = ["one", "two", "three"]


def look(settled: bool = True, finite: bool = True, **changed: Any) -> xarray.Dataset:
    values = {
        **dict.fromkeys(("state_rms", "gradient_rms", "branch_spread"), [1.0] * 3),
        "state_spread": [0.5] * 3,
        **changed,
    }
    data: dict[str, Any] = {key: ("unit", numpy.array(value, float)) for key, value in values.items()}
    return xarray.Dataset({**data, "settled": settled, "finite": finite}, {"unit": UNITS})


def sharp(value: float, limit: float) -> xarray.Dataset:
    return xarray.Dataset({"value": value, "limit": limit, "as_trained": True})


def rung(looks: list[xarray.Dataset], part: str = "sizes") -> list[ss.Alarm]:
    judge, recorded = Judge(), {part: Recorded(part)}
    found = []
    for step, one in enumerate(looks):
        recorded[part].add(10 * step, one)
        found += judge.judged(recorded, 10 * step)
    return found


def test_a_rate_that_is_infinite_can_bear_nothing() -> None:
    sharpness = Recorded("sharpness")
    sharpness.add(0, sharp(3.0, 2.0))
    (alarm,) = Judge().at_rate({"sharpness": sharpness}, 1, 0.0)
    assert "inf times what the rate can bear" in str(alarm)


def test_alarms_of_steps_that_are_counted_again_are_forgotten() -> None:
    judge = Judge()
    for step in (3, 8):
        judge.loss_not_finite(step, math.nan)
    judge.forget(4)
    assert [alarm.step for alarm in judge.rung.values()] == [3]
    judge.forget(3)
    assert not judge.rung


def test_a_look_at_another_model_is_refused() -> None:
    recorded = Recorded("sizes")
    recorded.add(0, look())
    with pytest.raises(ss.InputError, match="it had 3 of unit, and has 2"):
        recorded.add(10, look().isel(unit=[0, 1]))
    with pytest.raises(ss.InputError, match="it had 3 of unit, and has 3"):
        recorded.add(10, look().assign_coords(unit=["one", "two", "four"]))
    assert recorded.steps == [0]
    assert recorded.to_dataset().sizes["step"] == 1


def test_nothing_rings_where_nothing_happens() -> None:
    grows = [look(state_rms=[1.0 + step / 4] * 3, branch_spread=[0.5] * 3) for step in range(20)]
    assert rung(grows) == []


@pytest.mark.parametrize(
    ("changed", "name", "words"),
    [
        ({"state_rms": [1, 512, 1]}, "states grow", "what enters two is 512 times as large"),
        ({"gradient_rms": [1e-6, 1e-3, 1]}, "gradients vanish", "at one, the first unit, they are 1.0e-06 times"),
        ({"branch_spread": [1, 1, 0]}, "a unit died", "The unit three died"),
        ({"state_spread": [0.5, 0.5, 1e-4]}, "samples become alike", "at three samples differ by 1.0e-04 of the size"),
    ],
)
def test_each_rule_rings_at_the_second_look_and_once(changed: dict[str, Any], name: str, words: str) -> None:
    found = rung([look()] * 4 + [look(**changed)] * 4)
    assert [alarm.name for alarm in found] == [name]
    assert found[0].step == 50
    assert words in str(found[0])
    assert "To try: " in str(found[0])


def test_a_single_look_and_looks_before_norms_have_settled_do_not_ring() -> None:
    wild = {"state_rms": [1.0, 1e5, 1.0]}
    assert rung([look()] * 4 + [look(**wild), look(), look(**wild), look()]) == []
    assert rung([look()] * 4 + [look(settled=False, **wild)] * 4) == []


def test_a_slow_growth_is_no_alarm_however_far_it_goes() -> None:
    assert rung([look(state_rms=[1.0 + 3 * step] * 3) for step in range(100)]) == []


def test_a_branch_that_starts_at_zero_has_not_died() -> None:
    assert rung([look(branch_spread=[0.0] * 3)] * 3 + [look(branch_spread=[0.1] * 3)] * 3) == []


def test_numbers_that_are_not_finite_ring_at_once() -> None:
    (alarm,) = rung([look(), look(finite=False, state_rms=[math.nan] * 3), look(finite=False)])
    assert (alarm.name, alarm.step) == ("not finite", 10)


def test_sharpness_rings_at_one_look_and_where_the_rate_rises() -> None:
    assert [alarm.step for alarm in rung([sharp(10, 20), sharp(80, 20)], "sharpness")] == [10]
    assert rung([sharp(80, math.nan)], "sharpness") == []  # an optimizer without a limit
    judge, recorded = Judge(), {"sharpness": Recorded("sharpness")}
    assert judge.at_rate({}, 3, 20.0) == []
    recorded["sharpness"].add(0, sharp(10, 20))
    assert judge.at_rate(recorded, 4, 20.0) == []
    (alarm,) = judge.at_rate(recorded, 5, 2.0)
    assert (alarm.name, alarm.step) == ("too sharp for the rate", 5)
    assert "is 5 times what the rate can bear" in alarm.finding.sentence


def test_alarms_come_back_from_their_dataset_and_are_findings_of_a_report() -> None:
    found = rung([look()] * 4 + [look(state_rms=[1, 1, 1e6])] * 2)
    dataset = to_dataset(found, network="mine")
    (again,) = from_dataset(dataset)
    assert str(again) == str(found[0])
    (finding,) = findings_of({"alarms": dataset})
    assert finding.severity == "problem"
    assert finding.sentence.startswith("mine: at step 50 an alarm rang. States grow")
    assert finding.unit == "three"


def test_a_rate_that_is_raised_too_far_rings_before_the_loss_rises() -> None:
    model = small_model(dropout=0.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    monitor = ss.Monitor(model, X, 10, ["sizes", "sharpness"], None, targets=Y, optimizer=optimizer)
    losses = []
    for step in range(1, 16):
        if step == 15:
            optimizer.param_groups[0]["lr"] = 300.0
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(X), Y)
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
        monitor.step(loss)
        if step == 15:
            assert [alarm.name for alarm in monitor.alarms] == ["too sharp for the rate"]
            assert max(losses) == losses[0]
    assert monitor.exit_code == 1


def loss_look(loss: float, **changed: Any) -> xarray.Dataset:
    return look(**changed).assign(loss=loss)


def test_what_follows_from_an_explosion_says_so() -> None:
    """Skip connections do not help where the rate is too large."""
    vanishing = {"gradient_rms": [1e-6, 1, 1]}
    (alone,) = rung([loss_look(2.0), loss_look(2.0, **vanishing), loss_look(2.0, **vanishing)])
    assert "skip connections" in alone.finding.remedies
    assert "follows" not in alone.finding.sentence
    (after,) = rung([loss_look(2.0), loss_look(50.0, **vanishing), loss_look(5e5, **vanishing)])
    assert after.name == "gradients vanish"
    assert after.finding.sentence.endswith("It probably follows from the loss, which was 2 and is 500000.")
    assert after.finding.remedies == ("a smaller rate",)
    broken = loss_look(2.0, finite=False)
    first, second = rung([loss_look(2.0), broken, loss_look(2.0, **vanishing), loss_look(2.0, **vanishing)])
    assert (first.name, second.name) == ("not finite", "gradients vanish")
    assert second.finding.sentence.endswith("It probably follows from what rang at step 10 (not finite).")


@pytest.fixture(scope="module", name="trunk")
def _trunk() -> ss.Trunk:
    return ss.trace(small_model(blocks=1), X[:8])


def test_a_loss_that_is_not_finite_rings_at_its_step(trunk: ss.Trunk) -> None:
    """Most loops end there, before the next look."""
    monitor = ss.Monitor(trunk, X[:8], 100, ["sizes"], None)
    for loss in (1.0, 2.0, math.nan, 1.0, math.inf):
        monitor.step(loss)
    assert [(alarm.step, alarm.name) for alarm in monitor.alarms] == [(3, "not finite")]
    assert monitor.exit_code == 1


def test_losses_that_a_gpu_holds_are_read_at_looks_and_at_the_end() -> None:
    steps = Steps()
    for loss in (1.0, 2.0):
        steps.count(loss, None, 0.1)
    steps.losses += [torch.tensor(3.0), torch.tensor(math.inf), torch.tensor(math.nan)]
    steps.numbers += [3, 4, 5]
    assert steps.first_not_finite(waiting=False) is None
    assert steps.first_not_finite(waiting=True) == (4, math.inf)
    assert math.isnan(steps.first_not_finite(waiting=True)[1])  # type: ignore[index]
    assert steps.first_not_finite(waiting=True) is None


def test_the_last_losses_are_judged_when_the_monitor_is_closed(trunk: ss.Trunk, tmp_path: Path) -> None:
    told: list[ss.Alarm] = []
    monitor = ss.Monitor(trunk, X[:8], 100, ["sizes"], None, out=tmp_path / "run", on_alarm=told.append)
    monitor.step(1.0)
    monitor.steps.losses[-1] = torch.tensor(math.nan)  # as a GPU would hold it
    monitor.steps._judged = 0
    monitor.close()
    assert [alarm.name for alarm in told] == ["not finite"]
    assert load_run(tmp_path / "run").dataset("alarms")["step"].values.tolist() == [1]


def test_an_alarm_between_looks_is_kept_before_anybody_is_told(tmp_path: Path) -> None:
    class StoppedError(Exception):
        pass

    def stop(alarm: ss.Alarm) -> None:
        raise StoppedError

    model = small_model(blocks=1, dropout=0.0)
    optimizer = torch.optim.SGD(
        [{"params": model[0].parameters()}, {"params": model[1:].parameters()}], lr=1e-3, momentum=0.9
    )
    options: dict[str, Any] = {"targets": Y[:8], "optimizer": optimizer, "out": tmp_path / "run", "on_alarm": stop}
    monitor = ss.Monitor(model, X[:8], 5, ["sharpness"], None, **options)
    for _ in range(6):
        monitor.step(1.0)
    optimizer.param_groups[1]["lr"] = 1e6  # of a group that is not the first
    with pytest.raises(StoppedError):
        monitor.step(1.0)
    saved = load_run(tmp_path / "run")
    assert saved.record["status"] == "running"
    assert saved.dataset("alarms")["name"].values.tolist() == ["too sharp for the rate"]
    assert saved.dataset("alarms")["step"].values.tolist() == [7]


def test_what_a_callback_raises_ends_the_training() -> None:
    class StoppedError(Exception):
        pass

    def stop(alarm: ss.Alarm) -> None:
        raise StoppedError(alarm.name)

    monitor = ss.Monitor(small_model(blocks=1), X[:8], 1, ["sizes"], None, on_alarm=stop)
    with pytest.raises(StoppedError, match="not finite"):
        monitor.step(float("inf"))
