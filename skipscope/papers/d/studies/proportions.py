"""D.proportions: figure 2 of paper D, shares of singular values above 1, near 1, below and zero, unit by unit.

    skipscope study run D.proportions --preset full --device cuda --weights resnet56.pt --data cifar10:PATH --out DIR

The paper finds that the share above 1 falls a little with depth; that the share near 1 grows in stages 1 and 2 and
falls in stage 3; that the share of zeros falls in stages 1 and 2 and grows in stage 3.

The claims on these are here, with what each network is reduced to; D.population decides them. Slopes and rank
correlations are over regular units, of means over the images. Exact ones and zeros are counted by the law, on many
images; on the networks for digits, which have full spectra alone, among their singular values.
"""

from __future__ import annotations

from collections.abc import Mapping
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
from skipscope.papers.d.subjects import EACH_DEPTH, RESNET110_DECIDES, Found, of_each_depth, together
from skipscope.papers.d.summaries import summarised
from skipscope.papers.kit import Bench, Claim, Evidence, Part, Quantity, Study

STAGES = (1, 2, 3)
FEWEST_UNITS = 3  # of a stage, for a trend
MOST_UNITS = 2 / 3  # share of the units that have to have a plateau

NEAR_ONE = Quantity("share near 1, mean over regular units of stages 1 and 2", "share")
WITH_PLATEAU = Quantity("share of units of stages 1 and 2 with at least 0.3 of their values near 1", "share")
WITH_MOST = Quantity("share of units of stages 1 and 2 with more than 0.5 of their values near 1", "share")
DOWN_NEAR_ONE = Quantity("share near 1, largest of the down-sampling units", "share")
D2 = Claim(
    "D2",
    "Residual units have a plateau of singular values at 1, and most of them are there.",
    "share of the regular units of stages 1 and 2 whose share of singular values near 1 is large",
    parts=(
        *of_each_depth("a plateau", WITH_PLATEAU.at_least(MOST_UNITS), controls=(DOWN_NEAR_ONE.below(0.3),)),
        *of_each_depth("most values", WITH_MOST.at_least(MOST_UNITS), controls=(DOWN_NEAR_ONE.below(0.5),)),
    ),
    subjects=EACH_DEPTH,
    note="In small networks too many inner ReLUs are active for a plateau (D3).",
)

ABOVE_ONE_TREND = Quantity("Spearman of unit and share above 1, all regular units", "correlation")
ABOVE_ONE_IN_STAGE = {
    stage: Quantity(f"Spearman of unit and share above 1, stage {stage}", "correlation") for stage in STAGES
}
D7 = Claim(
    "D7",
    "Through the network, fewer singular values are above 1 the deeper the unit.",
    "rank correlation of unit and share above 1, over all regular units of a network; in each stage beside",
    criteria=(ABOVE_ONE_TREND.below(0.0),),
    subjects=RESNET110_DECIDES,
)

ONES_SLOPE = {stage: Quantity(f"slope of exact ones / n over units, stage {stage}") for stage in STAGES}
NEAR_ONE_SLOPE = {stage: Quantity(f"slope of share near 1 over units, stage {stage}") for stage in STAGES}
D8 = Claim(
    "D8",
    "The share of singular values near 1 rises with depth in stages 1 and 2 and falls in stage 3.",
    "slope of the share of exact ones over the units of each stage; of values in 0.99 to 1.01 beside",
    parts=(
        Part("rises in stage 1", (ONES_SLOPE[1].above(0.0),)),
        Part("rises in stage 2", (ONES_SLOPE[2].above(0.0),)),
        Part("falls in stage 3", (ONES_SLOPE[3].below(0.0),)),
    ),
    subjects=RESNET110_DECIDES,
    note=(
        "Depends on what is counted: in stage 3 exact ones become fewer while 0.99 to 1.01 fills with values that are "
        "near 1 without being 1."
    ),
)

