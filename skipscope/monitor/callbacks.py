"""The monitor inside of other training loops: Lightning's Trainer and that of transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from skipscope.errors import InputError

if TYPE_CHECKING:
    from skipscope.monitor.watching import Monitor


class Numbers:
    """What a trainer calls its steps, and what the monitor does: a second training counts on from the first."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor, self._before = monitor, 0

    def begin(self, step: int) -> None:
        """step: the trainer's last one, 0 where it begins."""
        if self._monitor.closed:
            self._monitor.reopen()
            self._before = self._monitor.steps.last - step

    def of(self, step: int) -> int:
        return self._before + step


def lightning_callback(monitor: Monitor) -> Any:
    try:
        from lightning.pytorch import Callback
    except ImportError:
        raise InputError("lightning is not installed; pip install lightning, or skipscope[logging]") from None

    numbers = Numbers(monitor)

    class MonitorCallback(Callback):
        """A step is one of the optimizer: batches whose gradients are accumulated count once."""

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            numbers.begin(trainer.global_step)
            if monitor.optimizer is None and trainer.optimizers:
                monitor.optimizer = trainer.optimizers[0]

        def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
            if getattr(optimizer, "optimizer", optimizer) is monitor.optimizer:
                monitor.before_step()

        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            step = numbers.of(trainer.global_step)
            if step == monitor.steps.last:
                return
            loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
            monitor.step(loss if isinstance(loss, Tensor) else None, step=step)

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

    numbers = Numbers(monitor)

    class MonitorCallback(TrainerCallback):
        """The Trainer does not tell a callback the loss of a step, but the mean since it last logged."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            numbers.begin(state.global_step)

        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            if monitor.optimizer is None and more.get("optimizer") is not None:
                optimizer = more["optimizer"]
                monitor.optimizer = getattr(optimizer, "optimizer", optimizer)  # of accelerate's wrapper its own
            monitor.before_step()

        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            monitor.step(step=numbers.of(state.global_step))

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **more: Any) -> None:
            if logs and "loss" in logs and numbers.of(state.global_step) == monitor.steps.last:
                monitor.steps.note_loss(float(logs["loss"]))

        def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            monitor.close()

    return MonitorCallback()
