"""A fleet: many fully connected networks of one architecture, trained at the same time on a CPU.

    histories = train_fleet([FleetMember(model, split, settings, test), ...])

Each step of a member is what it would be if it was trained alone, to rounding: it has its own initial weights, seed,
rate and schedule, decay, clip, augmentation, labels and factors of its blocks, and sees its batches in its own order.
What members have in common is in `stacked_step.COMMON`. On a CPU a small network's step is mostly overhead, which a
fleet has once for all of its members (`stacked.py`).

The members are split into stacks by their number alone, never by the machine. Stacks do not know of each other and
are trained by as many threads as torch has, so that the numbers are the same to the last bit on any number of cores
when the same fleet is trained again, stopped or not.

A member whose loss is not finite leaves its stack at the end of the epoch, as its training alone would end there; the
others go on.
"""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import torch

from skipscope.errors import InputError
from skipscope.progress import Progress
from skipscope.training.checkpoint import Keeper, State
from skipscope.training.fleet_checkpoint import FleetState
from skipscope.training.fleet_member import FleetMember, fleet_obstacle
from skipscope.training.fleet_stack import FleetStack, StoppedError
from skipscope.training.history import History
from skipscope.training.hooks import start_anew
from skipscope.training.surroundings import one_thread

LARGEST_STACK = 32  # members: more gain little, and their states leave the cache
SPLIT_FROM = 8  # members, from which on there are two stacks, for two cores


def train_fleet(
    members: Sequence[FleetMember],
    *,
    test_every: int = 1,
    progress: Progress | None = None,
    checkpoint: Path | str | None = None,
    save_every: float = 20.0,
    threads: int | None = None,
) -> list[History]:
    """Trains all members; one history for each, in their order. Options are those of `train`.

    progress: counts the steps of all members together. threads: how many stacks are trained at a time; None: as many
    as torch has threads. The seconds of a history are the member's share of the fleet's.
    """
    if obstacle := fleet_obstacle(members):
        raise InputError(f"a fleet: {obstacle}")
    settings, samples = members[0].settings, len(members[0].split)
    if samples < settings.batch or test_every < 1 or (threads is not None and threads < 1):
        raise InputError(
            f"a fleet: expected at least one batch of {settings.batch} images, test_every and threads of at least 1, "
            f"got {samples} images, {test_every} and {threads}"
        )
    for member in members:
        start_anew(member.hooks, settings.epochs)
    fleet = _Fleet(members, test_every, progress, threads or torch.get_num_threads())
    path = None if checkpoint is None else Path(checkpoint)
    state = FleetState(members, fleet.histories, fleet.stacks, test_every) if path is not None else None
    keeper = Keeper(path, save_every)
    with one_thread():
        try:
            if state is not None and path is not None and path.exists():
                state.take(State.read(path), path)
            if fleet.epoch == 0:
                fleet.measure()
                if state is not None:
                    keeper.offer(state)
            while fleet.epoch < settings.epochs and fleet.going:
                fleet.next()
                fleet.measure()
                if state is not None:
                    keeper.offer(state)
        finally:
            for stack in fleet.stacks:
                stack.release()
            keeper.flush()
    return fleet.histories


def stack_sizes(members: int) -> list[int]:
    """Into how many stacks, of which sizes, a fleet is split; it depends on the number of members alone."""
    count = max(math.ceil(members / LARGEST_STACK), 2 if members >= SPLIT_FROM else 1)
    return [members // count + (number < members % count) for number in range(count)]


class _Fleet:
    """Stacks of members, and the threads that train them."""

    def __init__(
        self, members: Sequence[FleetMember], test_every: int, progress: Progress | None, threads: int
    ) -> None:
        self.members, self._test_every, self._progress, self._threads = members, test_every, progress, threads
        self.histories = [History() for _ in members]
        self._steps = len(members[0].split) // members[0].settings.batch
        self._epochs = members[0].settings.epochs
        self.stacks: list[FleetStack] = []
        begin = 0
        for size in stack_sizes(len(members)):
            part = slice(begin, begin + size)
            self.stacks.append(FleetStack(members[part], self.histories[part]))
            begin += size

    @property
    def epoch(self) -> int:
        """Epochs done by those that are still trained, or by the last that was."""
        return max(history.epochs for history in self.histories)

    @property
    def going(self) -> list[FleetStack]:
        return [stack for stack in self.stacks if stack.size]

    def next(self) -> None:
        """One epoch of all members that have not diverged."""
        epoch, stacks = self.epoch, self.going
        tested = (epoch + 1) % self._test_every == 0 or epoch + 1 == self._epochs
        count, workers = sum(stack.size for stack in stacks), min(self._threads, len(stacks))
        steps: queue.SimpleQueue[int | None] = queue.SimpleQueue()  # members that made a step; None: a stack is done
        stop = threading.Event()

        def work(stack: FleetStack) -> None:
            torch.set_num_threads(1)  # each thread of Python has its own number
            try:
                stack.next(epoch, self._steps, tested, steps.put, stop)
            except BaseException:
                stop.set()
                raise
            finally:
                steps.put(None)

        with ThreadPoolExecutor(workers, "skipscope-fleet") as pool:
            futures = [pool.submit(work, stack) for stack in stacks]
            try:
                self._count(epoch, count, len(stacks), steps)
            except BaseException:  # of the progress, or of a hand on the keyboard
                stop.set()
                raise
            finally:
                wait(futures)
        failed = [error for future in futures if (error := future.exception()) is not None]
        for error in sorted(failed, key=lambda error: isinstance(error, StoppedError)):
            raise error
        for stack in stacks:
            stack.close_epoch(epoch, self._steps, workers)

    def _count(self, epoch: int, count: int, stacks: int, steps: queue.SimpleQueue[int | None]) -> None:
        """Reports what the threads have done, from the thread that called, until they are done."""
        done, total = epoch * self._steps * count, self._epochs * self._steps * count
        while stacks:
            made = steps.get()
            if made is None:
                stacks -= 1
            else:
                done += made
                if self._progress is not None:
                    self._progress(done, total)

    def measure(self) -> None:
        for member, history in zip(self.members, self.histories, strict=True):
            epoch = self.epoch
            if history.diverged_at is not None:
                continue
            for hook in member.hooks:
                if epoch in hook.epochs:
                    hook.measure(member.model, epoch, history, torch.device("cpu"), member.settings.seed)
