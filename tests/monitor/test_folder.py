"""The run folder of a monitor: whole at every moment, and gone on with."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import pytest
import torch

import skipscope as ss
from skipscope.runs import load_run
from tests.monitor.loops import X, Y, small_model


def monitor(out: Path, **options: object) -> ss.Monitor:
    more = {"every": 2, "measures": ["sizes"], "budget": None, "targets": Y[:8], **options}
    return ss.Monitor(small_model(blocks=2), X[:8], out=out, **more)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_finished_training_has_one_dataset_per_measure_along_the_steps(tmp_path: Path) -> None:
    with monitor(tmp_path / "run", measures=["sizes", "stable_rank"]) as watch:
        for step in range(4):
            watch.step(1.0 / (step + 1))
    run = load_run(tmp_path / "run")
    assert run.record["status"] == "finished"
    assert run.record["what"] == "monitor"
    assert run.dataset("sizes")["step"].values.tolist() == [0, 2, 4]
    assert run.dataset("stable_rank")["step"].values.tolist() == [2, 4]
    assert run.dataset("loss")["loss"].values.tolist() == [1, 1 / 2, 1 / 3, 1 / 4]
    assert run.dataset("sizes")["state_rms"].dims == ("step", "unit")
    assert any("of the time (no budget)" in note for note in run.record["notes"])


@pytest.mark.slow
def test_an_error_of_the_training_is_in_the_record(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="out of data"), monitor(tmp_path / "run"):
        raise RuntimeError("out of data")
    record = load_run(tmp_path / "run").record
    assert record["status"] == "failed"
    assert "out of data" in record["error"]


def test_a_training_goes_on_where_it_was(tmp_path: Path) -> None:
    with monitor(tmp_path / "run") as watch:
        for _ in range(6):
            watch.step(1.0)
    with pytest.raises(ss.InputError, match="holds a run of monitor"):
        monitor(tmp_path / "run")
    with monitor(tmp_path / "run", former="resume") as watch:
        for step in range(5, 9):  # the checkpoint was that of the fourth step
            watch.step(2.0, step=step)
    run = load_run(tmp_path / "run")
    assert run.dataset("loss")["step"].values.tolist() == list(range(1, 9))
    assert run.dataset("loss")["loss"].values.tolist() == [1.0] * 4 + [2.0] * 4
    assert run.dataset("sizes")["step"].values.tolist() == [0, 2, 4, 6, 8]
    with pytest.raises(ss.InputError, match="it is closed"):
        watch.step(1.0)


@pytest.mark.slow
def test_alarms_are_kept(tmp_path: Path) -> None:
    rang: list[ss.Alarm] = []
    with monitor(tmp_path / "run", on_alarm=rang.append) as watch:
        for _ in range(2):
            watch.step(float("nan"))
    assert [alarm.name for alarm in rang] == ["not finite"]
    assert "The loss is not finite" in str(rang[0])
    assert watch.exit_code == 1
    assert load_run(tmp_path / "run").dataset("alarms")["step"].values.tolist() == [1]
    with monitor(tmp_path / "run", former="resume", on_alarm=rang.append) as again:
        for step in (3, 4):
            again.step(float("nan"), step=step)
    assert again.alarms == watch.alarms  # it rings once
    assert len(rang) == 1


def test_another_batch_is_not_gone_on_with_and_another_budget_is(tmp_path: Path) -> None:
    """One curve would mix two batches."""
    with monitor(tmp_path / "run") as watch:
        watch.step(1.0)
    with pytest.raises(ss.InputError, match="cannot be resumed: batch was"):
        monitor(tmp_path / "run", former="resume", targets=Y[1:9])
    with monitor(tmp_path / "run", former="resume", every=1, budget=0.5) as again:
        again.step(1.0)
    assert "Looks are at least 1 step apart; budget: 0.5." in load_run(tmp_path / "run").record["notes"]


PROGRAM = """
import os, signal, torch, skipscope as ss
from tests.monitor.loops import X, Y, small_model
model = small_model(blocks=1)
monitor = ss.Monitor(model, X[:8], every=1, measures=["sizes"], budget=None, out="run")
for step in range(5):
    monitor.step(1.0)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_the_folder_of_a_killed_training_is_readable(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(PROGRAM)], cwd=tmp_path, env=_environment(root))
    assert run.returncode == -signal.SIGKILL
    saved = load_run(tmp_path / "run")
    assert saved.record["status"] == "running"
    assert saved.dataset("sizes")["step"].values.tolist() == [0, 1, 2, 3, 4, 5]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with ss.Monitor(
            small_model(blocks=1), X[:8], 1, ["sizes"], None, out=tmp_path / "run", former="resume"
        ) as again:
            again.step(1.0)
    assert load_run(tmp_path / "run").dataset("sizes")["step"].values.tolist() == [0, 1, 2, 3, 4, 5, 6]


def _environment(root: Path) -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}


def test_states_that_are_not_finite_ring_at_once(tmp_path: Path) -> None:
    model = small_model(blocks=1)
    watch = ss.Monitor(model, X[:8], every=1, budget=None, targets=Y[:8], rate=0.1)
    with torch.no_grad():
        model[0].weight.fill_(float("inf"))
    watch.step(1.0)
    assert [alarm.name for alarm in watch.alarms] == ["not finite"]
    assert [*watch.left_out] == ["alignment"]  # for want of a neighbour; what cannot be measured now may be later


def test_a_monitor_is_opened_again(tmp_path: Path) -> None:
    """As the trainers' callbacks do where a model is fitted again."""
    watch = monitor(tmp_path / "run")
    watch.reopen()  # it is open
    for _ in range(2):
        watch.step(1.0)
    watch.close()
    watch.reopen()
    assert load_run(tmp_path / "run").record["status"] == "running"
    for _ in range(2):
        watch.step(2.0)
    watch.close()
    run = load_run(tmp_path / "run")
    assert run.record["status"] == "finished"
    assert run.dataset("sizes")["step"].values.tolist() == [0, 2, 4]
    assert run.dataset("loss")["loss"].values.tolist() == [1, 1, 2, 2]
    assert sum("of the time" in note for note in run.record["notes"]) == 2  # of both trainings


def test_a_folder_that_cannot_be_opened_again_does_not_end_the_training(tmp_path: Path) -> None:
    watch = monitor(tmp_path / "run")
    watch.close()
    (tmp_path / "run" / "run.json").write_text("{}")
    with pytest.warns(UserWarning, match="cannot go on in its run folder"):
        watch.reopen()
    for _ in range(2):
        watch.step(1.0)
    assert watch["sizes"]["step"].values.tolist() == [0, 2]


def test_a_step_has_the_rate_that_it_was_made_with(tmp_path: Path) -> None:
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    with pytest.warns(UserWarning, match="none of the model's weights"):
        watch = monitor(tmp_path / "run", optimizer=optimizer)
    watch.before_step()
    optimizer.param_groups[0]["lr"] = 0.0  # the schedule's next one
    watch.step(1.0)
    optimizer.param_groups[0]["lr"] = 0.05
    watch.before_step()
    watch.step(1.0)
    assert watch["loss"]["rate"].values.tolist() == [0.1, 0.05]
    watch.close()
