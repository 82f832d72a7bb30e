"""Figures 7 and 8 of paper B with learning rates from calibration seeds, judged on other seeds.

    skipscope study run B.learning --preset full --device cuda --seed 0 --set relu_networks=10 --out runs/calibration
    skipscope study run B.learning --preset full --device cuda --seed 1 --set networks=20 --set relu_networks=10 \
        --out runs/confirmatory
    python scripts/learning_numbers.py runs/calibration runs/confirmatory docs/results/B/confirmatory

Writes learning.nc, the final losses of both runs by kind of network, seed and rate (NaN where a rate was not tried,
infinite where a network diverged), and numbers.json and numbers.md with intervals over seeds. A rate is the one
with the lowest mean loss over the calibration seeds; where it diverges on another seed, that seed's loss is infinite.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy
import xarray
from intervals import Part, part_of

LINEAR = (4, 6, 12, 16, 24, 32, 48, 96)
DEEP = 16
RELU = (4, 8, 16, 32, 64)
LIMIT = 48  # the deepest Xavier network whose losses depend on the rate
SMALLEST = 1e-15  # a distance from the optimum that is not rounding
WORST = 1e3  # stands for the loss of a network that diverged, so that a mean exists


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("calibration", type=Path)
    parser.add_argument("confirmatory", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    first, second = losses(options.calibration), losses(options.confirmatory)
    loss = xarray.concat([first["loss"], second["loss"]], "seed", join="outer")
    data = xarray.Dataset({"loss": loss, "lowest_loss": second["lowest_loss"]})
    encoding = {name: {"zlib": True} for name in data.data_vars}
    data.to_netcdf(options.out / "learning.nc", engine="h5netcdf", encoding=encoding)
    parts = list(numbers(data))
    lines = ",\n ".join(json.dumps(part) for part in parts)
    (options.out / "numbers.json").write_text(f"[\n {lines}\n]\n")
    (options.out / "numbers.md").write_text("\n".join(in_markdown(parts, data)) + "\n")


def losses(run: Path) -> xarray.Dataset:
    """Of all cases of a run, such as "linear-2-shortcut-16"; a case that was not finished has the rates that were."""
    rows: dict[str, list[xarray.DataArray]] = {}
    lowest: dict[str, float] = {}
    for path in sorted((run / "data").glob("learning-*.nc")):
        piece = xarray.load_dataset(path, engine="h5netcdf")
        case = path.stem.removeprefix("learning-").split("-rates-")[0]
        rows.setdefault(case, []).append(piece["loss"])
        lowest.setdefault(case, 0.0)
        lowest[case] = float(piece.attrs.get("lowest_loss", lowest[case]))
    joined = {case: _without_copies(pieces) for case, pieces in rows.items()}
    whole = xarray.concat([joined[case] for case in joined], "case", join="outer").assign_coords(case=list(joined))
    return xarray.Dataset({"loss": whole, "lowest_loss": ("case", [lowest[case] for case in joined])})


def _without_copies(pieces: list[xarray.DataArray]) -> xarray.DataArray:
    """The case itself has all rates; its rounds have some of them each."""
    return xarray.concat(pieces, "rate", join="outer").drop_duplicates("rate").sortby("rate")


class Chosen:
    """Losses of the confirmatory seeds at the rates of the calibration seeds."""

    def __init__(self, data: xarray.Dataset) -> None:
        self.data = data
        self.calibration = data["loss"].sel(seed=data["seed"] < 1000)
        self.confirmatory = data["loss"].sel(seed=data["seed"] >= 1000)

    def rate(self, case: str) -> float:
        means = self.calibration.sel(case=case).dropna("seed", how="all").mean("seed", skipna=False).fillna(numpy.inf)
        return float(means.idxmin("rate"))

    def loss(self, case: str, seeds: int = 10) -> numpy.ndarray:
        values = self.confirmatory.sel(case=case).dropna("seed", how="all").sel(rate=self.rate(case)).values
        return numpy.minimum(values[:seeds], WORST)

    def excess(self, case: str) -> numpy.ndarray:
        lowest = float(self.data["lowest_loss"].sel(case=case))
        return numpy.log10(numpy.maximum(self.loss(case) - lowest, SMALLEST))

    def best_rates(self, case: str) -> numpy.ndarray:
        """Of every confirmatory seed."""
        values = self.confirmatory.sel(case=case).dropna("seed", how="all").fillna(numpy.inf)
        return values.idxmin("rate").values


def numbers(data: xarray.Dataset) -> Iterator[Part]:
    chosen = Chosen(data)
    two = {depth: chosen.excess(f"linear-2-shortcut-{depth}") for depth in LINEAR}
    plain = {depth: chosen.excess(f"linear-orthogonal-{depth}") for depth in LINEAR}
    deep = [depth for depth in LINEAR if depth >= DEEP]
    yield part_of("B10", "largest log10 excess loss over depths, 2-shortcut", _largest(two.values()), "<= -3")
    gaps = _largest(two[depth] - plain[depth] for depth in deep)
    yield part_of("B10", "largest log10 excess loss from depth 16 on, 2-shortcut - orthogonal", gaps, "<= -0.3")
    yield part_of("B10", "log10 excess loss at depth 32, Xavier", chosen.excess("linear-xavier-32"), "> -1.5")
    for rival in ("xavier", "orthogonal", "1-shortcut", "3-shortcut"):
        shared = [d for d in deep if not (rival == "xavier" and d > LIMIT) and not (rival == "3-shortcut" and d % 3)]
        for depth in shared:
            ratio = chosen.best_rates(f"linear-2-shortcut-{depth}") / chosen.best_rates(f"linear-{rival}-{depth}")
            yield part_of("B11", f"ratio of best rates, 2-shortcut / {rival}, depth {depth}", ratio, ">= 3", "ratio")
    relu = {depth: chosen.loss(f"relu-2-shortcut-{depth}") for depth in RELU}
    for first, second in pairwise(RELU):
        ratio = relu[second] / relu[first]
        part = part_of("B12", f"loss of 2-shortcut, depth {second} / depth {first}", ratio, "< 1", "ratio")
        yield {**part, "diverged": [int((relu[depth] >= WORST).sum()) for depth in (second, first)]}
    for rival in ("xavier", "orthogonal"):
        ratio = chosen.loss(f"relu-{rival}-64") / relu[64]
        yield part_of("B12", f"loss at depth 64, {rival} / 2-shortcut", ratio, ">= 3", "ratio")
    for depth in LINEAR:
        if depth % 6 == 0:
            ratio = 10 ** (chosen.excess(f"linear-3-shortcut-{depth}") - two[depth])
            yield part_of("B13", f"excess loss, 3-shortcut / 2-shortcut, depth {depth}", ratio, ">= 3", "ratio")
    for depth in LINEAR:
        gap = abs(chosen.excess(f"linear-1-shortcut-{depth}").mean() - plain[depth].mean())
        floor = numpy.std(plain[depth], ddof=1)
        values = chosen.excess(f"linear-1-shortcut-{depth}") - plain[depth].mean()
        what = f"log10 excess loss, 1-shortcut - mean of orthogonal, depth {depth}"
        yield {
            **part_of("B20", what, values, "-0.3 to 0.3"),
            "gap": float(gap),
            "deviation_of_orthogonal": float(floor),
        }


def _largest(rows: Any) -> numpy.ndarray:
    return numpy.max(list(rows), axis=0)


def in_markdown(parts: list[Part], data: xarray.Dataset) -> Iterator[str]:
    yield "# Figures 7 and 8 of paper B on seeds of their own"
    yield ""
    yield "Made by `scripts/learning_numbers.py`. Rates are the best of the calibration seeds (0 to 9); values are of"
    yield "the confirmatory seeds 1000 to 1009 (for B11 the best rate of each of the seeds 1000 to 1019), means with"
    yield "Student's 95 % intervals, on logarithms for ratios. A network that diverged counts with a loss of 1000."
    yield ""
    yield "| claim | part | smallest to largest | mean (interval) | claimed | interval |"
    yield "|---|---|---|---|---|---|"
    for part in parts:
        ends = f"{min(part['networks']):.3g} to {max(part['networks']):.3g}"
        mean = f"{part['mean']:.3g} ({part['low']:.3g} to {part['high']:.3g})"
        yield f"| {part['claim']} | {part['part']} | {ends} | {mean} | {part['expected']} | {part['interval_is']} |"
    yield ""
    yield "Best rates of the calibration seeds:"
    yield ""
    yield "| kind | " + " | ".join(f"depth {depth}" for depth in sorted({*LINEAR, *RELU})) + " |"
    yield "|---|" + "---|" * len({*LINEAR, *RELU})
    chosen, cases = Chosen(data), set(data["case"].values)
    kinds = dict.fromkeys(str(case).rpartition("-")[0] for case in data["case"].values)
    for kind in kinds:
        cells = (f"{kind}-{depth}" for depth in sorted({*LINEAR, *RELU}))
        yield f"| {kind} | " + " | ".join(f"{chosen.rate(c):.3g}" if c in cases else "" for c in cells) + " |"


if __name__ == "__main__":
    main()
