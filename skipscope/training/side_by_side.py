"""Networks of any kind, trained side by side: a step of one, a step of the next, and so on.

On a GPU each network has its own stream and its own captured step (`step.py`): kernels of several small networks then
run at the same time, where one alone would leave most of the device idle. On a CPU nothing is gained by it; there one
fleet is one progress, one checkpoint and one way to train many networks.

Every number is that of a training alone: batches, augmentation and what the network draws depend on its own seed and
the epoch, and the kernels are the same. Torch's default generators stand for one network at a time, each with a state
of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor

from skipscope.numerics import seed_of
from skipscope.training.batches import Batches
from skipscope.training.checkpoint import Run
from skipscope.training.epochs import Epochs
from skipscope.training.fleet_member import FleetMember
from skipscope.training.fleet_part import Made, StoppedError
from skipscope.training.history import History
from skipscope.training.loop import right_answers, training_step
from skipscope.training.processes import Processes
from skipscope.training.step import Update
from skipscope.training.surroundings import in_mode, laid_out, little_work, one_thread


class SideBySide:
    """Any networks of a fleet, on one device. A member that has diverged keeps its captured step to the end."""

    def __init__(self, members: Sequence[FleetMember], histories: Sequence[History]) -> None:
        self._all = [_Beside(member, history) for member, history in zip(members, histories, strict=True)]
        self._going = list(self._all)

    @property
    def size(self) -> int:
        return len(self._going)

    def next(self, epoch: int, steps: int, tested: bool, made: Made, stop: threading.Event) -> None:
        running = [(one, one.begin(epoch)) for one in self._going]
        for _ in range(steps):
            for one, its_steps in running:
                if stop.is_set():
                    raise StoppedError
                with one.alone():
                    next(its_steps)
                made(1)
        for one in self._going if tested else ():
            one.test()

    def close_epoch(self, epoch: int, steps: int, threads: int) -> None:
        size = self.size
        for one in self._going:
            one.close(size)
        self.begin_again()

    def release(self) -> None:
        for one in self._all:
            one.release()

    def tensors(self) -> dict[str, Tensor]:
        return {
            f"member {place}/{name}": tensor
            for place, one in enumerate(self._all)
            for name, tensor in one.run.tensors().items()
        }

    def begin_again(self) -> None:
        self._going = [one for one in self._all if one.run.history.diverged_at is None]


class _Beside:
    """One network among others on its device."""

    def __init__(self, member: FleetMember, history: History) -> None:
        self._member, self._device = member, member.device
        self._surroundings = ExitStack()
        self._surroundings.enter_context(in_mode(member.model, training=True))
        layout = self._surroundings.enter_context(laid_out(member.model))
        update = Update(member.model, member.settings, self._device)
        self.run = Run(member.model, update, history, member.hooks, {})
        dtype, together = next(member.model.parameters()).dtype, Processes(member.model)
        batches = Batches(member.split, member.settings, self._device, dtype, layout)
        self._epochs = Epochs(batches, self.run, training_step(member.model, update, together), together)
        self._right: Tensor | None = None
        self._one_thread = self._device.type == "cpu" and little_work(member.model, member.settings.batch)
        self._host = torch.Generator("cpu")
        on_gpu = self._device.type == "cuda"
        self._stream = torch.cuda.Stream(self._device) if on_gpu else None
        self._draws = torch.Generator(self._device) if on_gpu else None

    @contextmanager
    def alone(self) -> Iterator[None]:
        """On its stream, with its states of torch's generators, and with as many threads as alone."""
        with ExitStack() as inside:
            inside.enter_context(one_thread(self._one_thread))
            if self._stream is not None and self._draws is not None:
                inside.enter_context(torch.cuda.stream(self._stream))
                inside.enter_context(_draws_of(self._draws, self._device))
            before = torch.default_generator.get_state()
            torch.default_generator.set_state(self._host.get_state())
            try:
                yield
            finally:
                self._host.set_state(torch.default_generator.get_state())
                torch.default_generator.set_state(before)

    def begin(self, epoch: int) -> Iterator[int]:
        """The steps of an epoch, each to be made inside `alone`."""
        seed = seed_of("epoch", self.run.update.settings.seed, epoch)
        self._host.manual_seed(seed)
        if self._stream is not None and self._draws is not None:
            self._draws.manual_seed(seed)
            # Images, weights and what was measured between the epochs are on the stream of who called.
            self._stream.wait_stream(torch.cuda.current_stream(self._device))
        return self._epochs.steps()

    def test(self) -> None:
        """The number of right answers stays on the device until the epoch is closed."""
        if self._member.test is not None:
            everything = torch.arange(len(self._member.test), device="cpu")
            with self.alone():
                self._right = right_answers(self.run.model, self._member.test, everything)

    def close(self, share: int) -> None:
        with self.alone():  # on its own stream: it is waited for here
            self._epochs.close(share)
            right, self._right = None if self._right is None else int(self._right), None
        history, test = self.run.history, self._member.test
        known = right is not None and test is not None and history.diverged_at is None
        history.test_accuracy.append(right / len(test) if known else None)  # type: ignore[arg-type, operator]

    def release(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)  # nothing that a captured step uses may be freed before it ends
        self.run.update.forget_gradients()
        self._surroundings.close()


@contextmanager
def _draws_of(own: torch.Generator, device: torch.device) -> Iterator[None]:
    """The device's default generator with another's state, also for steps that are captured inside."""
    index = torch.cuda.current_device() if device.index is None else device.index
    default = torch.cuda.default_generators[index]
    before = default.graphsafe_get_state()
    default.graphsafe_set_state(own)
    try:
        yield
    finally:
        default.graphsafe_set_state(before)
