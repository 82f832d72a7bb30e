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
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy

from skipscope.papers.d import PAPER
from skipscope.papers.d.claims import decided_by
from skipscope.papers.d.measured import SPECTRA_PRESETS, all_spectra, judged, of_stage, regular, stages
from skipscope.papers.d.subjects import Subjects
from skipscope.papers.kit.bench import Bench
from skipscope.papers.kit.study import Evidence, Study

if TYPE_CHECKING:
    import xarray

NEGLIGIBLE = 1e-6  # of the largest value: below it a relative spread says nothing


def run(bench: Bench, settings: Subjects) -> Evidence:
    return evidence(list(all_spectra(bench, settings)))


def evidence(found: Sequence[xarray.Dataset]) -> dict[str, dict[str, Any]]:
    parts = judged(found)
    networks = {"seeds": len(parts)}
    units = [part.isel(unit=(part["kind"] == "unit").values) for part in parts]
    whole = [stages(part) for part in parts]
    normal = [regular(part) for part in parts]
    return {
        "D4": {**networks, **_images(units, "spectra", "units", same_stage=True)},
        "D5": _down_sampling(found),
        "D6": {
            **networks,
            "largest / median singular value of a stage": _members(whole, _largest_over_median),
            "share near 1 of a stage": _members(whole, lambda one: one["share_near_one"].mean("sample").values),
        },
        "D17": {
            **networks,
            "mean singular value, regular units": _members(normal, lambda one: one["mean"].mean("sample").values),
        },
        "D18": {
            **networks,
            "rank / n, units of stages 1-2": [
                value for one in normal for stage in (1, 2) for value in _rank_shares(of_stage(one, stage))
            ],
            **_alike(parts),
            **_images(whole, "stage spectra", "stages", same_stage=False),
        },
    }


def _images(parts: Sequence[xarray.Dataset], what: str, others: str, same_stage: bool) -> dict[str, list[float]]:
    """Members are the units (or stages) of all networks."""
    correlations, spreads, above = [], [], []
    for part in parts:
        spectra = {str(name): _values(part, name) for name in part["unit"].values}  # samples x size
        stage = {str(name): int(part["stage"].sel(unit=name)) for name in part["unit"].values}
        for name, values in spectra.items():
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
    return {
        f"correlation of {what} across images": correlations,
        f"median relative spread of {what} across images": spreads,
        f"correlation of {what} across images - across {others}": above,
    }


def _down_sampling(parts: Sequence[xarray.Dataset]) -> dict[str, Any]:
    """Members are the networks whose shortcuts are projections; padded ones are reported besides."""
    found: dict[str, Any] = {"seeds": sum("projection" in part["skip"].values for part in parts)}
    for part in parts:
        shares = part["share_near_one"].mean("sample")
        for stage in (2, 3):
            here = of_stage(part, stage)["unit"].values
            same = regular(of_stage(part, stage))["unit"].values
            for kind in ("projection", "pad"):
                down = [n for n in here if part["skip"].sel(unit=n) == kind]
                if len(down) and len(same):
                    remark = "" if kind == "projection" else ", padded shortcuts"
                    ratio = float(shares.sel(unit=down).mean() / shares.sel(unit=same).mean())
                    name = f"share near 1, down-sampling / regular units, stage {stage}{remark}"
                    found.setdefault(name, []).append(ratio)
    return found


def _alike(parts: Sequence[xarray.Dataset]) -> dict[str, list[float]]:
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
            regular(of_stage(part, stage))["value"].mean(("unit", "sample")).dropna("index").values
            for part in (by_depth[56], by_depth[110])
        )
        larger = numpy.maximum(first, second)
        kept = larger > NEGLIGIBLE * larger[0]
        distances.append(float(numpy.median(numpy.abs(first - second)[kept] / larger[kept])))
    return {"median relative distance of spectra, ResNet-56 and ResNet-110": distances}


def _largest_over_median(part: xarray.Dataset) -> numpy.ndarray:
    """Infinite where at least half of the values are zero, up to rounding."""
    middle = part["value"].median("index")
    return (part["largest"] / middle).where(2 * part["rank"] > part["size"], numpy.inf).mean("sample").values


def _rank_shares(part: xarray.Dataset) -> list[float]:
    return [float(value) for value in (part["rank"] / part["size"]).mean("sample").values]


def _members(parts: Sequence[xarray.Dataset], get: Any) -> list[float]:
    return [float(value) for part in parts for value in get(part)]


def _values(part: xarray.Dataset, name: str) -> numpy.ndarray:
    return part["value"].sel(unit=name).dropna("index", how="all").values


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
    claims=decided_by("D.spectra"),
)
