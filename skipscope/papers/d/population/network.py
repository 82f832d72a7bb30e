"""One network of the population: trained weights from a file, its trunk, and the test images."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from skipscope.data import Dataset
from skipscope.errors import InputError
from skipscope.models.names import build
from skipscope.models.request import require_weights
from skipscope.models.weights import load_weights
from skipscope.runs.files import digest
from skipscope.runs.record import versions
from skipscope.trace import Stage, Trunk, Unit, trace

TRACED_WITH = 2  # images; a trunk works for any number of them


def name_and_seed(file: Path) -> tuple[str, int]:
    """Of a file NAME-seedS.safetensors, as `skipscope train --seeds --export` writes it."""
    found = re.fullmatch(r"(.+)-seed(\d+)", file.stem)
    if not found:
        raise InputError(f"files {file}: expected the weights of a network as NAME-seedS.safetensors")
    require_weights(file)
    return found[1], int(found[2])


class PopulationNetwork:
    def __init__(self, file: Path, data: Dataset, device: str, *, seed: int, recipe: int) -> None:
        """seed: of the images, the random perturbations and the noise. recipe: by which it was trained."""
        self.title, self.seed, self.data, self.device = file.stem, seed, data, device
        name, own_seed = name_and_seed(file)
        model = build(name).eval()
        load_weights(model, file)
        self.model = model.to(device)
        self.trunk: Trunk = trace(self.model, self.images(TRACED_WITH))
        self.attributes = {
            "network": name,
            "recipe": recipe,
            "seed": own_seed,
            "weights": file.name,
            "weights_sha256": digest(file),
            "test_images_sha256": data.test.digest(),
            "seed_of_images": seed,
            "device": torch.cuda.get_device_name() if device.startswith("cuda") else device,
            "torch": versions()["torch"],
            "skipscope": versions()["skipscope"],
        }

    def chosen(self, count: int) -> Tensor:
        """The numbers of that many test images, or of all."""
        return self.data.test_choice(min(count, len(self.data.test)), self.seed)

    def images(self, count: int) -> Tensor:
        return self.at(self.chosen(count))

    def at(self, chosen: Tensor) -> Tensor:
        return self.data.test.images(chosen).to(self.device)

    def labels_at(self, chosen: Tensor) -> Tensor:
        return self.data.test.labels[chosen].to(self.device)

    def regular(self, stages: Sequence[int]) -> list[Unit]:
        return [unit for unit in self.trunk.units if unit.kind == "identity" and unit.stage in stages]

    def coordinates(self, spans: Sequence[Unit | Stage]) -> dict[str, Any]:
        """Names, kinds of skips, and stages counted from 1."""
        kinds = [span.kind if isinstance(span, Unit) else "" for span in spans]
        stages = [span.stage if isinstance(span, Unit) else span.index + 1 for span in spans]
        return {"unit": [span.name for span in spans], "skip": ("unit", kinds), "stage": ("unit", stages)}
