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


def fit(model: Classifier, callback: Any, epochs: int = 1, trainer: Any = None) -> Any:
    """trainer: that has fitted before; a new one by default."""
    trainer = trainer or lightning.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[callback],
    )
    trainer.fit(model, DataLoader(TensorDataset(X, Y), batch_size=BATCH))
    return trainer


@pytest.mark.parametrize("same_callback", [True, False])
def test_a_second_training_goes_on_in_the_same_run(tmp_path: Path, same_callback: bool) -> None:
    model = Classifier()
    monitor = ss.Monitor(model.network, X[:8], 2, ["sizes"], None, out=tmp_path / "run")
    callback = monitor.lightning()
    fit(model, callback)
    first = monitor.optimizer
    fit(model, callback if same_callback else monitor.lightning())  # with a new trainer, whose steps begin at 1
    assert monitor.optimizer is not first
    assert monitor.steps.last == 8
    run = load_run(tmp_path / "run")
    assert run.record["status"] == "finished"
    assert run.dataset("sizes")["step"].values.tolist() == [0, 2, 4, 6, 8]
    assert run.dataset("loss")["step"].values.tolist() == [*range(1, 9)]
    assert run.dataset("loss")["loss"].values.tolist() == pytest.approx(model.losses)


def test_a_trainer_that_fits_again_counts_on(tmp_path: Path) -> None:
    model = Classifier()
    monitor = ss.Monitor(model.network, X[:8], 2, ["sizes"], None, out=tmp_path / "run")
    trainer = fit(model, monitor.lightning())
    trainer.fit_loop.max_epochs = 2
    fit(model, None, trainer=trainer)
    assert monitor.steps.last == 8
    assert load_run(tmp_path / "run").dataset("sizes")["step"].values.tolist() == [0, 2, 4, 6, 8]


def test_the_rate_of_a_step_is_the_one_that_it_was_made_with(tmp_path: Path) -> None:
    """The trainer sets the next one before it tells of the step."""

    class Scheduled(Classifier):
        def configure_optimizers(self) -> Any:
            optimizer = super().configure_optimizers()
            schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=4)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    model = Scheduled()
    monitor = ss.Monitor(model.network, X[:8], 2, ["sizes", "sharpness"], None, targets=Y[:8])
    fit(model, monitor.lightning())
    assert monitor["loss"]["rate"].values.tolist() == pytest.approx([0.1, 0.075, 0.05, 0.025])
    assert monitor["sharpness"]["limit"].values.tolist() == pytest.approx([3.8 / 0.075, 3.8 / 0.025])


def test_a_logger_of_lightning_is_a_writer(tmp_path: Path) -> None:
    logger = CSVLogger(str(tmp_path), name="log", flush_logs_every_n_steps=1)
    monitor = ss.Monitor(small_model(), X[:8], 1, ["sizes"], None, writers=[logger])
    monitor.step(1.0)
    logger.save()
    text = (Path(logger.log_dir) / "metrics.csv").read_text()
    assert "skipscope/sizes/state_rms/1" in text