ZEROS_SLOPE = {stage: Quantity(f"slope of exact zeros / n over units, stage {stage}") for stage in STAGES}
ZERO_SHARE_SLOPE = {stage: Quantity(f"slope of share of zeros in full spectra, stage {stage}") for stage in STAGES}
D9 = Claim(
    "D9",
    "The share of singular values 0 falls with depth in stages 1 and 2 and rises in stage 3.",
    "slope of the share of exact zeros over the units of each stage; of zeros in full spectra beside",
    parts=(
        Part("falls in stage 1", (ZEROS_SLOPE[1].below(0.0),)),
        Part("falls in stage 2", (ZEROS_SLOPE[2].below(0.0),)),
        Part("rises in stage 3", (ZEROS_SLOPE[3].above(0.0),)),
    ),
    subjects=RESNET110_DECIDES,
    note=(
        "Depends on the recipe: with the second one the zeros of ResNet-110 do what the paper says in all stages; with "
        "the first one five networks do not decide it."
    ),
)


def run(bench: Bench, settings: NetworkSettings) -> Evidence:
    summaries = map(summarised, spectra_of_networks(bench, settings))
    return evidence_by_subject(summaries, lambda data: together(of_spectra(data), _exact_in_spectra(data)))


def of_spectra(data: xarray.Dataset) -> Found:
    """data: summaries of the networks of one subject."""
    regular = regular_units(data)
    means = regular.mean("sample")
    early = means["share_near_one"].isel(unit=regular["stage"].isin((1, 2)).values)
    changing = data.isel(unit=((data["kind"] == "unit") & (data["skip"] != "identity")).values)
    found: dict[Claim, dict[Quantity, Any]] = {
        D2: {
            NEAR_ONE: early.mean("unit"),
            WITH_PLATEAU: (early >= 0.3).mean("unit"),
            WITH_MOST: (early > 0.5).mean("unit"),
        },
        D7: {ABOVE_ONE_TREND: _spearman(means["share_above"])},
        D8: _slopes(means["share_near_one"], NEAR_ONE_SLOPE),
        D9: _slopes(means["share_zero"], ZERO_SHARE_SLOPE),
    }
    if changing.sizes["unit"]:
        found[D2][DOWN_NEAR_ONE] = changing["share_near_one"].mean("sample").max("unit")
    for stage, quantity in ABOVE_ONE_IN_STAGE.items():
        here = _of_stage(means["share_above"], stage)
        if here.sizes["unit"] >= FEWEST_UNITS:
            found[D7][quantity] = _spearman(here)
    return found


def of_counts(counts: xarray.Dataset) -> Found:
    """counts: exact ones and zeros of every regular unit over many images, by the law."""
    return _exact(counts["mean"].sel(quantity="ones"), counts["mean"].sel(quantity="zeros"))


def _exact_in_spectra(data: xarray.Dataset) -> Found:
    means = regular_units(data).mean("sample")
    return _exact(means["share_one"], means["share_zero"])


def _exact(ones: xarray.DataArray, zeros: xarray.DataArray) -> Found:
    return {D8: _slopes(ones, ONES_SLOPE), D9: _slopes(zeros, ZEROS_SLOPE)}


def _slopes(shares: xarray.DataArray, quantities: Mapping[int, Quantity]) -> dict[Quantity, Any]:
    """quantities: by stage; of the stages that have enough units."""
    found = {}
    for stage, quantity in quantities.items():
        here = _of_stage(shares, stage)
        if here.sizes["unit"] >= FEWEST_UNITS:
            found[quantity] = [slope(row) for row in here.transpose("network", "unit").values]
    return found


def _of_stage(shares: xarray.DataArray, stage: int) -> xarray.DataArray:
    return shares.isel(unit=(shares["stage"] == stage).values)


def _spearman(shares: xarray.DataArray) -> list[float]:
    from scipy.stats import spearmanr

    rows = shares.transpose("network", "unit").values
    return [float(spearmanr(numpy.arange(len(row)), row).statistic) for row in rows]


def slope(values: numpy.ndarray) -> float:
    return float(numpy.polyfit(numpy.arange(len(values)), values, 1)[0])


STUDY = Study(
    PAPER,
    "proportions",
    paper_found="Fewer values above 1 with depth; more near 1 in stages 1 and 2, fewer in stage 3; zeros inversely.",
    we_expect="Trends on ResNet-56 and ResNet-110; small networks have no plateau and are shown beside them.",
    presets=SPECTRA_PRESETS,
    cost={
        "smoke": "seconds",
        "quick": "none of its own where D.spectra ran into the same folder",
        "full": "none of its own where D.spectra ran into the same folder, else 2 minutes per network on one GPU",
        "paper": "none of its own where D.spectra ran into the same folder, else half an hour on one GPU",
    },
    run=run,
)
