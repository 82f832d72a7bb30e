"""When to look: the monitor's own time stays within a share of the training's.

What a measure costs is known once it has run; before that it is guessed, from parts of it that are timed before the
training (`expected.py`). With c_i the cost of measure i, t the time of a step and b the budget, every measure gets a
portion p_i of b (sum p_i <= b) and is due each

    g_i = c_i / (p_i t)   steps, rounded up to a multiple of `every`.

Portions are given out from the cheapest on: each takes what it needs to look at every `every` steps, or its equal part
of what is left. So cheap measures look often, dear ones seldom, and what a cheap one does not need goes to the others.
One measure may come first (`first`, the one that most alarms come from): its part is half of the budget.
Beside that, nothing starts that is expected to bring the whole share above the budget: the time that has passed since
the first step has to have earned it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

MARGIN = 1.25  # of what a measure is expected to cost: the next time it may take longer
GENEROUS = 1.5  # of a guess: networks differ


@dataclass
class Item:
    """What the monitor spends time on: a measure, or writing to disk."""

    guess: float  # in seconds, until it has run
    last: int | None = None  # the step of its last run
    runs: int = 0
    seconds: float = 0.0  # of all runs together
    recent: list[float] = field(default_factory=list)  # seconds of the last two runs
    stopped: bool = False  # it does not run any more

    @property
    def cost(self) -> float:
        """Seconds that the next run is expected to take."""
        return MARGIN * max(self.recent) if self.recent else GENEROUS * self.guess


class Pace:
    """guesses: seconds of a run of each item. budget: the share of the time that may be spent; None for no limit.
    first: the item that half of it is for."""

    def __init__(
        self,
        guesses: Mapping[str, float],
        *,
        every: int,
        budget: float | None,
        first: str = "",
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.items = {name: Item(guess) for name, guess in guesses.items()}
        self.every, self.budget, self.first, self._clock = every, budget, first, clock
        self._rest = 0.0  # seconds spent around runs of items
        self._begun: float | None = None
        self._paused: float | None = None
        self._steps = 0

    def expect(self, seconds: Mapping[str, float]) -> None:
        """Of items, what a run takes, better known than by the first guess."""
        for name, guess in seconds.items():
            self.items[name].guess = guess

    def stepped(self) -> None:
        """One step of the training is done; the time counts from the first."""
        if self._begun is None:
            self._begun = self._clock()
        else:
            self._steps += 1

    def pause(self) -> None:
        """The training has ended; what passes until `go_on` is no time of it."""
        self._paused = self._clock()

    def go_on(self) -> None:
        if self._begun is not None and self._paused is not None:
            self._begun += self._clock() - self._paused
        self._paused = None

    @property
    def elapsed(self) -> float:
        """Seconds since the first step."""
        now = self._clock() if self._paused is None else self._paused
        return 0.0 if self._begun is None else now - self._begun

    @property
    def own(self) -> float:
        """Seconds that the monitor has spent."""
        return self._rest + sum(item.seconds for item in self.items.values())

    @property
    def share(self) -> float:
        """Of the time since the first step, what the monitor has taken."""
        elapsed = self.elapsed
        return self.own / elapsed if elapsed > 0 else 0.0

    @property
    def step_seconds(self) -> float:
        """Of a step of the training, without the monitor."""
        return max(self.elapsed - self.own, 0.0) / self._steps if self._steps else math.nan

    @property
    def _running(self) -> dict[str, Item]:
        return {name: item for name, item in self.items.items() if not item.stopped}

    @property
    def earned(self) -> float:
        """Seconds that the budget allows now."""
        return math.inf if self.budget is None else max(self.budget * self.elapsed - self.own, 0.0)

    def not_run(self) -> dict[str, float]:
        """What has not run yet, with the seconds that a run is expected to take."""
        return {name: item.cost for name, item in self._running.items() if not item.runs}

    def due(self, step: int) -> list[str]:
        """What to do after this step, in the order of `gaps`."""
        if step % self.every:
            return []
        if self.budget is None:
            return list(self._running)
        step_seconds = self.step_seconds
        if math.isnan(step_seconds):
            return []
        gaps, left = self.gaps(step_seconds), self.earned
        found = []
        for name, gap in gaps.items():
            item, cost = self.items[name], self.items[name].cost
            waited = gap if item.last is None else step - item.last
            if waited >= gap and cost <= left:
                found.append(name)
                left -= cost
        return found

    def gaps(self, step_seconds: float) -> dict[str, float]:
        """Steps between two runs of each item: of `first`, then from the cheapest on."""
        assert self.budget is not None
        costs = {name: item.cost for name, item in self._running.items()}
        left = self.budget
        found: dict[str, float] = {}
        for place, name in enumerate(sorted(costs, key=lambda one: (one != self.first, costs[one]))):
            needed = costs[name] / (self.every * step_seconds) if step_seconds > 0 else math.inf
            others = len(costs) - place - 1
            portion = min(needed, left / (1 + (min(others, 1) if name == self.first else others)))
            left -= portion
            steps = costs[name] / (portion * step_seconds) if portion > 0 and step_seconds > 0 else 0.0
            found[name] = self.every * max(1, math.ceil(round(steps / self.every, 6)))
        return found

    @contextmanager
    def around(self) -> Iterator[None]:
        """Around all that the monitor does after a step: what no item has taken of it is its time too."""
        before, own = self._clock(), self.own
        try:
            yield
        finally:
            self._rest += self._clock() - before - (self.own - own)

    @contextmanager
    def spending(self, name: str, step: int, *, again: bool = False) -> Iterator[None]:
        """Around a run of an item. again: more of the last or the next run, and no run of its own."""
        item, before = self.items[name], self._clock()
        try:
            yield
        finally:
            seconds = self._clock() - before
            item.seconds += seconds
            if not again:
                item.last, item.runs = step, item.runs + 1
                item.recent = [*item.recent[-1:], seconds]
