"""The monitor as a callback of Lightning's Trainer, and Lightning's loggers as writers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import skipscope as ss
from skipscope.runs import load_run
from tests.monitor.loops import BATCH, X, Y, small_model

pytestmark = pytest.mark.integration
lightning = pytest.importorskip("lightning.pytorch")
from lightning.pytorch.loggers import CSVLogger  # noqa: E402


class Classifier(lightning.LightningModule):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.network = small_model()
        self.losses: list[float] = []

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x)

    def training_step(self, batch: Any, index: int) -> Tensor:
        x, y = batch
        loss = nn.functional.cross_entropy(self(x), y)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


def fitted(tmp_path: Path, watch: bool, **options: Any) -> tuple[Classifier, ss.Monitor | None]:
    model = Classifier()
    out = tmp_path / "run"
    monitor = ss.Monitor(model.network, X[:8], 2, targets=Y[:8], budget=None, out=out) if watch else None
    torch.manual_seed(0)
    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[monitor.lightning()] if monitor is not None else [],
        **options,
    )
    trainer.fit(model, DataLoader(TensorDataset(X, Y), batch_size=BATCH))
    return model, monitor


def test_a_training_is_the_same_and_its_folder_is_finished(tmp_path: Path) -> None:
    alone, _ = fitted(tmp_path, watch=False)
    model, monitor = fitted(tmp_path, watch=True)
    assert model.losses == alone.losses
    assert all(torch.equal(one, two) for one, two in zip(model.parameters(), alone.parameters(), strict=True))
    assert monitor is not None
    assert monitor.steps.last == 8
    run = load_run(tmp_path / "run")
    assert run.record["status"] == "finished"
    assert run.dataset("sizes")["step"].values.tolist() == [0, 2, 4, 6, 8]
    assert run.dataset("loss")["loss"].values.tolist() == pytest.approx(model.losses)
    assert run.dataset("sharpness")["limit"].values.tolist() == pytest.approx([2 * 1.9 / 0.1] * 4)


def test_batches_whose_gradients_are_accumulated_are_one_step(tmp_path: Path) -> None:
    _, monitor = fitted(tmp_path, watch=True, accumulate_grad_batches=2)
    assert monitor is not None
    assert monitor.steps.last == 4
    assert monitor["sizes"]["step"].values.tolist() == [0, 2, 4]


def test_an_error_of_the_training_ends_the_run_as_failed(tmp_path: Path) -> None:
    class Broken(Classifier):
        def training_step(self, batch: Any, index: int) -> Tensor:
            raise RuntimeError("no data")

    model = Broken()
    monitor = ss.Monitor(model.network, X[:8], 1, ["sizes"], None, out=tmp_path / "run")
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, callbacks=[monitor.lightning()]
    )
    with pytest.raises(RuntimeError, match="no data"):
        trainer.fit(model, DataLoader(TensorDataset(X, Y), batch_size=BATCH))
    assert load_run(tmp_path / "run").record["status"] == "failed"


def test_a_logger_of_lightning_is_a_writer(tmp_path: Path) -> None:
    logger = CSVLogger(str(tmp_path), name="log", flush_logs_every_n_steps=1)
    monitor = ss.Monitor(small_model(), X[:8], 1, ["sizes"], None, writers=[logger])
    monitor.step(1.0)
    logger.save()
    text = (Path(logger.log_dir) / "metrics.csv").read_text()
    assert "skipscope/sizes/state_rms/1" in text
