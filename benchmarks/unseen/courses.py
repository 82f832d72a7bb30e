"""What copies learn step by step, of networks whose outcome is known: where numbers of the short training come from.

    python -m benchmarks.unseen.courses measure   # into results/unseen-courses.json; can be stopped; 40 minutes
    python -m benchmarks.unseen.courses choose    # how often other numbers would be right about these networks

The networks are those of the list `second`. Each rate gets the first steps of a short training. Where none has learnt
`QUICKLY` by then, the best go on to `LAST` steps if they have learnt anything, and to `LONGEST` if they have learnt a
little, more of them than a check would. Networks that fail with less than `CLEAR` of right answers in 60 epochs are
left out: what fails so clearly does not learn enough in fewer steps.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import torch

from benchmarks.check import RESULTS
from benchmarks.machine import described
from benchmarks.unseen.__main__ import PROCESSES, networks, stored
from benchmarks.unseen.judging import figure
from benchmarks.unseen.networks import Earlier, Network
from skipscope.check.short_training import (
    DOUBTFUL,
    FIRST,
    GO_ON,
    HOPELESS,
    LAST,
    LONGEST,
    QUICKLY,
    RATES,
    WINDOW,
    Lesson,
    TrainedCopy,
)
from skipscope.data import digits
from skipscope.runs import write_whole

FILE = RESULTS / "unseen-courses.json"
OF = "second"
WELL = 0.9  # learnt: a course ends
ANYTHING, LITTLE = 0.03, 0.2
CLEAR = 0.6


class Course:
    """What a copy has learnt after each `WINDOW` steps."""

    def __init__(self, copy: TrainedCopy) -> None:
        self.copy, self.learnt = copy, [0.0]

    def go_on(self, steps: int) -> None:
        while len(self.learnt) * WINDOW <= steps and self.learnt[-1] < WELL and not math.isinf(self.copy.last_loss):
            self.copy.go_on(len(self.learnt) * WINDOW, WELL)
            self.learnt.append(round(self.copy.learnt, 3))


def courses(network: Network | Earlier) -> tuple[str, dict[str, Any]]:
    torch.set_num_threads(1)
    began = time.process_time()
    data = digits().train
    lesson = Lesson.of(network.build(), (data.images(), data.labels))
    found: list[Course] = []
    for rate in RATES[network.optimiser]:
        found.append(Course(TrainedCopy(lesson, rate, network.optimiser, seed=0)))
        found[-1].go_on(FIRST)
        if found[-1].learnt[-1] >= QUICKLY:
            break
    best = sorted(found, key=lambda each: each.learnt[-1], reverse=True)[:GO_ON]
    if best[0].learnt[-1] < QUICKLY:
        for steps, least in ((LAST, ANYTHING), (LONGEST, LITTLE)):
            for each in best if max(each.learnt[-1] for each in best) >= least else ():
                each.go_on(steps)
    seconds = round(time.process_time() - began, 1)
    return network.name, {"rates": {str(each.copy.rate): each.learnt for each in found}, "seconds": seconds}


def measure() -> None:
    found = read()
    left = [network for network in _unclear() if network.name not in found]
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        for name, record in pool.imap_unordered(courses, left):
            found[name] = record
            text = json.dumps({"machine": described(), "networks": dict(sorted(found.items()))})
            write_whole(FILE, f"{text}\n".encode())
            print(len(found), name, record["seconds"], file=sys.stderr, flush=True)


def read() -> dict[str, dict[str, Any]]:
    return json.loads(FILE.read_text(encoding="utf-8"))["networks"] if FILE.exists() else {}


def _unclear() -> Iterator[Network | Earlier]:
    known = stored(OF)["networks"]
    for network in networks(OF):
        if known[network.name]["trains"] or max(known[network.name]["accuracy"].values()) >= CLEAR:
            yield network


def choose() -> None:
    for longest, enough in product((LAST, 704, 880, LONGEST), (QUICKLY, 0.7, 0.75, 0.8, 0.85)):
        counts, steps = outcomes(enough, longest)
        print(f"learnt {enough:.2f}, {longest:4} steps at most: {figure(counts)}, {steps:.0f} steps in the mean")


def outcomes(enough: float, longest: int) -> tuple[Counter[tuple[bool, bool]], float]:
    """Counts of (trains, learns), and the mean of the steps that it takes, where it is not clear."""
    found = read()
    counts: Counter[tuple[bool, bool]] = Counter()
    steps = 0
    for name, each in stored(OF)["networks"].items():
        learns, more = verdict([*found[name]["rates"].values()], enough, longest) if name in found else (False, 0)
        counts[bool(each["trains"]), learns] += 1
        steps += more
    return counts, steps / len(found)


def verdict(learnt: Sequence[Sequence[float]], enough: float, longest: int) -> tuple[bool, int]:
    """Whether a short training would say that it learns, and after how many steps in all. learnt: of each rate, after
    each `WINDOW` steps."""

    def reached(course: Sequence[float], amount: float, steps: int) -> int | None:
        return next((at for at, so_far in enumerate(course[: steps // WINDOW + 1]) if so_far >= amount), None)

    def after(course: Sequence[float], steps: int) -> float:
        return course[min(len(course) - 1, steps // WINDOW)]

    taken = 0
    for course in learnt:
        if (at := reached(course, QUICKLY, FIRST)) is not None:
            return True, taken + at * WINDOW
        taken += FIRST
    kept = sorted(learnt, key=lambda course: after(course, FIRST), reverse=True)[:GO_ON]
    stages = [(course, FIRST, LAST, HOPELESS) for course in kept]
    stages.append((max(kept, key=lambda course: after(course, LAST)), LAST, longest, DOUBTFUL))
    for course, first, last, least in stages:
        if after(course, first) >= least:
            if (at := reached(course, enough, last)) is not None:
                return True, taken + at * WINDOW - first
            taken += last - first
    return False, taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("measure", "choose"))
    {"measure": measure, "choose": choose}[parser.parse_args().what]()


if __name__ == "__main__":
    main()
