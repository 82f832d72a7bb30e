"""A fleet: many networks, trained at the same time.

    histories = train_fleet([FleetMember(model, split, settings, test), ...])

Each member is what it would be if it was trained alone: it has its own initial weights, seed, rate and schedule, decay,
clip, augmentation, images and labels, and sees its batches in its own order. What all members have in common is in
`fleet_member.IN_STEP`. A fleet consists of parts:

    stacks (`fleet_stack.py`)       networks of one architecture, computed as one: fully connected ones as batched
                                    matrices, convolutional ones on a GPU as grouped convolutions. A small network's
                                    step is mostly overhead, which a stack has once. The same as alone to rounding.
    singles (`fleet_single.py`)     all others, each with its own step. The same as alone to the last bit.

The members are divided by their kind and number alone, never by the number of cores. Parts do not know of each other.
On a CPU stacks are trained by as many threads as torch has. On a GPU the parts take turns, a step each; every part has
its own stream and captured step, so that they share the device. The same fleet trained again, stopped or not, gives the
same bits.

A member whose loss is not finite leaves at the end of the epoch, as its training alone would end there; the others go
on.
"""

from __future__ import annotations

import queue
import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, nullcontext
from pathlib import Path

import torch

from skipscope.cores import one_thread
from skipscope.errors import InputError
from skipscope.progress import Progress
from skipscope.training.checkpoint import Keeper, State
from skipscope.training.compilation import COMPILED_FROM, compile_obstacle
from skipscope.training.fleet_checkpoint import FleetState
from skipscope.training.fleet_member import FleetMember, fleet_obstacle, is_convolutional, stackable_groups
from skipscope.training.fleet_part import AT_A_TIME, FleetPart, even_groups, on_device
from skipscope.training.fleet_single import FleetSingle
from skipscope.training.fleet_stack import FleetStack
from skipscope.training.history import History
from skipscope.training.hooks import start_anew
from skipscope.training.surroundings import same_kernels_each_time

LARGEST_STACK = {"cpu": 32, "cuda": 128}  # fully connected networks: of more the states leave a CPU's cache
SPLIT_FROM = 8  # members, from which on there are two stacks on a CPU, for two cores


