"""Numbers of looks in TensorBoard, Weights & Biases (offline) and MLflow, through their own clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import skipscope as ss
from tests.monitor.loops import X, small_model

pytestmark = pytest.mark.integration
TAG = "skipscope/sizes/state_rms/2"


def watched(**options: Any) -> ss.Monitor:
    monitor = ss.Monitor(small_model(), X[:8], 1, ["sizes"], None, **options)
    for _ in range(3):
        monitor.step(1.0)
    monitor.close()
    return monitor


def expected(monitor: ss.Monitor) -> list[float]:
    return [float(value) for value in monitor["sizes"]["state_rms"].sel(unit="2").values[1:]]


def test_tensorboard_has_every_look(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    monitor = watched(writers="tensorboard", out=tmp_path / "run")
    events = accumulator.EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    found = events.Scalars(TAG)
    assert [one.step for one in found] == [1, 2, 3]
    assert [one.value for one in found] == pytest.approx(expected(monitor), rel=1e-6)
    assert "skipscope/alarms" in events.Tags()["scalars"]


def test_a_summary_writer_is_a_writer(tmp_path: Path) -> None:
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    with tensorboard.SummaryWriter(str(tmp_path)) as writer:
        watched(writers=[writer])
    assert list(tmp_path.glob("events.*"))


@pytest.fixture(name="wandb")
def _wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    wandb = pytest.importorskip("wandb")
    for name, value in (("WANDB_MODE", "offline"), ("WANDB_SILENT", "true"), ("WANDB_DIR", str(tmp_path))):
        monkeypatch.setenv(name, value)
    yield wandb
    wandb.finish()


def test_weights_and_biases_has_every_look_offline(wandb: Any, tmp_path: Path) -> None:
    with pytest.raises(ss.InputError, match=r"no run of wandb is open; call wandb.init\(\)"):
        watched(writers="wandb")
    run = wandb.init(project="skipscope", dir=str(tmp_path))
    run.log({"mine": 1.0})  # the training has a counter of its own
    monitor = watched(writers="wandb")
    assert run.summary[TAG] == pytest.approx(expected(monitor)[-1])
    assert run.summary["skipscope/step"] == 3
    run.finish()
    assert list(tmp_path.rglob("*.wandb"))


def test_mlflow_has_every_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'mlflow.db'}")
    monkeypatch.chdir(tmp_path)
    with mlflow.start_run() as run:
        monitor = watched(writers="mlflow")
    history = mlflow.tracking.MlflowClient().get_metric_history(run.info.run_id, TAG)
    assert [one.step for one in history] == [1, 2, 3]
    assert [one.value for one in history] == pytest.approx(expected(monitor))


def test_writers_draw_no_random_numbers_of_the_training(wandb: Any, tmp_path: Path) -> None:
    import random

    run = wandb.init(project="skipscope", dir=str(tmp_path))
    monitor = ss.Monitor(small_model(), X[:8], 1, ["sizes"], None, writers=[run])
    before = torch.get_rng_state(), random.getstate()
    monitor.step(1.0)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == random.getstate()


def test_a_writer_that_fails_does_not_end_the_training() -> None:
    def broken(numbers: dict[str, float], step: int) -> None:
        raise ConnectionError("no route to host")

    with pytest.warns(UserWarning, match="gives a writer up at step 1: no route to host"):
        watched(writers=[broken])
