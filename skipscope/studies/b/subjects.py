"""What the studies of paper B work on: whitened principal components with one-hot targets, and the networks' kinds."""

from __future__ import annotations

from dataclasses import dataclass

from skipscope.data import whiten
from skipscope.errors import InputError
from skipscope.models import Moments, Samples
from skipscope.studies.bench import Bench

COMPONENTS = 10  # as many as there are classes: the networks are square

# title: shortcut depth n (0: none) and initialisation; the paper's "zero" is 0.01 times Xavier's weights
ARCHITECTURES: dict[str, tuple[int, str]] = {
    "xavier": (0, "xavier"),
    "orthogonal": (0, "orthogonal"),
    "1-shortcut": (1, "zero"),
    "2-shortcut": (2, "zero"),
    "3-shortcut": (3, "zero"),
}


@dataclass(frozen=True, eq=False)
class Task:
    """Inputs whitened to COMPONENTS components and one-hot targets, float64, on the bench's device."""

    samples: Samples
    moments: Moments  # of these samples
    name: str
    real: bool  # False where the embedded digits stand in for what was asked for


def task(bench: Bench, data: str = "mnist", samples: int | None = None) -> Task:
    """The training images of a data set. samples: the first so many of them; the whitening is that of all."""
    if samples is not None and samples < 1:
        raise InputError(f"samples: expected at least 1, got {samples}")
    found = bench.data(data)
    white = whiten(found, COMPONENTS)
    chosen = Samples(white.x[:samples].to(bench.device), white.y[:samples].to(bench.device))
    return Task(chosen, Moments.of(chosen), found.name, not found.stands_in_for)
