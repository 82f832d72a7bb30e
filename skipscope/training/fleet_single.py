"""A network of a fleet that is computed by itself: a step of one, a step of the next, and so on.

On a GPU each has its own stream and its own captured step (`step.py`): kernels of several small networks then run at
the same time, where one alone would leave most of the device idle. On a CPU nothing is gained by it; there one fleet is
one progress, one checkpoint and one way to train many networks.

Every number is that of a training alone: batches, augmentation and what the network draws depend on its own seed and
the epoch, and the kernels are the same. Torch's default generators stand for one network at a time, each with a state
of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor

from skipscope.cores import threads_of
from skipscope.numerics import seed_of
from skipscope.training.batches import Batches
from skipscope.training.checkpoint import Run
from skipscope.training.epochs import Epochs
from skipscope.training.fleet_member import FleetMember
from skipscope.training.fleet_part import OwnStream
from skipscope.training.history import History
from skipscope.training.loop import right_answers, training_step
from skipscope.training.processes import Processes
from skipscope.training.step import Update, trained_weights
from skipscope.training.surroundings import in_mode, laid_out, little_work


class FleetSingle:
    """It keeps its captured step to the end, also when it has diverged."""

    def __init__(self, member: FleetMember, history: History, number: int, threads: int) -> None:
        """number: of the member in its fleet. threads: of the CPU, that a training alone would have."""
        self.about = f"network {number}"
        self._member, self._device = member, member.device
        self._surroundings = ExitStack()
        self._surroundings.enter_context(in_mode(member.model, training=True))
        layout = self._surroundings.enter_context(laid_out(member.model))
        update = Update(trained_weights(member.model), member.settings, self._device)
        self._run = Run(member.model, update, history, member.hooks, {})
        dtype, together = next(member.model.parameters()).dtype, Processes(member.model)
        batches = Batches(member.split, member.settings, self._device, dtype, layout)
        self._epochs = Epochs(batches, self._run, training_step(member.model, update, together), together)
        self._right: Tensor | None = None
        one = self._device.type == "cpu" and little_work(member.model, member.settings.batch)
        self._threads = 1 if one else threads
        self._stream = OwnStream(self._device)
        own = [self._device] if self._device.type == "cuda" else []
        self._draws = [torch.Generator(device) for device in (torch.device("cpu"), *own)]

    @property
    def size(self) -> int:
        return 1 if self._run.history.diverged_at is None else 0

    @contextmanager
    def inside(self) -> Iterator[None]:
        """On its stream, with its states of torch's generators, and with as many threads as alone."""
        with ExitStack() as inside:
            inside.enter_context(threads_of(self._threads))
            inside.enter_context(self._stream.inside())
            for own in self._draws:
                inside.enter_context(_device_draws(own) if own.device.type == "cuda" else _host_draws(own))
            yield

    def steps(self, epoch: int) -> Iterator[int]:
        for own in self._draws:
            own.manual_seed(seed_of("epoch", self._member.settings.seed, epoch))
        self._stream.follow()
        return (1 for _ in self._epochs.steps())

    def test(self) -> None:
        if self._member.test is not None:
            everything = torch.arange(len(self._member.test), device="cpu")
            self._right = right_answers(self._run.model, self._member.test, everything)

    def close_epoch(self, share: int) -> None:
        with self.inside():
            self._epochs.close(share)
            right, self._right = None if self._right is None else int(self._right), None
        history, test = self._run.history, self._member.test
        known = right is not None and test is not None and history.diverged_at is None
        history.test_accuracy.append(right / len(test) if known else None)  # type: ignore[arg-type, operator]

    def release(self) -> None:
        self._stream.finish()
        self._run.update.forget_gradients()
        self._surroundings.close()

    def tensors(self) -> dict[str, Tensor]:
        return self._run.tensors()

    def begin_again(self) -> None:
        """It has nothing to build."""


@contextmanager
def _host_draws(own: torch.Generator) -> Iterator[None]:
    """Torch's default generator of the CPU with another's state."""
    default = torch.default_generator
    before = default.get_state()
    default.set_state(own.get_state())
    try:
        yield
    finally:
        own.set_state(default.get_state())
        default.set_state(before)


@contextmanager
def _device_draws(own: torch.Generator) -> Iterator[None]:
    """The GPU's default generator with another's state, also for steps that are captured inside."""
    index = torch.cuda.current_device() if own.device.index is None else own.device.index
    default = torch.cuda.default_generators[index]
    before = default.graphsafe_get_state()
    default.graphsafe_set_state(own)
    try:
        yield
    finally:
        own.graphsafe_set_state(default.graphsafe_get_state())  # another one where a capture failed
        default.graphsafe_set_state(before)
