"""The numbers of paper D's claims on the population, for each network, from `docs/results/D/population` alone.

    python scripts/population_numbers.py docs/results/D/population

Writes numbers.json and a table of it, numbers.md: for each claim, depth and part the value of every network (one
number each: images, units and stages are reduced inside a network first), and Student's 95 % interval of their mean. It
is taken on logarithms for ratios, on logits for shares (kept .001 away from 0 and 1) and on Fisher's z for correlations
(kept within .99). `expected` is what the claim says of the mean; `interval_is` says on which side of it the interval
lies. Verdicts are not given here: they belong to the claims' rules. What was not measured is left out.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy
import xarray
from scipy.stats import spearmanr, t

DEPTHS = ("resnet56", "resnet110")
NEGLIGIBLE = 1e-6  # of the largest value: below it a relative spread says nothing
SMALLEST_SHARE = 1e-3  # shares and correlations are kept this far from the ends of their scales, and ratios from zero
LAST = 3  # units of the jump at the end

SCALES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "plain": (lambda v: v, lambda v: v),
    "ratio": (lambda v: numpy.log(numpy.maximum(v, SMALLEST_SHARE)), numpy.exp),
    "share": (
        lambda v: (
            numpy.log(numpy.clip(v, SMALLEST_SHARE, 1 - SMALLEST_SHARE))
            - numpy.log(1 - numpy.clip(v, SMALLEST_SHARE, 1 - SMALLEST_SHARE))
        ),
        lambda v: 1 / (1 + numpy.exp(-v)),
    ),
    "correlation": (lambda v: numpy.arctanh(numpy.clip(v, -0.99, 0.99)), numpy.tanh),
}

Part = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    parts: list[Part] = []
    for depth in DEPTHS:
        open_ = Opened(folder, depth)
        for measured, needed in MEASURED.items():
            if all(name in open_ for name in needed):
                parts += [{"claim": part.pop("claim"), "depth": depth, **part} for part in measured(open_)]
    small, large = (Opened(folder, depth) for depth in DEPTHS)
    if "spectra" in small and "spectra" in large:
        parts += depths_alike(small, large)
    parts.sort(key=lambda part: int(part["claim"][1:]))
    lines = ",\n ".join(json.dumps(part) for part in parts)
    (folder / "numbers.json").write_text(f"[\n {lines}\n]\n")
    (folder / "numbers.md").write_text("\n".join(in_markdown(parts)) + "\n")


class Opened:
    def __init__(self, folder: Path, depth: str) -> None:
        self._folder, self.depth = folder, depth

    def __contains__(self, name: str) -> bool:
        return self._path(name).exists()

    def __getitem__(self, name: str) -> xarray.Dataset:
        return xarray.load_dataset(self._path(name), engine="h5netcdf")

    def _path(self, name: str) -> Path:
        return self._folder / f"{self.depth}-{name}.nc"


def part_of(claim: str, what: str, values: Any, expected: str = "", scale: str = "plain") -> Part:
    """expected: such as "<= 0.5", "> 0" or "0.9 to 1.1"; empty where the claim says nothing."""
    values = numpy.asarray(values, dtype=float)
    to, back = SCALES[scale]
    mean, low, high = interval(to(values))
    found = {"mean": float(back(mean)), "low": float(back(low)), "high": float(back(high))}
    rounded = {name: float(f"{value:.4g}") for name, value in found.items()}
    each = [float(f"{value:.4g}") for value in values]
    side = {"expected": expected, "interval_is": side_of(found, expected)} if expected else {}
    return {"claim": claim, "part": what, "networks": each, **rounded, "scale": scale, **side}


def interval(values: numpy.ndarray) -> tuple[float, float, float]:
    mean, count = values.mean(), len(values)
    half = t.ppf(0.975, count - 1) * values.std(ddof=1) / math.sqrt(count)
    return mean, mean - half, mean + half


def side_of(found: dict[str, float], expected: str) -> str:
    low, high = found["low"], found["high"]
    if " to " in expected:
        least, most = map(float, expected.split(" to "))
        inside, outside = least <= low and high <= most, high < least or low > most
    else:
        sign, number = expected.split()
        threshold = float(number)
        inside = high <= threshold if sign.startswith("<") else low >= threshold
        outside = low > threshold if sign.startswith("<") else high < threshold
    return "on the claimed side" if inside else "on the other side" if outside else "across the threshold"


def in_markdown(parts: Sequence[Part]) -> Iterator[str]:
    yield "# Paper D on the population, part by part"
    yield ""
    yield "Made by `scripts/population_numbers.py` from the datasets beside it. Networks in the order of their seeds,"
    yield "1000 to 1004 (of both depths: each left out in turn, ResNet-56 first); the mean with its 95 % interval over"
    yield "networks, on logits for shares (kept .001 away from 0 and 1), on logarithms for ratios, on Fisher's z for"
    yield "correlations (kept within .99); what the claim says, and where the interval lies."
    yield ""
    yield "| claim | depth | part | networks | mean (interval) | claimed | interval |"
    yield "|---|---|---|---|---|---|---|"
    for part in parts:
        each = ", ".join(f"{value:.3g}" for value in part["networks"])
        mean = f"{part['mean']:.3g} ({part['low']:.3g} to {part['high']:.3g})"
        side = f"{part.get('expected', '')} | {part.get('interval_is', '')}"
        yield f"| {part['claim']} | {part['depth']} | {part['part']} | {each} | {mean} | {side} |"


# -- which units


def regular(data: xarray.Dataset, stages: Sequence[int] = (1, 2, 3)) -> xarray.Dataset:
    chosen = (data["skip"] == "identity") & data["stage"].isin(list(stages))
    return data.isel(unit=chosen.values)


def whole_stages(data: xarray.Dataset) -> xarray.Dataset:
    return data.isel(unit=(data["kind"] == "stage").values)


def units(data: xarray.Dataset) -> xarray.Dataset:
    return data.isel(unit=(data["kind"] == "unit").values)


# -- spectra


def spectra(open_: Opened) -> Iterator[Part]:
    data, random = open_["spectra"], open_["random"]
    early = regular(data, (1, 2))["share_near_one"].mean("sample")
    yield part_of("D2", "share near 1, mean over units of stages 1-2", early.mean("unit"))
    yield part_of("D2", "share of units with at least .3 near 1", (early >= 0.3).mean("unit"), ">= 0.6667", "share")
    yield part_of("D2", "share of units with more than .5 near 1", (early > 0.5).mean("unit"), ">= 0.6667", "share")
    yield from across_images("D4", "spectra", units(data), "quantile_off", same_stage=True)
    near = data["share_near_one"].mean("sample")
    for stage in (2, 3):
        down = near.sel(unit=f"stage{stage}.0")
        same = regular(data, (stage,))["share_near_one"].mean(("sample", "unit"))
        yield part_of("D5", f"share near 1, down-sampling / regular, stage {stage}", down / same, "<= 0.3333", "ratio")
    for stage, name in enumerate(whole_stages(data)["unit"].values, 1):
        one = data.sel(unit=name).mean("sample")
        beside = (one["share_just_below"] + one["share_just_above"]) / 2
        yield part_of("D6", f"near 1 / neighbours, stage {stage}", one["share_near_one"] / beside, "<= 1.5", "ratio")
        each = data.sel(unit=name)
        largest = (each["largest"] / each["median_positive"]).mean("sample")
        yield part_of("D6", f"largest / median of the others than 0, stage {stage}", largest, ">= 10", "ratio")
        yield part_of("D6", f"share near 1, stage {stage}", one["share_near_one"])
    usual = regular(data)
    yield part_of("D17", "mean of all values", usual["mean"].mean(("unit", "sample")), "0.9 to 1.1")
    yield part_of("D17", "mean of those not 0", usual["mean_positive"].mean(("unit", "sample")), "0.9 to 1.1")
    noisy = random["mean_positive"].mean(("unit", "sample"))
    yield part_of("D17", "mean of those not 0, random weights", noisy, "0.9 to 1.1")
    rank = 1 - data["share_zero"].mean("sample")
    for stage in (1, 2, 3):
        names = regular(data, (stage,))["unit"].values
        expected = ">= 0.75" if stage < 3 else ""
        yield part_of("D18", f"rank / n, stage {stage}", rank.sel(unit=names).mean("unit"), expected, "share")
    early_rank = rank.sel(unit=regular(data, (1, 2))["unit"].values).mean("unit")
    late_rank = rank.sel(unit=regular(data, (3,))["unit"].values).mean("unit")
    yield part_of("D18", "rank / n, stage 3 less stages 1-2", late_rank - early_rank, "< 0")
    yield from across_images("D18", "stage spectra", whole_stages(data), "quantile", same_stage=False)


def across_images(claim: str, what: str, data: xarray.Dataset, key: str, same_stage: bool) -> Iterator[Part]:
    """Two images: correlation and relative difference of quantile functions, means over the units of a network."""
    correlations, spreads, above = [], [], []
    for network in data["network"].values:
        values = data[key].sel(network=network).values  # units, images, levels
        stage = data["stage"].values
        own, apart, baseline = [], [], []
        for place, (first, second) in enumerate(values):
            if numpy.isnan(values[place]).any():
                continue
            own.append(_correlation(first, second))
            apart.append(_spread(values[place]))
            rivals = [
                other
                for number, other in enumerate(values)
                if number != place
                and not numpy.isnan(other).any()
                and (stage[number] == stage[place] or not same_stage)
            ]
            baseline += [_correlation(first, other[0]) for other in rivals]
        correlations.append(numpy.mean(own))
        spreads.append(numpy.mean(apart))
        above.append(numpy.mean(own) - numpy.mean(baseline))
    yield part_of(claim, f"correlation of {what} across images", correlations, ">= 0.95", "correlation")
    yield part_of(claim, f"median relative spread of {what} across images", spreads, "<= 0.05", "ratio")
    yield part_of(claim, f"correlation of {what} across images less that across others", above, "> 0")


def _correlation(first: numpy.ndarray, second: numpy.ndarray) -> float:
    return float(numpy.corrcoef(first, second)[0, 1])


def _spread(values: numpy.ndarray) -> float:
    mean = values.mean(0)
    kept = mean > NEGLIGIBLE * mean.max()
    return float(numpy.median(values.std(0, ddof=1)[kept] / mean[kept]))


def trends(open_: Opened) -> Iterator[Part]:
    data = open_["spectra"]
    for stages in ((1, 2, 3), (1,), (2,), (3,)):
        shares = regular(data, stages)["share_above"].mean("sample")
        values = [float(spearmanr(range(len(row)), row).statistic) for row in shares.values]
        where = "all units" if len(stages) > 1 else f"stage {stages[0]}"
        yield part_of("D7", f"Spearman of unit and share above 1.01, {where}", values, "< 0", "correlation")
    for claim, key, signs in (("D8", "share_near_one", ">><"), ("D9", "share_zero", "<<>")):
        for stage in (1, 2, 3):
            slopes = _slopes(regular(data, (stage,))[key].mean("sample").values)
            yield part_of(
                claim, f"slope of {key} (full spectra, 2 images), stage {stage}", slopes, f"{signs[stage - 1]} 0"
            )


def _slopes(rows: numpy.ndarray) -> list[float]:
    return [float(numpy.polyfit(numpy.arange(len(row)), row, 1)[0]) for row in rows]


# -- counts


def counts(open_: Opened) -> Iterator[Part]:
    data = open_["counts"]
    images = int(data.attrs["images"])
    width = data["deviation"].sel(quantity="ones").mean("unit")
    yield part_of("D4", f"deviation of the exact plateau / n over {images} images, mean over units", width, "<= 0.05")
    for claim, quantity, signs in (("D8", "ones", ">><"), ("D9", "zeros", "<<>")):
        for stage in (1, 2, 3):
            shares = regular(data, (stage,))["mean"].sel(quantity=quantity).values
            what = f"slope of exact {quantity} / n by counting on {images} images, stage {stage}"
            yield part_of(claim, what, _slopes(shares), f"{signs[stage - 1]} 0")
            ends = shares[:, -1] - shares[:, 0]
            yield part_of(claim, f"exact {quantity} / n, last less first regular unit, stage {stage}", ends)


# -- perturbations


def perturbations(open_: Opened) -> Iterator[Part]:
    data = open_["perturbations"]
    stage = data["stage"].values
    for number in (1, 2, 3):
        places = numpy.flatnonzero(stage == number)
        for start, words in ((places[0], "from the entry"), (places[0] + 1, "from the first unit's exit")):
            growth = {kind: _growth(data, kind, start, places[-1] + 1) for kind in ("adversarial", "random")}
            claim, expected = ("D10", "> 1") if number < 3 else ("D11", "< 1")
            yield part_of(claim, f"growth of random ones, stage {number}, {words}", growth["random"], expected, "ratio")
            ratio = growth["adversarial"] / growth["random"]
            expected = "> 1" if number < 3 else ""
            yield part_of(claim, f"adversarial / random, stage {number}, {words}", ratio, expected, "ratio")
    last = {kind: _growth(data, kind, len(stage) - LAST, len(stage)) for kind in ("adversarial", "random")}
    yield part_of("D12", "growth of adversarial ones over the last 3 units", last["adversarial"], ">= 2", "ratio")
    ratio = last["adversarial"] / last["random"]
    yield part_of("D12", "adversarial / random over the last 3 units", ratio, ">= 1.5", "ratio")
    third = data["actual"].sel(kind="adversarial").isel(unit=(stage == 3) & (data["skip"] == "identity").values)
    jump = (third.isel(unit=-1) / third.median("unit")).median("sample")
    yield part_of(
        "D12", "growth of adversarial ones in the last unit / in the median unit of stage 3", jump, "> 1", "ratio"
    )
    quotient = (data["predicted"] / data["actual"]).median(("kind", "unit", "sample"))
    yield part_of("D13", "median of predicted / actual growth", quotient, "0.9 to 1.1", "ratio")
    pairs = zip(data["predicted"].values, data["actual"].values, strict=True)
    values = [_correlation(first.ravel(), second.ravel()) for first, second in pairs]
    yield part_of("D13", "correlation of predicted and actual growth", values, ">= 0.9", "correlation")


def _growth(data: xarray.Dataset, kind: str, first: int, last: int) -> xarray.DataArray:
    """Between two states (state k is the entry of unit k), the median over images."""
    rms = data["rms"].sel(kind=kind)
    return (rms.isel(state=last) / rms.isel(state=first)).median("sample")


def projections(open_: Opened) -> Iterator[Part]:
    squares = open_["projections"]["projection"] ** 2
    for words, top in (("the top vector", 1), ("the top 10", 10)):
        shares = squares.isel(index=slice(top)).sum("index").median("sample")
        ours = shares.sel(kind="adversarial")
        last, earlier = ours.isel(unit=-1), ours.isel(unit=slice(-1)).mean("unit")
        yield part_of("D14", f"share in {words} at the last unit, adversarial", last)
        yield part_of("D14", f"share in {words}, last / earlier units", last / earlier, ">= 3", "ratio")
        random = shares.sel(kind="random").isel(unit=-1)
        yield part_of("D14", f"share in {words}, adversarial / random", last / random, ">= 3", "ratio")


# -- noise


def noise(open_: Opened) -> Iterator[Part]:
    """Units without exact ones at any t have no plateau and are left out; how many they are is a part."""
    data, counted = open_["noise"], open_["noise-counts"]
    names = {"convex": "convex mixture", "norm": "constant norm"}
    for mixture, words in names.items():
        shares = data["share_near_one"].sel(mixture=mixture).isel(sample=0)
        plateau = (data["share_one"].sel(mixture=mixture).isel(sample=0) > 0).any("t")
        what = f"share of units with the peak of the share near 1 in .4 to .6, {words}"
        yield part_of("D16", what, _peaks(shares, plateau), "> 0.5", "share")
        yield part_of("D16", f"units of 4 without a plateau at any t, {words}", (~plateau).sum("unit"))
        best = shares.idxmax("t").mean("unit")
        yield part_of("D16", f"t of the largest share near 1, mean over units, {words}", best)
        for mixing in (0.0, 0.5, 1.0):
            what = f"share near 1 at t = {mixing:g}, mean over units, {words}"
            yield part_of("D16", what, shares.sel(t=mixing).mean("unit"))
        exact = counted["ones"].sel(mixture=mixture)
        what = f"share of all regular units with the peak of exact ones in .4 to .6, {words}"
        yield part_of("D16", what, _peaks(exact, (exact > 0).any("t")))


def _peaks(shares: xarray.DataArray, plateau: xarray.DataArray) -> list[float]:
    best = shares.idxmax("t")
    middle = (best > 0.35) & (best < 0.65)
    return [float(middle.sel(network=n).values[plateau.sel(network=n).values].mean()) for n in shares["network"].values]


# -- both depths


def depths_alike(small: Opened, large: Opened) -> Iterator[Part]:
    """The distance between mean spectra of two depths over that between seeds of one depth, on logarithms.

    The interval is that of a jackknife: each of the networks is left out in turn, which gives the numbers of
    `networks`, those of the smaller depth first.
    """
    both = [each["spectra"] for each in (small, large)]
    for stage in (1, 2, 3):
        curves = [regular(data, (stage,))["quantile"].mean(("unit", "sample")).values for data in both]
        places = [(depth, place) for depth, rows in enumerate(curves) for place in range(len(rows))]
        ratio = _ratio(curves)
        without = []
        for depth, place in places:
            left = [numpy.delete(rows, place, 0) if own == depth else rows for own, rows in enumerate(curves)]
            without.append(_ratio(left))
        count = len(without)
        half = t.ppf(0.975, count - 1) * math.sqrt((count - 1) * float(numpy.var(numpy.log(without))))
        found = {"mean": ratio, "low": ratio * math.exp(-half), "high": ratio * math.exp(half)}
        yield {
            "claim": "D18",
            "depth": "both",
            "part": f"distance between depths / between seeds, stage {stage}",
            "networks": [float(f"{value:.4g}") for value in without],
            **{name: float(f"{value:.4g}") for name, value in found.items()},
            "scale": "ratio, jackknife",
            "expected": "<= 1.5",
            "interval_is": side_of(found, "<= 1.5"),
            "between": float(f"{_mean_distance(*curves):.4g}"),
        }


def _ratio(curves: Sequence[numpy.ndarray]) -> float:
    """curves: of each depth, networks x levels."""
    pairs = [[_distance(a, b) for a, b in itertools.combinations(rows, 2)] for rows in curves]
    return _mean_distance(*curves) / float(numpy.mean([numpy.mean(each) for each in pairs]))


def _mean_distance(first: numpy.ndarray, second: numpy.ndarray) -> float:
    return float(numpy.mean([_distance(a, b) for a in first for b in second]))


def _distance(first: numpy.ndarray, second: numpy.ndarray) -> float:
    larger = numpy.maximum(first, second)
    kept = larger > NEGLIGIBLE * larger.max()
    return float(numpy.median(numpy.abs(first - second)[kept] / larger[kept]))


MEASURED: dict[Callable[[Opened], Iterator[Part]], Sequence[str]] = {  # and the datasets that each of them needs
    spectra: ("spectra", "random"),
    trends: ("spectra",),
    counts: ("counts",),
    perturbations: ("perturbations",),
    projections: ("projections",),
    noise: ("noise", "noise-counts"),
}

if __name__ == "__main__":
    main()
