"""D.proportions: figure 2 of paper D, shares of singular values above 1, near 1, below and zero, unit by unit.

    skipscope study run D.proportions --preset full --device cuda --weights resnet56.pt --data cifar10:PATH --out DIR

The paper finds that the share above 1 falls a little with depth; that the share near 1 grows in stages 1 and 2 and
falls in stage 3; that the share of zeros falls in stages 1 and 2 and grows in stage 3. Slopes and rank correlations are
over the regular units of a stage, of means over the images; the members are the networks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

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
from skipscope.papers.kit import SEEDS, Bench, Claim, Evidence, Part, Quantity, Study

STAGES = (1, 2, 3)
FEWEST_UNITS = 3  # of a stage, for a trend

NEAR_ONE = Quantity("share near 1, regular units of stages 1-2")
D2 = Claim(
    "D2",
    "Residual units have a plateau of singular values at 1, and most of them are there.",
    "share of singular values near 1, regular units of stages 1 and 2",
    parts=(Part("a plateau", (NEAR_ONE.at_least(0.3),)), Part("most values", (NEAR_ONE.above(0.5),))),
    seeds=3,
    presets=("full", "paper"),
    note=(
        "A trained ResNet-56 has the plateau (0.20 to 0.50) and "
        "not most; in small networks too many inner ReLUs are active for a plateau (D3)."
    ),
)

ABOVE_ONE_TREND = {stage: Quantity(f"Spearman of unit and share above 1, stage {stage}") for stage in STAGES}
D7 = Claim(
    "D7",
    "Within a stage, fewer singular values are above 1 the deeper the unit.",
    "rank correlation of unit and share above 1, in each stage",
    criteria=tuple(ABOVE_ONE_TREND[stage].at_most(-0.3) for stage in STAGES),
    seeds=3,
    presets=("full", "paper"),
)

NEAR_ONE_SLOPE = {stage: Quantity(f"slope of share near 1 over units, stage {stage}") for stage in STAGES}
D8 = Claim(
    "D8",
    "The share of singular values near 1 rises with depth in stages 1 and 2 and falls in stage 3.",
    "slope of the share near 1 over the units of each stage",
    criteria=(NEAR_ONE_SLOPE[1].above(0.0), NEAR_ONE_SLOPE[2].above(0.0), NEAR_ONE_SLOPE[3].below(0.0)),
    seeds=3,
    presets=("full", "paper"),
)

ZEROS_SLOPE = {stage: Quantity(f"slope of share of zeros over units, stage {stage}") for stage in STAGES}
D9 = Claim(
    "D9",
    "The share of singular values 0 falls with depth in stages 1 and 2 and rises in stage 3.",
    "slope of the share of zeros over the units of each stage",
    criteria=(ZEROS_SLOPE[1].below(0.0), ZEROS_SLOPE[2].below(0.0), ZEROS_SLOPE[3].above(0.0)),
    seeds=3,
    presets=("full", "paper"),
)


def run(bench: Bench, settings: NetworkSettings) -> Evidence:
    return evidence(spectra_of_networks(bench, settings))


def evidence(found: Sequence[xarray.Dataset]) -> Evidence:
    parts = judged(found)
    networks = {SEEDS: len(parts)}
    regular = [regular_units(part) for part in parts]
    near_one = [
        float(value)
        for part in regular
        for stage in (1, 2)
        for value in of_stage(part, stage)["share_near_one"].mean("sample").values
    ]
    return {
        D2: {**networks, NEAR_ONE: near_one},
        D7: {**networks, **_trends(regular, "share_above", ABOVE_ONE_TREND, _spearman)},
        D8: {**networks, **_trends(regular, "share_near_one", NEAR_ONE_SLOPE, _slope)},
        D9: {**networks, **_trends(regular, "share_zero", ZEROS_SLOPE, _slope)},
    }


def _trends(
    parts: Sequence[xarray.Dataset],
    variable: str,
    quantities: Mapping[int, Quantity],
    trend: Callable[[numpy.ndarray], float],
) -> dict[Quantity, list[float]]:
    """quantities: by stage. Members are the networks whose stage has enough units."""
    found = {}
    for stage, quantity in quantities.items():
        shares = [of_stage(part, stage)[variable].mean("sample").values for part in parts]
        found[quantity] = [trend(values) for values in shares if len(values) >= FEWEST_UNITS]
    return found


def _spearman(values: numpy.ndarray) -> float:
    from scipy.stats import spearmanr

    return float(spearmanr(numpy.arange(len(values)), values).statistic)


def _slope(values: numpy.ndarray) -> float:
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
    claims=(D2, D7, D8, D9),
)