def train_fleet(
    members: Sequence[FleetMember],
    *,
    test_every: int = 1,
    progress: Progress | None = None,
    checkpoint: Path | str | None = None,
    save_every: float = 20.0,
    stack: bool = True,
    compiled: bool | None = None,
    threads: int | None = None,
) -> list[History]:
    """Trains all members; one history for each, in their order. Options are those of `train`.

    progress: counts the steps of all members together. stack: compute networks of one architecture as one, which is
    faster; without, each is bit by bit what it is alone. compiled: stacks of convolutional networks on a GPU run as
    compiled kernels, the same to rounding; None: if they have at least 4,000 steps. threads: how many stacks are
    trained at a time on a CPU; None: as many as torch has threads. The seconds of a history are the member's share of
    the fleet's.
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
    path = None if checkpoint is None else Path(checkpoint)
    keeper, threads_alone = Keeper(path, save_every), torch.get_num_threads()
    with same_kernels_each_time(), one_thread(members[0].device.type == "cpu"), ExitStack() as parts:
        fleet = _Fleet(members, test_every, progress, threads or threads_alone)
        fleet.divide(stack, compiled, threads_alone, parts)
        parts.callback(keeper.flush)
        state = FleetState(members, fleet.histories, fleet.parts, test_every) if path is not None else None
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
    return fleet.histories


def stacks_of(numbers: Sequence[int], device: str, convolutional: bool = False) -> list[list[int]]:
    """How members of one architecture are split into stacks: by their number, kind and kind of device alone."""
    fewest = 2 if device == "cpu" and len(numbers) >= SPLIT_FROM else 1
    return even_groups(numbers, AT_A_TIME if convolutional else LARGEST_STACK[device], fewest)


class StoppedError(Exception):
    """Another part of the fleet, or who called, has ended the training."""


class _Fleet:
    """Its parts, and the threads that train them."""

    def __init__(
        self, members: Sequence[FleetMember], test_every: int, progress: Progress | None, threads: int
    ) -> None:
        self.members, self._test_every, self._progress, self._threads = members, test_every, progress, threads
        self._device = members[0].device
        self.histories = [History() for _ in members]
        self._steps = len(members[0].split) // members[0].settings.batch
        self._epochs = members[0].settings.epochs
        self.parts: list[FleetPart] = []
        # A thread has its own current stream: what the caller did on this one is waited for.
        self._stream = torch.cuda.current_stream(self._device) if self._device.type == "cuda" else None

    def divide(self, stack: bool, compiled: bool | None, threads: int, release: ExitStack) -> None:
        """Makes the parts; release: gives each of them back in the end, whatever happens."""
        there = on_device(self.members, self._device)
        groups, others = stackable_groups(there) if stack else ([], list(range(len(there))))

        def add(part: FleetPart) -> None:
            self.parts.append(part)
            release.callback(part.release)

        for group in groups:
            convolutional = is_convolutional(there[group[0]])
            compiles = convolutional and self._device.type == "cuda" and self._compiles(compiled)
            for own in stacks_of(group, self._device.type, convolutional):
                members, histories = [there[number] for number in own], [self.histories[number] for number in own]
                add(FleetStack(members, histories, own, compiled=compiles))
        for number in others:
            add(FleetSingle(there[number], self.histories[number], number, threads))

    def _compiles(self, asked: bool | None) -> bool:
        """None: whether it takes less time with compiling."""
        if asked is False or (asked is None and self._epochs * self._steps < COMPILED_FROM):
            return False
        obstacle = compile_obstacle()
        if obstacle and asked:
            raise InputError(f"a fleet: torch.compile does not work here ({obstacle}); leave out compiled=True")
        if obstacle:
            warnings.warn(f"the fleet is not compiled, and slower: {obstacle}", RuntimeWarning, stacklevel=4)
        return not obstacle

    def _lanes(self) -> list[list[FleetPart]]:
        """What one thread trains, its parts in turns. A GPU has one: captures and default generators are not shared."""
        going = self.going
        stacks: list[FleetPart] = [part for part in going if isinstance(part, FleetStack)]
        singles: list[FleetPart] = [part for part in going if not isinstance(part, FleetStack)]
        if self._device.type == "cuda":
            return [going]
        lanes: list[list[FleetPart]] = [[stack] for stack in stacks]
        return [*lanes, singles] if singles else lanes

    @property
    def epoch(self) -> int:
        """Epochs done by those that are still trained, or by the last that was."""
        return max(history.epochs for history in self.histories)

    @property
    def going(self) -> list[FleetPart]:
        return [part for part in self.parts if part.size]

    def next(self) -> None:
        """One epoch of all members that have not diverged."""
        epoch, lanes = self.epoch, self._lanes()
        tested = (epoch + 1) % self._test_every == 0 or epoch + 1 == self._epochs
        sizes = [sum(part.size for part in lane) for lane in lanes]
        workers = min(self._threads, len(lanes))
        made: queue.SimpleQueue[int | None] = queue.SimpleQueue()  # members that made a step; None: a lane is done
        stop = threading.Event()

        def work(lane: Sequence[FleetPart]) -> None:
            try:
                with nullcontext() if self._stream is None else torch.cuda.stream(self._stream):
                    self._train(lane, epoch, tested, made.put, stop)
            except BaseException:
                stop.set()
                raise
            finally:
                made.put(None)

        with ThreadPoolExecutor(workers, "skipscope-fleet") as pool:
            futures = [pool.submit(work, lane) for lane in lanes]
            try:
                self._count(epoch, sum(sizes), len(lanes), made)
            except BaseException:  # of the progress, or of a hand on the keyboard
                stop.set()
                raise
            finally:
                wait(futures)
        failed = [error for future in futures if (error := future.exception()) is not None]
        for error in sorted(failed, key=lambda error: isinstance(error, StoppedError)):
            raise error
        for lane, size in zip(lanes, sizes, strict=True):
            for part in lane:
                part.close_epoch(size * workers)

    def _train(
        self,
        lane: Sequence[FleetPart],
        epoch: int,
        tested: bool,
        made: Callable[[int], None],
        stop: threading.Event,
    ) -> None:
        running = [(part, part.steps(epoch)) for part in lane]
        for _ in range(self._steps):
            for part, steps in running:
                if stop.is_set():
                    raise StoppedError
                with part.inside():
                    made(next(steps))
        for part in lane if tested else ():
            with part.inside():
                part.test()

    def _count(self, epoch: int, count: int, lanes: int, steps: queue.SimpleQueue[int | None]) -> None:
        """Reports what the threads have done, from the thread that called, until they are done."""
        done, total = epoch * self._steps * count, self._epochs * self._steps * count
        while lanes:
            made = steps.get()
            if made is None:
                lanes -= 1
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
                    hook.measure(member.model, epoch, history, self._device, member.settings.seed)
