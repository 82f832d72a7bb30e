"""What every row needs: a piece of work, the ways to do it, and how they are measured side by side.

Ways take turns, so that what else the machine does meets all of them alike; times are medians over the turns. Speed is
read as a ratio within one run. Answers are compared: a way that gives another answer is not an alternative.
"""

from __future__ import annotations

import ctypes
import gc
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

OURS = "skipscope"
LONG = 20.0  # seconds of a part of a work, beside which what the first round loads and compiles is nothing


@dataclass(frozen=True)
class Way:
    """How to do a piece of work. part: of the work that it does, where the whole takes too long; its time is divided
    by it, and marked. products: of an answer, how many vectors were multiplied."""

    run: Callable[[], Any]
    part: float = 1.0
    products: Callable[[Any], int] | None = None


@dataclass(frozen=True)
class Work:
    title: str
    ways: Mapping[str, Way]  # ours among them, under OURS
    difference: Callable[[Mapping[str, Any]], float]  # between the answers, relative
    allowed: float  # a larger difference is a failure
    # Of ways that are coarse by nature, how far they are off: no failure of ours, and shown beside their times.
    errors: Callable[[Mapping[str, Any]], Mapping[str, float]] = lambda answers: {}
    goals: Mapping[str, float] = field(default_factory=dict)  # times as fast as that way, on the machine of the goal
    memory: bool = False  # measure the peak of each way, in a process of its own on a CPU
    clock: str = "wall"  # or "processor", which a busy machine changes less; the guard's in every row


@dataclass(frozen=True)
class Size:
    """How much work: "smoke" for the guard, "cpu" and "gpu" for the two sets."""

    name: str
    device: str = "cpu"
    rounds: int = 3
    weights: Path | None = None  # of a ResNet-56 with projections for CIFAR-10
    images: Path | None = None  # test images of CIFAR-10, a tensor (N, 3, 32, 32)

    def pick(self, smoke: Any, cpu: Any, gpu: Any) -> Any:
        return {"smoke": smoke, "cpu": cpu, "gpu": gpu}[self.name]


def measured(work: Work, size: Size, peaks: Mapping[str, int] | None = None) -> dict[str, Any]:
    """One line of the results. peaks: bytes of each way, where they were measured elsewhere."""
    seconds: dict[str, list[float]] = {name: [] for name in work.ways}
    answers: dict[str, Any] = {}
    found_peaks = dict(peaks or {})
    clock = "processor" if size.name == "smoke" else work.clock
    for number in range(size.rounds + 1):  # the first round loads and compiles, and is not counted
        for name, way in work.ways.items():
            if way.part < 1 and seconds[name]:
                continue  # what is too long for the whole is too long for several rounds
            spent, answers[name], peak = _timed(way, size.device, clock)
            print(f"  {name}: {spent:.3g} s", file=sys.stderr, flush=True)
            if number or (way.part < 1 and spent > LONG):
                seconds[name].append(spent / way.part)
            if peak is not None:
                found_peaks[name] = peak
    medians = {name: statistics.median(own) for name, own in seconds.items()}
    row: dict[str, Any] = {
        "work": work.title,
        "seconds": {name: _rounded(value) for name, value in medians.items()},
        "range": {name: [_rounded(min(own)), _rounded(max(own))] for name, own in seconds.items()},
        "times_faster": {name: _rounded(value / medians[OURS]) for name, value in medians.items() if name != OURS},
        "clock": clock,
        "multiplied": [name for name, way in work.ways.items() if way.part < 1],
        "difference": float(f"{work.difference(answers):.2g}"),
        "allowed": work.allowed,
        "errors": {name: float(f"{error:.2g}") for name, error in work.errors(answers).items()},
        "products": {name: way.products(answers[name]) for name, way in work.ways.items() if way.products},
        "peak_megabytes": {name: round(peak / 1e6) for name, peak in found_peaks.items()},
        "goals": dict(work.goals) if size.name == "gpu" or size.device == "cpu" else {},
    }
    print(summary(row), file=sys.stderr, flush=True)
    return row


def summary(row: Mapping[str, Any]) -> str:
    ratios = ", ".join(
        f"{ratio:g} x over {name}{' (multiplied)' if name in row['multiplied'] else ''}"
        for name, ratio in row["times_faster"].items()
    )
    return f"{row['work']}: {row['seconds'][OURS]:g} s; {ratios}; answers differ by {row['difference']:.1e}"


def agrees(row: Mapping[str, Any]) -> bool:
    return row["difference"] <= row["allowed"]  # NaN is not


def _timed(way: Way, device: str, clock: str) -> tuple[float, Any, int | None]:
    gc.collect()
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    read = time.process_time if clock == "processor" else time.perf_counter
    start = read()
    answer = way.run()
    if device == "cuda":
        torch.cuda.synchronize()
    spent = read() - start
    return spent, answer, torch.cuda.max_memory_allocated() if device == "cuda" else None


def peak_bytes(way: Way) -> int:
    """What a way takes beyond what was there before it, in this process; on Linux, where the peak can be set back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # freed memory goes back to the system, so that using it again is counted
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    way.run()
    return max(0, _status("VmHWM") - before)


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def peaks_in_processes(row: str, number: int, names: list[str], size: Size) -> dict[str, int]:
    """The peak of each way of a row's work, each in a fresh process: memory that one has freed is not another's."""
    found = {}
    for name in names:
        command = [sys.executable, "-m", "benchmarks", "peak", row, str(number), name, "--size", size.name]
        if size.weights:
            command += ["--weights", str(size.weights)]
        if size.images:
            command += ["--images", str(size.images)]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{run.stderr[-2000:]}")
        found[name] = int(run.stdout.split()[-1])
    return found


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
