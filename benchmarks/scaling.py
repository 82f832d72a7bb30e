"""How tasks scale with workers, and what they cost the driver. Ratios are meant to be read within one run.

    python -m benchmarks.scaling > benchmarks/results/scaling-cpu.json
    python -m benchmarks.scaling --driver > benchmarks/results/scaling-driver-cpu.json

The same tasks (all singular values of every unit of a ResNet, one task per network) with one and with two worker
processes, in alternation; the datasets are compared bit by bit. `ratio` is of tasks per second once all workers are at
work. Where other programs use the same cores it says more about them: `processor_ratio` is 2 x the processor time of a
task with one worker over that with two, what two free cores would give. The first task of a worker, which holds its
warm-up, does not count in either.

With `--driver`, what a task costs the driver: its own processor time per task, bytes to a worker and back, and the time
to keep a result in a run folder that has so many already.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.clocked import Clocked, clocked
from benchmarks.machine import described
from skipscope.runs import RunFolder
from skipscope.runs.datasets import dataset_in
from skipscope.runs.executors import Execution, Task, perform_all
from skipscope.runs.executors.task import reply_to
from skipscope.runs.files import key_of
from skipscope.sweeps.measuring import How, Inputs
from skipscope.sweeps.subjects import Subject

FILES = (0, 1_000, 10_000)  # that a run has when a further result is kept
KEPT = 9  # results, of which the median counts


def tasks_of(model: str, count: int) -> list[Task]:
    found = []
    for seed in range(count):
        arguments = {
            "subject": Subject(f"seed {seed}", model),
            "inputs": Inputs(samples=2),
            "how": How(("profile", "spectra"), seed=seed),
        }
        found.append(Task(f"seed {seed}", clocked, arguments, key_of({"model": model, "seed": seed})))
    return found


def timed(tasks: Sequence[Task], execution: Execution) -> dict[str, Any]:
    """Seconds with the start of the workers, and tasks per second once all of them are at work."""
    results: dict[str, bytes] = {}
    driver, workers, start = time.process_time(), of_children(), time.monotonic()
    times: list[float] = []
    processor: dict[int, list[float]] = {}

    def keep(task: Task, value: Clocked) -> None:
        results[task.name] = value.content
        times.append(time.monotonic() - start)
        processor.setdefault(value.process, []).append(value.processor_seconds)

    perform_all(tasks, execution, keep)
    begun = execution.workers - 1  # from the result by which every worker is at work
    return {
        "workers": execution.workers,
        "tasks_per_second": (len(times) - 1 - begun) / (times[-1] - times[begun]),
        "processor_seconds_per_task": statistics.mean(each for own in processor.values() for each in own[1:]),
        "processor_seconds_of_first_tasks": [own[0] for own in processor.values()],
        "seconds": round(time.monotonic() - start, 2),
        "driver_processor_seconds": round(time.process_time() - driver, 3),
        "workers_processor_seconds": round(of_children() - workers, 2),
        "load": [round(load, 2) for load in os.getloadavg()],
        "results": results,
    }


def of_children() -> float:
    """Processor seconds of all processes that this one has started and that have ended."""
    found = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found.ru_utime + found.ru_stime


def overhead(count: int) -> dict[str, float]:
    """Of tasks that cost nothing: what is left is the way to a worker and back."""
    tasks = [Task(f"empty {number}", dict, {}, key_of({"number": number})) for number in range(count)]
    times: list[tuple[float, float]] = []
    begun = time.monotonic()
    perform_all(tasks, Execution("processes", 1), lambda *_: times.append((time.monotonic(), time.process_time())))
    (first, driver), (last, driver_last) = times[0], times[-1]
    return {
        "worker_start_seconds": first - begun,
        "seconds_per_empty_task": (last - first) / (count - 1),
        "driver_processor_seconds_per_task": (driver_last - driver) / (count - 1),
    }


def kept(content: bytes) -> list[dict[str, float]]:
    """Seconds and bytes of one more result in a run folder, by how many files the run has."""
    rows = []
    for files in FILES:
        with tempfile.TemporaryDirectory() as place, RunFolder(Path(place) / "run", "scaling") as run:
            run.record["hashes"] = {f"data/model-{number:016x}.nc": "0" * 64 for number in range(files)}
            seconds, processor = [], []
            for number in range(KEPT):
                start, processor_start = time.monotonic(), time.process_time()
                run.write(f"data/more-{number}.nc", content)
                seconds.append(time.monotonic() - start)
                processor.append(time.process_time() - processor_start)
            rows.append(
                {
                    "files": files,
                    "seconds": statistics.median(seconds),
                    "processor_seconds": statistics.median(processor),
                    "bytes_of_record": (run.path / "run.json").stat().st_size,
                }
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="skipscope:resnet20-digits")
    parser.add_argument("--tasks", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--driver", action="store_true", help="what a task costs the driver, without the rounds")
    parser.add_argument("--empty", type=int, default=200, help="tasks that cost nothing")
    options = parser.parse_args()
    tasks = tasks_of(options.model, options.tasks)
    measured = of_driver(tasks[0], options.empty) if options.driver else of_workers(tasks, options.rounds)
    print(json.dumps({"machine": described(), "model": options.model, **measured}, indent=2))


def of_workers(tasks: Sequence[Task], count: int) -> dict[str, Any]:
    """Rounds with one and with two workers."""
    rounds: list[dict[str, Any]] = []
    first: dict[str, bytes] = {}
    for number in range(count):
        order = (1, 2) if number % 2 == 0 else (2, 1)
        found = {workers: timed(tasks, Execution("processes", workers)) for workers in order}
        results = [each.pop("results") for each in found.values()]
        first = first or results[0]
        row = {
            "round": number,
            "same_bits": all(each == first for each in results),
            "one_worker": found[1],
            "two_workers": found[2],
            "ratio": round(found[2]["tasks_per_second"] / found[1]["tasks_per_second"], 2),
            "processor_ratio": round(
                2 * found[1]["processor_seconds_per_task"] / found[2]["processor_seconds_per_task"], 2
            ),
            "ratio_with_start": round(found[1]["seconds"] / found[2]["seconds"], 2),
        }
        print(row, file=sys.stderr)
        rounds.append(row)
    medians = {
        f"median_{key}": statistics.median(row[key] for row in rounds)
        for key in ("ratio", "processor_ratio", "ratio_with_start")
    }
    return {"tasks": len(tasks), "rounds": rounds, **medians}


def of_driver(task: Task, empty: int) -> dict[str, Any]:
    value: Clocked = task.perform(1)
    payload = task.payload(1)
    start = time.process_time()
    for _ in range(KEPT):
        dataset_in(value.content, Path("a result"))
    reading = (time.process_time() - start) / KEPT
    return {
        "bytes_to_a_worker": len(payload),
        "bytes_back": len(reply_to(payload)),
        "bytes_of_a_result": len(value.content),
        "way_to_a_worker_and_back": overhead(empty),
        "keeping": kept(value.content),
        "processor_seconds_to_read_a_result": reading,
    }


if __name__ == "__main__":
    main()
