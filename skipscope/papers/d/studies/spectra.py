"""D.spectra: figure 1 of paper D, scree plots of units, down-sampling units and stages for five images.

    skipscope study run D.spectra --preset quick --out DIR
    skipscope study run D.spectra --preset full --device cuda --weights resnet56.pt --data cifar10:PATH --out DIR

The paper finds a plateau at 1 in regular units, nearly the same for every image; hardly one in down-sampling units;
none in whole stages, which have a few very large singular values; high rank; ResNet-56 and ResNet-110 alike.

The claims on these are here, with what each network's spectra are reduced to; D.population decides them. Spectra fall,
so that any two of them correlate: the correlation across images is compared with that across units of the same stage. A
spread is std / mean over the images, level by level, where the mean is above 1e-6 of the largest value.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy
import xarray

from skipscope.papers.d import PAPER
from skipscope.papers.d.measured_networks import (
    SPECTRA_PRESETS,
    NetworkSettings,
    evidence_by_subject,
    regular_units,
    spectra_of_networks,
)
from skipscope.papers.d.subjects import BOTH_DEPTHS, EACH_DEPTH, NETWORKS, RESNET56, Found, Values, of_each_depth
from skipscope.papers.d.summaries import summarised
from skipscope.papers.kit import Bench, Claim, Evidence, Part, Quantity, Study
from skipscope.papers.kit.estimates import Jackknife

NEGLIGIBLE = 1e-6  # of the largest value: below it a relative spread says nothing
FEWEST_SEEDS = 3
LARGEST_SHARE = 0.02  # near 1, of a stage that has no values beside
STAGES = (1, 2, 3)

# Of units, and of whole stages: across the images, and against a baseline.
CORRELATION = {
    kind: Quantity(f"correlation of {kind} across images", "correlation") for kind in ("spectra", "stage spectra")
}
SPREAD = {kind: Quantity(f"median relative spread of {kind} across images", "ratio") for kind in CORRELATION}
SEEDS_SPREAD = {kind: Quantity(f"median relative spread of {kind} across seeds", "ratio") for kind in CORRELATION}
ABOVE_BASELINE = {
    kind: Quantity(f"correlation of {kind} across images - across {others}")
    for kind, others in (("spectra", "units"), ("stage spectra", "stages"))
}
WIDTH_DEVIATION = Quantity("deviation of the exact plateau's width / n over images, mean over units")
D4 = Claim(
    "D4",
    "A unit's spectrum hardly depends on the image.",
    "quantile functions of the values other than 0 and 1 across images: correlation and median relative spread, means "
    "over units; standard deviation over images of the number of exact ones",
    parts=(
        *of_each_depth(
            "values other than 0 and 1",
            CORRELATION["spectra"].at_least(0.95),
            SPREAD["spectra"].at_most(0.05),
            controls=(ABOVE_BASELINE["spectra"].above(0.0),),
        ),
        *of_each_depth("width of the plateau", WIDTH_DEVIATION.at_most(0.05)),
    ),
    subjects=EACH_DEPTH,
    note="Spectra of different units correlate too: without that baseline a high correlation says little.",
)

DOWN_SAMPLING = {
    stage: Quantity(f"share near 1, down-sampling / regular units, stage {stage}", "ratio") for stage in (2, 3)
}
PADDED = {stage: quantity.of("padded shortcuts") for stage, quantity in DOWN_SAMPLING.items()}
D5 = Claim(
    "D5",
    "Down-sampling units have no plateau.",
    "share of singular values near 1, down-sampling over regular units, with projections as shortcuts",
    parts=of_each_depth("", DOWN_SAMPLING[2].at_most(1 / 3), DOWN_SAMPLING[3].at_most(1 / 3)),
    subjects=EACH_DEPTH,
    note="Shortcuts that pad with zeros are also reported.",
)

NEAR_OVER_BESIDE = {
    stage: Quantity(f"share in 0.99 to 1.01 / mean share of its neighbours, stage {stage}", "ratio") for stage in STAGES
}
STAGE_NEAR_ONE = {stage: Quantity(f"share near 1, stage {stage}", "share") for stage in STAGES}
LARGEST_OVER_MEDIAN = {
    stage: Quantity(f"largest / median of the values other than 0, stage {stage}", "ratio") for stage in STAGES
}
D6 = Claim(
    "D6",
    "The Jacobian of a whole stage has no plateau, but a few huge singular values.",
    "of each stage's Jacobian: share in 0.99 to 1.01 over the mean of 0.97 to 0.99 and 1.01 to 1.03; largest value "
    "over the median of those that are not 0",
    parts=tuple(
        part
        for stage in STAGES
        for name, criterion in (
            (f"no plateau in stage {stage}", NEAR_OVER_BESIDE[stage].at_most(1.5)),
            (f"huge values in stage {stage}", LARGEST_OVER_MEDIAN[stage].at_least(10.0)),
        )
        for part in of_each_depth(name, criterion)
    ),
    subjects=EACH_DEPTH,
    note="A smooth density has as many values near 1 as beside it, which is no plateau.",
)

MEAN = Quantity("mean singular value, regular units")
MEAN_OF_OTHERS = Quantity("mean of the values other than 0, regular units")
MEAN_OF_RANDOM = Quantity("mean of the values other than 0, random weights")
D17 = Claim(
    "D17",
    "The mean singular value of a residual unit is close to 1 by its structure.",
    "mean singular value of regular units",
    parts=(
        *of_each_depth("all values", MEAN.within(0.9, 1.1)),
        *of_each_depth("values other than 0", MEAN_OF_OTHERS.within(0.9, 1.1)),
        *of_each_depth("values other than 0, random weights", MEAN_OF_RANDOM.within(0.9, 1.1)),
    ),
    subjects=EACH_DEPTH,
    note="Inactive outputs are zeros, which the paper's statement does not mention.",
)

RANK = {stage: Quantity(f"rank / n, stage {stage}", "share") for stage in STAGES}
LATE_RANK = Quantity("rank / n, stage 3 - stages 1 and 2")
DISTANCE = {
    stage: Quantity(f"distance of spectra between depths / between seeds, stage {stage}", "ratio") for stage in STAGES
}
BETWEEN_DEPTHS = {stage: Quantity(f"median relative distance between depths, stage {stage}") for stage in STAGES}
D18 = Claim(
    "D18",
    "Units have high rank but in stage 3 of ResNet-56; ResNet-56 and ResNet-110 are alike; the spectra of stages "
    "hardly depend on the image.",
    "rank over size, mean over the units of a stage; distance of the mean spectra of two depths over that of two "
    "seeds; quantile functions of stage spectra across images",
    parts=(
        *of_each_depth("high rank in stages 1 and 2", RANK[1].at_least(0.75), RANK[2].at_least(0.75)),
        Part("lower rank in stage 3 of ResNet-56", (LATE_RANK.below(0.0),), subject=RESNET56),
        Part("both depths alike", tuple(DISTANCE[stage].at_most(1.5) for stage in STAGES), subject=BOTH_DEPTHS),
        *of_each_depth(
            "stage spectra across images",
            CORRELATION["stage spectra"].at_least(0.95),
            SPREAD["stage spectra"].at_most(0.05),
            controls=(ABOVE_BASELINE["stage spectra"].above(0.0),),
        ),
    ),
    subjects={**EACH_DEPTH, BOTH_DEPTHS: 2 * NETWORKS},
    note="The paper says of ResNet-56 alone that stage 3 has a lower rank; the rank of ResNet-110's is beside.",
)


def run(bench: Bench, settings: NetworkSettings) -> Evidence:
    return evidence_by_subject(map(summarised, spectra_of_networks(bench, settings)), of_spectra)


def of_spectra(data: xarray.Dataset) -> Found:
    """data: summaries of the networks of one subject."""
    units, stages = (data.isel(unit=(data["kind"] == kind).values) for kind in ("unit", "stage"))
    regular = regular_units(data)
    found: dict[Claim, Values] = {
        D4: across_images(units, "spectra"),
        D5: _down_sampling(units),
        D6: _whole_stages(stages),
        D17: {
            MEAN: regular["mean"].mean(("unit", "sample")),
            MEAN_OF_OTHERS: regular["mean_positive"].mean(("unit", "sample")),
        },
        D18: {**_ranks(regular), **across_images(stages, "stage spectra")},
    }
    return found


def of_counts(counts: xarray.Dataset) -> Found:
    """counts: exact ones of every regular unit over many images, by the law."""
    return {D4: {WIDTH_DEVIATION: counts["deviation"].sel(quantity="ones").mean("unit")}}


def of_random_weights(data: xarray.Dataset) -> Found:
    return {D17: {MEAN_OF_RANDOM: data["mean_positive"].mean(("unit", "sample"))}}


def across_images(data: xarray.Dataset, kind: str) -> Values:
    """Means over the units of a network, each compared with units of its stage, or over its stages."""
    if data.sizes["sample"] < 2:
        return {}
    key = "quantile_off" if kind == "spectra" else "quantile"
    data = data.transpose("network", "unit", "sample", ...)
    curves = data[key].values.astype(float)  # networks, units, images, levels
    stage = data["stage"].values if kind == "spectra" else None
    rows = [_across_images(network, stage) for network in curves]
    quantities = (CORRELATION[kind], SPREAD[kind], ABOVE_BASELINE[kind])
    found: dict[Quantity, Any] = dict(zip(quantities, map(list, zip(*rows, strict=True)), strict=True))
    if len(curves) > 1:
        found[SEEDS_SPREAD[kind]] = _across_seeds(curves)
    return found


def _across_images(curves: numpy.ndarray, stage: numpy.ndarray | None) -> tuple[float, float, float]:
    """Of one network: correlation across images, spread, and the former less the correlation across units."""
    known = [place for place in range(len(curves)) if not numpy.isnan(curves[place]).any()]
    own, spreads, others = [], [], []
    for place in known:
        own.append(_mean([_correlation(a, b) for a, b in itertools.combinations(curves[place], 2)]))
        spreads.append(spread(curves[place]))
        rivals = [other for other in known if other != place and (stage is None or stage[other] == stage[place])]
        pairs = (zip(curves[place], curves[other], strict=True) for other in rivals)  # of the same image
        others += [_correlation(mine, theirs) for images in pairs for mine, theirs in images]
    mean, baseline = _mean(own), _mean(others)
    return mean, _mean(spreads), mean - baseline


def _mean(values: Sequence[float]) -> float:
    return float(numpy.mean(values)) if values else numpy.nan


def _across_seeds(curves: numpy.ndarray) -> float:
    """The spread over the networks, of the first image, mean over units: what images are compared with beside."""
    units = curves[:, :, 0].swapaxes(0, 1)
    return float(numpy.mean([spread(unit) for unit in units if not numpy.isnan(unit).any()]))


def _down_sampling(units: xarray.Dataset) -> Values:
    """Padded shortcuts are also reported."""
    found: dict[Quantity, Any] = {}
    shares = units["share_near_one"].mean("sample")
    for stage in (2, 3):
        here = units["stage"] == stage
        regular = shares.isel(unit=(here & (units["skip"] == "identity")).values)
        for skip, quantities in (("projection", DOWN_SAMPLING), ("pad", PADDED)):
            down = shares.isel(unit=(here & (units["skip"] == skip)).values)
            if down.sizes["unit"] and regular.sizes["unit"]:
                found[quantities[stage]] = down.mean("unit") / regular.mean("unit")
    return found


def _whole_stages(stages: xarray.Dataset) -> Values:
    found: dict[Quantity, Any] = {}
    for number in STAGES:
        here = stages.isel(unit=(stages["stage"] == number).values)
        if not here.sizes["unit"]:
            continue
        one = here.isel(unit=0)
        means = one.mean("sample")
        beside = (means["share_just_below"] + means["share_just_above"]) / 2
        pairs = zip(means["share_near_one"].values, beside.values, strict=True)
        found[NEAR_OVER_BESIDE[number]] = [near_over_beside(float(near), float(mean)) for near, mean in pairs]
        found[STAGE_NEAR_ONE[number]] = means["share_near_one"]
        found[LARGEST_OVER_MEDIAN[number]] = (one["largest"] / one["median_positive"]).mean("sample")
    return found


def near_over_beside(near: float, beside: float) -> float:
    """Without neighbours a share of at most 0.02 is no plateau, as if there were as many beside; a larger one is."""
    if beside > 0:
        return near / beside
    return 1.0 if near <= LARGEST_SHARE else numpy.inf


def _ranks(regular: xarray.Dataset) -> Values:
    ranks = 1 - regular["share_zero"].mean("sample")
    found: dict[Quantity, Any] = {}
    for stage in STAGES:
        here = ranks.isel(unit=(regular["stage"] == stage).values)
        if here.sizes["unit"]:
            found[RANK[stage]] = here.mean("unit")
    late = (regular["stage"] == 3).values
    if late.any() and not late.all():
        found[LATE_RANK] = ranks.isel(unit=late).mean("unit") - ranks.isel(unit=~late).mean("unit")
    return found


def depths_alike(small: xarray.Dataset, large: xarray.Dataset) -> Found:
    """The distance between mean spectra of two depths over that between seeds of one depth.

    Its interval is that of a jackknife: each network is left out in turn, which takes three of each depth.
    """
    found: dict[Quantity, Any] = {}
    if min(small.sizes["network"], large.sizes["network"]) < FEWEST_SEEDS:
        return {D18: found}
    for stage in STAGES:
        regular = [regular_units(data) for data in (small, large)]
        curves = [
            data.isel(unit=(data["stage"] == stage).values)["quantile"].mean(("unit", "sample")).values.astype(float)
            for data in regular
        ]
        without = [
            _ratio([numpy.delete(rows, place, 0) if own == depth else rows for own, rows in enumerate(curves)])
            for depth, members in enumerate(curves)
            for place in range(len(members))
        ]
        found[DISTANCE[stage]] = Jackknife(_ratio(curves), without, "ratio")
        found[BETWEEN_DEPTHS[stage]] = _mean_distance(*curves)
    return {D18: found}


def _ratio(curves: Sequence[numpy.ndarray]) -> float:
    """curves: of each depth, networks x levels."""
    pairs = [[distance(a, b) for a, b in itertools.combinations(rows, 2)] for rows in curves]
    return _mean_distance(*curves) / float(numpy.mean([numpy.mean(each) for each in pairs]))


def _mean_distance(first: numpy.ndarray, second: numpy.ndarray) -> float:
    return float(numpy.mean([distance(a, b) for a in first for b in second]))


def distance(first: numpy.ndarray, second: numpy.ndarray) -> float:
    """The median of |a - b| / max(a, b), level by level."""
    larger = numpy.maximum(first, second)
    kept = larger > NEGLIGIBLE * larger.max()
    return float(numpy.median(numpy.abs(first - second)[kept] / larger[kept]))


def spread(values: numpy.ndarray) -> float:
    mean = values.mean(0)
    kept = mean > NEGLIGIBLE * mean.max()
    return float(numpy.median(values.std(0, ddof=1)[kept] / mean[kept]))


def _correlation(first: numpy.ndarray, second: numpy.ndarray) -> float:
    return float(numpy.corrcoef(first, second)[0, 1])


STUDY = Study(
    PAPER,
    "spectra",
    paper_found="A plateau at 1 in regular units, alike for all images; none in stages, whose largest values are huge.",
    we_expect="The plateau where few inner ReLUs are active (D.law); correlations to be read against their baseline.",
    presets=SPECTRA_PRESETS,
    cost={
        "smoke": "seconds",
        "quick": "5 minutes on 2 cores, and the training of five networks on digits; minutes more for a ResNet-56",
        "full": "2 minutes on one GPU for each large network",
        "paper": "half an hour on one GPU, and the training of a ResNet-110 where no weights are given",
    },
    run=run,
)
