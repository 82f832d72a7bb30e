"""Finding the units of a network, against torch.export.export alone, which everything that looks at graphs needs.

Both with one thread: what is counted is time of the processor, and threads that wait for work spend it too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import skipscope as ss
from benchmarks.kit import OURS, Size, Way, Work
from benchmarks.trace import export_alone, gpt, resnet
from skipscope.cores import one_thread


def works(size: Size) -> Iterator[Work]:
    if size.device != "cpu":
        return
    for name, make, depth in (
        ("ResNet", resnet, size.pick(smoke=12, cpu=50, gpu=50)),
        ("GPT-2", gpt, size.pick(smoke=4, cpu=12, gpu=12)),
    ):
        model, x = make(depth)

        def ours(model: Any = model, x: Any = x) -> int:
            with one_thread():
                return len(ss.trace(model, x).units)

        def export(model: Any = model, x: Any = x) -> None:
            with one_thread():
                export_alone(model, x)

        def difference(answers: Mapping[str, Any], units: int = _units(name, depth)) -> float:
            return abs(answers[OURS] - units)

        yield Work(
            f"units of a {name} of {depth} {'blocks' if name == 'ResNet' else 'layers'}",
            {OURS: Way(ours), "torch.export alone": Way(export)},
            difference,
            allowed=0,
            goals={"torch.export alone": 1 / 1.3},
            clock="processor",
        )


def _units(name: str, depth: int) -> int:
    return 3 * round(depth / 3) if name == "ResNet" else 2 * depth
