"""D.proportions: figure 2 of paper D, shares of singular values above 1, near 1, below and zero, unit by unit.

    skipscope study run D.proportions --preset full --device cuda --weights resnet56.pt --data cifar10:PATH --out DIR

The paper finds that the share above 1 falls a little with depth; that the share near 1 grows in stages 1 and 2 and
falls in stage 3; that the share of zeros falls in stages 1 and 2 and grows in stage 3. Slopes and rank correlations are
over the regular units of a stage, of means over the images; the members are the networks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy

from skipscope.papers.d import PAPER
from skipscope.papers.d.claims import decided_by
from skipscope.papers.d.measured import SPECTRA_PRESETS, all_spectra, judged, of_stage, regular
from skipscope.papers.d.subjects import Subjects
from skipscope.papers.kit.bench import Bench
from skipscope.papers.kit.study import Evidence, Study

if TYPE_CHECKING:
    import xarray

FEWEST = 3  # units of a stage for a trend


def run(bench: Bench, settings: Subjects) -> Evidence:
    return evidence(list(all_spectra(bench, settings)))


def evidence(found: Sequence[xarray.Dataset]) -> dict[str, dict[str, Any]]:
    parts = judged(found)
    networks = {"seeds": len(parts)}
    normal = [regular(part) for part in parts]
    near = [
        float(value)
        for part in normal
        for stage in (1, 2)
        for value in of_stage(part, stage)["share_near_one"].mean("sample").values
    ]
    return {
        "D2": {**networks, "share near 1, regular units of stages 1-2": near},
        "D7": {**networks, **_trends(normal, "share_above", "Spearman of unit and share above 1", _spearman)},
        "D8": {**networks, **_trends(normal, "share_near_one", "slope of share near 1 over units", _slope)},
        "D9": {**networks, **_trends(normal, "share_zero", "slope of share of zeros over units", _slope)},
    }


def _trends(
    parts: Sequence[xarray.Dataset], key: str, name: str, trend: Callable[[numpy.ndarray], float]
) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {f"{name}, stage {stage}": [] for stage in (1, 2, 3)}
    for part in parts:
        for stage in (1, 2, 3):
            values = of_stage(part, stage)[key].mean("sample").values
            if len(values) >= FEWEST:
                found[f"{name}, stage {stage}"].append(trend(values))
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
        "full": "none of its own where D.spectra ran into the same folder, else 2 minutes a network on one GPU",
        "paper": "none of its own where D.spectra ran into the same folder, else half an hour on one GPU",
    },
    run=run,
    claims=decided_by("D.proportions"),
)
