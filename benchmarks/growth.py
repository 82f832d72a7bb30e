"""How time and memory grow with the size of a question, as exponents of a power law.

    depth    finding units, in a residual network of so many blocks
    units    sizes of states and gradients of all units (`ss.profile`), in networks of so many units
    samples  the ten largest triplets of one unit at so many images
    k        so many of the largest triplets of one unit
    state    the ten largest triplets of one unit whose state has so many numbers

An exponent is the slope of a line through the logarithms: 1 where twice the size takes twice as long. The memory of a
computation is its peak beyond what was there before it. One thread; of two rounds the least.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import torch

import skipscope as ss
from benchmarks.kit import Way, peak_bytes
from benchmarks.trace import resnet
from skipscope.cores import one_thread
from skipscope.models.resnet import ResNet

ROUNDS = 2
Case = tuple[int, Callable[[], Any]]


def grown() -> list[dict[str, Any]]:
    with one_thread():
        return [
            _row("depth", "ss.trace", "blocks", _depths()),
            _row("units", "ss.profile, 2 images", "units", _units()),
            _row("samples", "ss.svd(J, 10)", "images", _samples()),
            _row("k", "ss.svd(J, k), 4 images", "k", _ks()),
            _row("state", "ss.svd(J, 10), 4 images", "numbers in a state", _states()),
        ]


def _row(name: str, function: str, unit: str, cases: Iterator[Case]) -> dict[str, Any]:
    sizes, seconds, megabytes = [], [], []
    for size, work in cases:
        work()  # what is loaded and compiled once is not counted
        sizes.append(size)
        seconds.append(min(_seconds(work) for _ in range(ROUNDS)))
        megabytes.append(peak_bytes(Way(work)) / 1e6)
        print(name, size, round(seconds[-1], 3), round(megabytes[-1], 1), flush=True)
    return {
        "name": name,
        "function": function,
        "unit": unit,
        "sizes": sizes,
        "seconds": [float(f"{each:.3g}") for each in seconds],
        "megabytes": [float(f"{each:.3g}") for each in megabytes],
        "exponent_of_seconds": exponent(sizes, seconds),
        "exponent_of_memory": exponent(sizes, megabytes),
    }


def _seconds(work: Callable[[], Any]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def exponent(sizes: list[int], values: list[float]) -> float:
    """Of the larger half of the sizes, where fixed costs matter least."""
    half = len(sizes) // 2
    if min(values[half:]) <= 0:
        return float("nan")
    return round(float(numpy.polyfit(numpy.log(sizes[half:]), numpy.log(values[half:]), 1)[0]), 2)


def _depths() -> Iterator[Case]:
    for blocks in (12, 24, 48, 96, 192, 384):
        model, x = resnet(blocks)
        yield 3 * round(blocks / 3), lambda model=model, x=x: ss.trace(model, x)


def _units() -> Iterator[Case]:
    for blocks in (6, 12, 24, 48, 96):
        model, x = resnet(blocks)
        trunk = ss.trace(model, x)
        yield len(trunk.units), lambda trunk=trunk, x=x: ss.profile(trunk, x)


def _one(images: int, side: int) -> ss.Operator:
    torch.manual_seed(0)
    model = ResNet(20, channels=(16, 32, 64), input_channels=3, classes=10).eval()
    x = torch.randn(images, 3, side, side)
    trunk = ss.trace(model, x[:2], calibrate=True)
    J: ss.Operator = trunk[1].jacobian(trunk.at(x))
    return J


def _samples() -> Iterator[Case]:
    for images in (2, 4, 8, 16, 32):
        J = _one(images, 16)
        yield images, lambda J=J: _triplets(J, 10)


def _ks() -> Iterator[Case]:
    J = _one(4, 16)
    for k in (2, 4, 8, 16, 32):
        yield k, lambda k=k: _triplets(J, k)


def _states() -> Iterator[Case]:
    for side in (8, 12, 16, 24, 32, 48):
        J = _one(4, side)
        yield J.shape[2], lambda J=J: _triplets(J, 10)


def _triplets(J: ss.Operator, k: int) -> ss.SVD:
    return ss.svd(J, k, tol=1e-3, route="iterative")
