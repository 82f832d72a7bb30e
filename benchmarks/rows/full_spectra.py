"""All singular values of the units of a trained network, for one image and for several at once.

jacrev and svdvals   the usual lines: every row of the Jacobian by reverse mode, an SVD in float32
Gram matrix          what an expert writes: the active rows in float64, eigenvalues of A A^T, square roots
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

import skipscope as ss
from benchmarks.kit import OURS, Size, Way, Work
from benchmarks.subjects import network_and_images, one_per_stage

ROWS_AT_ONCE = 256  # of a Jacobian by reverse mode
SEVERAL = 5  # images at once
USUAL, GRAM, BY_IMAGE = "jacrev and svdvals, float32", "Gram matrix, float64", "skipscope, image by image"


def works(size: Size) -> Iterator[Work]:
    model, images = network_and_images(size, SEVERAL)
    trunk = ss.trace(model, images[:1])
    chosen, point = one_per_stage(trunk), trunk.at(images[:1])
    names = chosen if size.name == "smoke" else [unit.name for unit in trunk.units]
    usual = chosen if size.name == "gpu" else names  # one unit per stage, where all would take ten minutes

    def ours() -> dict[str, Tensor]:
        return {name: ss.singular_values(trunk[name].jacobian(point)).values[0] for name in names}

    yield Work(
        f"all singular values of {len(names)} units, one image",
        {
            OURS: Way(ours),
            USUAL: Way(lambda: _usual(trunk, point, usual), len(usual) / len(names)),
            GRAM: Way(lambda: {name: by_gram_matrix(trunk[name].jacobian(point)) for name in names}),
        },
        lambda answers: _difference(answers, GRAM),
        allowed=1e-6,
        errors=lambda answers: {USUAL: _difference(answers, USUAL)},
        goals={USUAL: 60, GRAM: 2.5} if size.name == "gpu" else {},
        memory=True,
    )
    several = trunk.at(images)
    later = [unit.name for stage in trunk.stages[1:] for unit in stage.units]
    later = chosen[1:] if size.name == "smoke" else later
    points = [trunk.at(image[None]) for image in images]

    def at_once() -> dict[str, Tensor]:
        return {name: ss.singular_values(trunk[name].jacobian(several)).values.flatten() for name in later}

    def one_by_one() -> dict[str, Tensor]:
        alone = {
            name: [ss.singular_values(trunk[name].jacobian(point)).values[0] for point in points] for name in later
        }
        return {name: torch.cat(values) for name, values in alone.items()}

    yield Work(
        f"all singular values of {len(later)} units after the first stage, {SEVERAL} images at once",
        {OURS: Way(at_once), BY_IMAGE: Way(one_by_one)},
        lambda answers: _difference(answers, BY_IMAGE),
        allowed=1e-9,
        goals={BY_IMAGE: 1 / 0.6} if size.name == "gpu" else {},
    )


def _usual(trunk: ss.Trunk, point: Any, names: Sequence[str]) -> dict[str, Tensor]:
    found = {}
    for name in names:
        state = point.entry(trunk[name])
        matrix = torch.func.jacrev(trunk[name], chunk_size=ROWS_AT_ONCE)(state)
        found[name] = torch.linalg.svdvals(matrix.reshape(-1, state.numel())).cpu()
    return found


def by_gram_matrix(J: Any) -> Tensor:
    """Of the first sample."""
    matrix = J.double().dense()[0]
    active = matrix[(matrix != 0).any(1)]
    squares = torch.linalg.eigvalsh(active @ active.mT).clamp_min(0).flip(0).sqrt().cpu()
    return torch.cat([squares, squares.new_zeros(min(matrix.shape) - len(squares))])


def _difference(answers: Mapping[str, Any], other: str) -> float:
    ours = answers[OURS]
    return max(
        float((values.detach().double() - ours[name].double()).abs().max() / ours[name][0])
        for name, values in answers[other].items()
    )
