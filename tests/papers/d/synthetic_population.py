"""Joined datasets of a population, small and of random numbers, in the layouts that D.population has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy
import xarray

from skipscope.papers.d.population.stored import for_run
from skipscope.papers.d.subjects import RESNET110, subject_of
from skipscope.papers.d.summaries import of_samples, summary

UNITS = [f"stage{stage}.{place}" for stage in (1, 2, 3) for place in range(3)]  # the first of stages 2, 3 down-samples
SKIPS = ["identity"] * 3 + ["projection", "identity", "identity"] * 2
KINDS_OF_PERTURBATIONS = ["adversarial", "random"]
MIXING = [0.0, 0.5, 1.0]


def joined(kind: str, *, networks: int = 3, architecture: str = RESNET110, recipe: int = 1) -> xarray.Dataset:
    """As stored before there were views: its measure, where it has one, is that of a piece."""
    random = numpy.random.default_rng([networks, recipe, len(architecture)])
    data = MAKERS[kind](random, networks).assign_coords(network=range(1000, 1000 + networks))
    about = {
        "architecture": architecture,
        "recipe": recipe,
        "weights_sha256": [f"{seed:x}" for seed in range(networks)],
        "device": "a GPU",
        "measure": f"words about {kind}",
        "images": 7,
    }
    return data.assign_attrs(about)


def in_run(kind: str, **options: Any) -> xarray.Dataset:
    """As a run has it."""
    data = joined(kind, **options)
    return for_run(data, subject_of(data.attrs["architecture"], data.attrs["recipe"]), kind)


def _units(*, regular: bool = False, skipped: int = 0) -> dict[str, Any]:
    shown = [place for place, skip in enumerate(SKIPS) if not regular or skip == "identity"][skipped:]
    return {
        "unit": [UNITS[place] for place in shown],
        "skip": ("unit", [SKIPS[place] for place in shown]),
        "stage": ("unit", [int(UNITS[place][5]) for place in shown]),
    }


def _counts(random: numpy.random.Generator, networks: int) -> xarray.Dataset:
    shape, place = (networks, 7, 3), ("network", "unit", "quantity")
    variables = {name: (place, random.uniform(0, 0.5, shape)) for name in ("mean", "deviation", "smallest", "largest")}
    return xarray.Dataset(variables, {**_units(regular=True), "quantity": ["zeros", "inner_active", "ones"]})


def _perturbations(random: numpy.random.Generator, networks: int, images: int = 4) -> xarray.Dataset:
    growth = random.uniform(0.8, 1.6, (networks, 2, 9, images))
    first = random.uniform(0.01, 0.02, (networks, 2, 1, images))
    states = numpy.concatenate([first, first * growth.cumprod(2)], 2)
    return xarray.Dataset(
        {
            "rms": (("network", "kind", "state", "sample"), states),
            "actual": (("network", "kind", "unit", "sample"), growth),
            "predicted": (("network", "kind", "unit", "sample"), growth * random.normal(1, 0.01, growth.shape)),
        },
        {**_units(), "kind": KINDS_OF_PERTURBATIONS, "state": [*UNITS, f"exit of {UNITS[-1]}"]},
    )


def _projections(random: numpy.random.Generator, networks: int) -> xarray.Dataset:
    alpha = random.normal(0, 0.1, (networks, 2, 4, 5, 10))
    indexed = ("unit", "sample", "index")
    return xarray.Dataset(
        {
            "projection": (("network", "kind", *indexed), alpha),
            "converged": (("network", *indexed), numpy.ones((networks, 4, 5, 10), dtype="int8")),
        },
        {**_units(regular=True, skipped=3), "kind": KINDS_OF_PERTURBATIONS},
    )


def _summaries(random: numpy.random.Generator, shape: tuple[int, ...]) -> xarray.Dataset:
    """Of spectra with zeros and ones among their values; shape: of the dimensions before `sample`, which has 2."""
    if shape:
        return xarray.concat([_summaries(random, shape[1:]) for _ in range(shape[0])], f"dimension {len(shape)}")
    values = [numpy.sort([*random.uniform(0.1, 2, 20), *[1.0] * 15, *[0.0] * 5])[::-1] for _ in range(2)]
    return of_samples([summary(own, 0.0) for own in values])


def _spectra(random: numpy.random.Generator, networks: int) -> xarray.Dataset:
    """With the stages behind the units of each."""
    data = _summaries(random, (networks, 12)).rename({"dimension 2": "network", "dimension 1": "unit"})
    return data.assign_coords(
        unit=[name for k in range(3) for name in (*UNITS[3 * k : 3 * k + 3], f"stage {k + 1}")],
        skip=("unit", [skip for k in range(3) for skip in (*SKIPS[3 * k : 3 * k + 3], "")]),
        stage=("unit", [k + 1 for k in range(3) for _ in range(4)]),
        kind=("unit", ["unit", "unit", "unit", "stage"] * 3),
    )


def _random(random: numpy.random.Generator, networks: int) -> xarray.Dataset:
    data = _summaries(random, (networks, 7)).rename({"dimension 2": "network", "dimension 1": "unit"})
    return data.assign_coords(_units(regular=True))


def _noise(random: numpy.random.Generator, networks: int) -> xarray.Dataset:
    names = ("network", "mixture", "t", "unit")
    data = _summaries(random, (networks, 2, 3, 4)).rename({f"dimension {4 - k}": names[k] for k in range(4)})
    return data.assign_coords(mixture=["convex", "norm"], t=MIXING, **_units(regular=True, skipped=3))


def _noise_counts(random: numpy.random.Generator, networks: int) -> xarray.Dataset:
    place, shape = ("network", "mixture", "t", "unit"), (networks, 2, 3, 7)
    variables = {name: (place, random.uniform(0, 0.5, shape)) for name in ("zeros", "ones")}
    return xarray.Dataset(variables, {**_units(regular=True), "mixture": ["convex", "norm"], "t": MIXING})


MAKERS: Mapping[str, Any] = {
    "counts": _counts,
    "perturbations": _perturbations,
    "projections": _projections,
    "spectra": _spectra,
    "noise": _noise,
    "noise-counts": _noise_counts,
    "random": _random,
}
