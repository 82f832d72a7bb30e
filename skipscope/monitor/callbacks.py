"""The monitor inside of other training loops: Lightning's Trainer and that of transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from skipscope.errors import InputError

if TYPE_CHECKING:
    from skipscope.monitor.watching import Monitor


def lightning_callback(monitor: Monitor) -> Any:
    try:
        from lightning.pytorch import Callback
    except ImportError:
        raise InputError("lightning is not installed; pip install lightning, or skipscope[logging]") from None

    class MonitorCallback(Callback):
        """A step is one of the optimizer: batches whose gradients are accumulated count once."""

        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            if trainer.global_step == monitor.steps.last:
                return
            if monitor.optimizer is None and trainer.optimizers:
                monitor.optimizer = trainer.optimizers[0]
            loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
            monitor.step(loss if isinstance(loss, Tensor) else None, step=trainer.global_step)

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            monitor.close()

        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            monitor.close(exception)

    return MonitorCallback()


def huggingface_callback(monitor: Monitor) -> Any:
    try:
        from transformers import TrainerCallback
    except ImportError:
        raise InputError("transformers is not installed; pip install transformers, or skipscope[models]") from None

    class MonitorCallback(TrainerCallback):
        """The Trainer does not tell a callback the loss of a step, but the mean since it last logged."""

        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            if monitor.optimizer is None and more.get("optimizer") is not None:
                optimizer = more["optimizer"]
                monitor.optimizer = getattr(optimizer, "optimizer", optimizer)  # of accelerate's wrapper its own
            monitor.step(step=state.global_step)

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **more: Any) -> None:
            if logs and "loss" in logs and state.global_step == monitor.steps.last:
                monitor.steps.note_loss(float(logs["loss"]))

        def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            monitor.close()

    return MonitorCallback()
