"""D.spectra: figure 1 of paper D, scree plots of units, down-sampling units and stages for five images.

    skipscope study run D.spectra --preset quick --out DIR
    skipscope study run D.spectra --preset full --device cuda --weights resnet56.pt --data cifar10:PATH --out DIR

The paper finds a plateau at 1 in regular units, nearly the same for every image; hardly one in down-sampling units;
none in whole stages, which have a few very large singular values; high rank; ResNet-56 and ResNet-110 alike.

Sorted spectra of different units correlate too, so the correlation across images is compared with that across units of
the same stage. A spread is std / mean over the images, rank by rank, where the mean is above 1e-6 of the largest value.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy
import xarray

from skipscope.papers.d import PAPER
from skipscope.papers.d.measured_networks import (
    SPECTRA_PRESETS,
    NetworkSettings,
    judged,
    of_stage,
    regular_units,
    spectra_of_networks,
)
from skipscope.papers.kit import SEEDS, Bench, Claim, Evidence, Quantity, Study

NEGLIGIBLE = 1e-6  # of the largest value: below it a relative spread says nothing

# Of units, and of whole stages: across the images, and against a baseline.
CORRELATION = {kind: Quantity(f"correlation of {kind} across images") for kind in ("spectra", "stage spectra")}
SPREAD = {kind: Quantity(f"median relative spread of {kind} across images") for kind in CORRELATION}
ABOVE_BASELINE = {
    kind: Quantity(f"correlation of {kind} across images - across {others}")
    for kind, others in (("spectra", "units"), ("stage spectra", "stages"))
}
D4 = Claim(
    "D4",
    "A unit's spectrum hardly depends on the image.",
    "correlation of sorted singular values across 5 images, and their median relative spread",
    criteria=(CORRELATION["spectra"].at_least(0.95), SPREAD["spectra"].at_most(0.05)),
    controls=(ABOVE_BASELINE["spectra"].above(0.0),),
    seeds=3,
    note="Sorted spectra of different units correlate too: without that baseline a high correlation says little.",
)

DOWN_SAMPLING = {stage: Quantity(f"share near 1, down-sampling / regular units, stage {stage}") for stage in (2, 3)}
PADDED = {stage: quantity.of("padded shortcuts") for stage, quantity in DOWN_SAMPLING.items()}
D5 = Claim(
    "D5",
    "Down-sampling units have no plateau.",
    "share of singular values near 1, down-sampling over regular units, with projections as shortcuts",
    criteria=(DOWN_SAMPLING[2].at_most(1 / 3), DOWN_SAMPLING[3].at_most(1 / 3)),
    seeds=3,
    note="Shortcuts that pad with zeros are also reported.",
)

LARGEST_OVER_MEDIAN = Quantity("largest / median singular value of a stage")
STAGE_NEAR_ONE = Quantity("share near 1 of a stage")
D6 = Claim(
    "D6",
    "The Jacobian of a whole stage has no plateau, but a few huge singular values.",
    "largest over median singular value, and share near 1, of stage Jacobians",
    criteria=(LARGEST_OVER_MEDIAN.at_least(10.0), STAGE_NEAR_ONE.at_most(0.02)),
    seeds=3,
)

MEAN_VALUE = Quantity("mean singular value, regular units")
D17 = Claim(
    "D17",
    "The mean singular value of a residual unit is close to 1 by its structure.",
    "mean singular value of regular units",
    criteria=(MEAN_VALUE.within(0.9, 1.1),),
    seeds=3,
    note="0.42 to 0.82 was seen on a trained ResNet-56: inactive outputs are zeros.",
)

RANK = Quantity("rank / n, units of stages 1-2")
DISTANCE = Quantity("median relative distance of spectra, ResNet-56 and ResNet-110")
D18 = Claim(
    "D18",
    "Units have high rank but in stage 3 of ResNet-56; ResNet-56 and ResNet-110 are alike; the spectra of stages "
    "hardly depend on the image.",
    "rank over size; distance of the two networks' sorted spectra; spread of stage spectra across images",
    criteria=(
        RANK.at_least(0.75),
        DISTANCE.at_most(0.1),
        CORRELATION["stage spectra"].at_least(0.95),
        SPREAD["stage spectra"].at_most(0.05),
    ),
    controls=(ABOVE_BASELINE["stage spectra"].above(0.0),),
    seeds=3,
    presets=("full", "paper"),
)


def run(bench: Bench, settings: NetworkSettings) -> Evidence:
    return evidence(spectra_of_networks(bench, settings))


def evidence(found: Sequence[xarray.Dataset]) -> Evidence:
    parts = judged(found)
    networks = {SEEDS: len(parts)}
    units, stages = ([part.isel(unit=(part["kind"] == kind).values) for part in parts] for kind in ("unit", "stage"))
    regular = [regular_units(part) for part in parts]
    return {
        D4: {**networks, **_across_images(units, "spectra", same_stage=True)},
        D5: _down_sampling(found),
        D6: {
            **networks,
            LARGEST_OVER_MEDIAN: _members(stages, _largest_over_median),
            STAGE_NEAR_ONE: _members(stages, lambda part: part["share_near_one"].mean("sample").values),
        },
        D17: {
            **networks,
            MEAN_VALUE: _members(regular, lambda part: part["mean"].mean("sample").values),
        },
        D18: {
            **networks,
            RANK: _members(
                [of_stage(part, stage) for part in regular for stage in (1, 2)],
                lambda part: (part["rank"] / part["size"]).mean("sample").values,
            ),
            **_distance_of_depths(parts),
            **_across_images(stages, "stage spectra", same_stage=False),
        },
    }


def _across_images(parts: Sequence[xarray.Dataset], kind: str, same_stage: bool) -> dict[Quantity, list[float]]:
    """Members are the units (or stages) of all networks. same_stage: the baseline is of units of the same stage."""
    correlations, spreads, above = [], [], []
    for part in parts:
        names = part["unit"].values
        spectra = {str(name): part["value"].sel(unit=name).dropna("index", how="all").values for name in names}
        stage = {str(name): int(part["stage"].sel(unit=name)) for name in names}
        for name, values in spectra.items():  # samples x size
            if len(values) < 2:
                continue
            across_images = numpy.mean([_correlation(a, b) for a, b in itertools.combinations(values, 2)])
            rivals = [
                other
                for key, other in spectra.items()
                if key != name and (not same_stage or (stage[key] == stage[name] and other.shape == values.shape))
            ]
            across_others = [
                _correlation(mine, _resampled(theirs, len(mine)))
                for other in rivals
                for mine, theirs in zip(values, other, strict=True)
            ]
            correlations.append(float(across_images))
            spreads.append(_spread(values))
            if across_others:
                above.append(float(across_images - numpy.mean(across_others)))
    return {CORRELATION[kind]: correlations, SPREAD[kind]: spreads, ABOVE_BASELINE[kind]: above}


def _down_sampling(parts: Sequence[xarray.Dataset]) -> dict[Quantity, Any]:
    """Members are the networks whose shortcuts are projections; padded ones are also reported."""
    found: dict[Quantity, Any] = {SEEDS: sum("projection" in part["skip"].values for part in parts)}
    for part in parts:
        shares = part["share_near_one"].mean("sample")
        for stage in (2, 3):
            here = of_stage(part, stage)["unit"].values
            regular = regular_units(of_stage(part, stage))["unit"].values
            for skip, quantities in (("projection", DOWN_SAMPLING), ("pad", PADDED)):
                down = [name for name in here if part["skip"].sel(unit=name) == skip]
                if len(down) and len(regular):
                    ratio = float(shares.sel(unit=down).mean() / shares.sel(unit=regular).mean())
                    found.setdefault(quantities[stage], []).append(ratio)
    return found


def _distance_of_depths(parts: Sequence[xarray.Dataset]) -> dict[Quantity, list[float]]:
    """|a - b| / max(a, b), rank by rank, of the mean spectra of the regular units; members are the stages."""
    by_depth = {
        depth: next((part for part in parts if str(part.attrs["network"]).startswith(f"resnet{depth}-cifar")), None)
        for depth in (56, 110)
    }
    if by_depth[56] is None or by_depth[110] is None:
        return {}
    distances = []
    for stage in (1, 2, 3):
        first, second = (
            regular_units(of_stage(part, stage))["value"].mean(("unit", "sample")).dropna("index").values
            for part in (by_depth[56], by_depth[110])
        )
        larger = numpy.maximum(first, second)
        kept = larger > NEGLIGIBLE * larger[0]
        distances.append(float(numpy.median(numpy.abs(first - second)[kept] / larger[kept])))
    return {DISTANCE: distances}


def _largest_over_median(part: xarray.Dataset) -> numpy.ndarray:
    """Infinite where at least half of the values are zero, up to rounding."""
    middle = part["value"].median("index")
    return (part["largest"] / middle).where(2 * part["rank"] > part["size"], numpy.inf).mean("sample").values


def _members(parts: Sequence[xarray.Dataset], get: Callable[[xarray.Dataset], numpy.ndarray]) -> list[float]:
    return [float(value) for part in parts for value in get(part)]


def _resampled(values: numpy.ndarray, size: int) -> numpy.ndarray:
    """At `size` evenly spaced ranks: stages have spectra of different sizes."""
    if len(values) == size:
        return values
    return numpy.interp(numpy.linspace(0, 1, size), numpy.linspace(0, 1, len(values)), values)


def _correlation(first: numpy.ndarray, second: numpy.ndarray) -> float:
    return float(numpy.corrcoef(first, second)[0, 1])


def _spread(values: numpy.ndarray) -> float:
    mean = values.mean(0)
    kept = mean > NEGLIGIBLE * mean.max()
    return float(numpy.median(values.std(0, ddof=1)[kept] / mean[kept]))


STUDY = Study(
    PAPER,
    "spectra",
    paper_found="A plateau at 1 in regular units, alike for all images; none in stages, whose largest values are huge.",
    we_expect="The plateau where few inner ReLUs are active (D.law); correlations to be read against their baseline.",
    presets=SPECTRA_PRESETS,
    cost={
        "smoke": "seconds",
        "quick": "3 minutes on 2 cores, and the training of three networks on digits; minutes more for a ResNet-56",
        "full": "2 minutes on one GPU for each large network",
        "paper": "half an hour on one GPU, and the training of a ResNet-110 where no weights are given",
    },
    run=run,
    claims=(D4, D5, D6, D17, D18),
)
