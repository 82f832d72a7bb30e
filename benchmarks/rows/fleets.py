"""Training many networks at once against one after another (and, on a GPU, against the loop that most programs have:
`python -m benchmarks.training --side-by-side 8`, in numbers of its own)."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from benchmarks.kit import OURS, Size, Way, Work
from skipscope.data.dataset import Images
from skipscope.models import names
from skipscope.training import FleetMember, Settings, train, train_fleet

NETWORK = "type1-mnist-w64-b16"


def works(size: Size) -> Iterator[Work]:
    if size.device != "cpu":
        return
    count, images = size.pick(smoke=(8, 640), cpu=(32, 3000), gpu=(0, 0))
    generator = torch.Generator().manual_seed(0)
    shape, classes = (names.parse(NETWORK)[key] for key in ("input_shape", "classes"))
    pixels = torch.rand(images, *shape, generator=generator)
    split = Images(pixels, torch.randint(classes, (images,), generator=generator))
    members = []
    for seed in range(count):
        torch.manual_seed(seed)
        settings = Settings(epochs=1, batch=128, rate=0.01, seed=seed)
        members.append(FleetMember(names.build(NETWORK), split, settings))

    def together() -> list[float]:
        return [history.loss[-1] for history in train_fleet(copy.deepcopy(members))]

    few = members[: size.pick(smoke=2, cpu=8, gpu=0)]

    def one_by_one() -> list[float]:
        return [train(own.model, own.split, replace(own.settings)).loss[-1] for own in copy.deepcopy(few)]

    def difference(answers: Mapping[str, Any]) -> float:
        """Of the mean loss. In float32 the rounding of a deep network grows along an epoch to a percent of its loss;
        that each network of a fleet is the one trained alone, the tests show in float64."""
        alone = answers["one after another"]
        return abs(sum(alone) / sum(answers[OURS][: len(alone)]) - 1)

    yield Work(
        f"one epoch of {count} fully connected networks of 16 blocks, {images:,} images",
        {OURS: Way(together), "one after another": Way(one_by_one, len(few) / count)},
        difference,
        allowed=1e-2,
        goals={"one after another": 4} if size.name == "cpu" else {},
    )
