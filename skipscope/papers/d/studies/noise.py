"""D.noise: figure 5 (right) of paper D, the spectrum of a unit whose weights turn into noise.

    skipscope study run D.noise --preset full --device cuda --weights resnet56.pt --data cifar10:PATH --out DIR

The paper finds, for t theta + (1 - t) eta with noise eta of the weights' norm, no plateau at t = 0 and the widest at
t = 0.5. That mixture has its smallest norm at 0.5, which shrinks the branch and so widens the plateau by itself; the
mixture sqrt(t) theta + sqrt(1 - t) eta has a constant norm and is the control.

The claim on it is here, with what each network is reduced to; D.population decides it. Of each unit the share near 1 is
averaged over images and draws of the noise; a network's value is the share of its units with the peak in the middle.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import numpy
import xarray

from skipscope.constraints import Expectation, at_least, each, from_to, including, some_of
from skipscope.measure.spectra import spectra_of
from skipscope.papers.d import PAPER
from skipscope.papers.d.measured_networks import (
    MeasuredNetwork,
    NetworkSettings,
    evidence_by_subject,
    measured_networks,
)
from skipscope.papers.d.subjects import EACH_DEPTH, Found, of_each_depth
from skipscope.papers.d.summaries import ONE
from skipscope.papers.kit import Bench, Claim, Evidence, Quantity, Study
from skipscope.trace.surgery import noisy_weights, with_weights

MIXTURES = {"convex": "convex mixture", "norm": "constant norm"}
BINS = numpy.linspace(0, 2, 81)  # of the histograms; what is above 2 is in the last

TENTHS = tuple(round(0.1 * step, 1) for step in range(11))
MIDDLE = (0.35, 0.65)  # between these t is in 0.4 to 0.6, up to rounding

PEAKS_IN_MIDDLE = {
    mixture: Quantity(f"share of units with the largest share near 1 at t in 0.4 to 0.6, {title}", "share")
    for mixture, title in MIXTURES.items()
}
EXACT_IN_MIDDLE = {
    mixture: Quantity(f"share of all regular units with the most exact ones at t in 0.4 to 0.6, {title}", "share")
    for mixture, title in MIXTURES.items()
}
BEST = {
    mixture: Quantity(f"t of the largest share near 1, mean over units, {title}") for mixture, title in MIXTURES.items()
}
WITHOUT_PLATEAU = {
    mixture: Quantity(f"units without a plateau at any t, {title}") for mixture, title in MIXTURES.items()
}
D16 = Claim(
    "D16",
    "Weights half way between trained ones and noise have the widest plateau.",
    "share of units whose share near 1 is largest at t in 0.4 to 0.6, for t theta + (1 - t) noise and for a mixture of "
    "constant norm; units without exact ones at any t are left out and counted",
    parts=tuple(
        part
        for mixture, title in MIXTURES.items()
        for part in of_each_depth(title, PEAKS_IN_MIDDLE[mixture].above(0.5))
    ),
    subjects=EACH_DEPTH,
    note=(
        "The convex mixture has its smallest norm at t = 0.5, which makes a peak by itself: one that a mixture of "
        "constant norm does not have is an artefact of the norm."
    ),
)


@dataclass(frozen=True)
class NoiseSettings(NetworkSettings):
    draws: Annotated[int, at_least(1)] = 3
    mixing: Annotated[tuple[float, ...], including(0.5), each(from_to(0, 1))] = TENTHS
    stages: Annotated[tuple[int, ...], some_of(1, 2, 3)] = (1, 2, 3)  # of whose middle unit the weights are mixed

    def expectations(self) -> Iterator[Expectation]:
        yield from super().expectations()
        yield len(set(self.mixing)) > 1, "mixing: expected other values beside 0.5, got none"


def run(bench: Bench, settings: NoiseSettings) -> Evidence:
    measured = partial(_measured, bench=bench, settings=settings)
    return evidence_by_subject(
        bench.sweep(network.task(measured) for network in measured_networks(bench, settings)), of_mixtures
    )


def of_mixtures(data: xarray.Dataset) -> Found:
    """data: shares near 1 and of exact ones against t in the networks of one subject."""
    means = data[["share_near_one", "share_one"]].mean([name for name in ("draw", "sample") if name in data.dims])
    found: dict[Quantity, Any] = {}
    for mixture in MIXTURES:
        shares = means.sel(mixture=mixture)
        plateau = (shares["share_one"] > 0).any("t")
        found[PEAKS_IN_MIDDLE[mixture]] = peaks_in_middle(shares["share_near_one"], plateau)
        found[BEST[mixture]] = shares["share_near_one"].idxmax("t").mean("unit")
        found[WITHOUT_PLATEAU[mixture]] = (~plateau).sum("unit")
    return {D16: found}


def of_counts(counts: xarray.Dataset) -> Found:
    """counts: exact ones of all regular units against t, by the law."""
    found: dict[Quantity, Any] = {}
    for mixture, quantity in EXACT_IN_MIDDLE.items():
        ones = counts["ones"].sel(mixture=mixture)
        found[quantity] = peaks_in_middle(ones, (ones > 0).any("t"))
    return {D16: found}


def peaks_in_middle(shares: xarray.DataArray, plateau: xarray.DataArray) -> list[float]:
    """Of each network: the share of its units with a plateau whose largest value is in the middle; else NaN."""
    best = shares.idxmax("t").transpose("network", "unit").values
    middle, kept = (best > MIDDLE[0]) & (best < MIDDLE[1]), plateau.transpose("network", "unit").values
    return [float(row[own].mean()) if own.any() else numpy.nan for row, own in zip(middle, kept, strict=True)]


def _measured(network: MeasuredNetwork, bench: Bench, settings: NoiseSettings) -> xarray.Dataset:
    point = network.trunk.at(network.images)
    names = list(network.units) or [network.middle_unit(stage) for stage in settings.stages]
    shape = (len(MIXTURES), len(settings.mixing), len(names), settings.draws)
    shares, ones = (numpy.zeros((*shape, network.count)) for _ in range(2))
    histogram = numpy.zeros((*shape[:3], len(BINS) - 1))
    for place in bench.each(f"noise in {network.title}", list(numpy.ndindex(*shape))):
        m, t, u, draw = place
        unit, mixing = network.trunk[names[u]], settings.mixing[t]
        if mixing == 1.0 and draw > 0:  # no noise in it: one draw is all
            shares[place], ones[place] = shares[m, t, u, 0], ones[m, t, u, 0]
            continue
        weights = noisy_weights(unit, mixing, seed=bench.seed + draw, mixture=list(MIXTURES)[m])
        operator = with_weights(unit, weights).jacobian(point)
        found = spectra_of({"": operator}).isel(unit=0)
        shares[place] = found["share_near_one"].values
        values = found["value"].values
        ones[place] = (numpy.abs(values - 1) <= ONE).mean(1)
        histogram[m, t, u] += numpy.histogram(numpy.clip(values, 0, BINS[-1]), BINS)[0] / values.size
    drawn = numpy.where(numpy.array(settings.mixing) == 1.0, 1, settings.draws)
    return xarray.Dataset(
        {
            "share_near_one": (("mixture", "t", "unit", "draw", "sample"), shares),
            "share_one": (("mixture", "t", "unit", "draw", "sample"), ones),
            "histogram": (("mixture", "t", "unit", "bin"), histogram / drawn[:, None, None]),
        },
        {
            "mixture": list(MIXTURES),
            "t": list(settings.mixing),
            "unit": names,
            "draw": list(range(settings.draws)),
            "bin": (BINS[1:] + BINS[:-1]) / 2,
        },
        {"measure": "noise"},
    )


STUDY = Study(
    PAPER,
    "noise",
    paper_found="No plateau for noise, the widest half way between noise and trained weights.",
    we_expect="A peak at t = 0.5 of the convex mixture that the mixture of constant norm does not show.",
    presets={
        "smoke": NoiseSettings("resnet14-digits-n8", epochs=1, networks=1, images=2, draws=1, mixing=(0.0, 0.5, 1.0)),
        "quick": NoiseSettings(images=2, units=("stage3.4",), large_images=(1,), draws=2, stages=(2, 3)),
        "full": NoiseSettings(images=2, large_images=(1,), draws=2, stages=(2, 3), train110=True),
        "paper": NoiseSettings(draws=10, train110=True),
    },
    cost={
        "smoke": "seconds",
        "quick": "five minutes on 2 cores, and the training of five networks on digits; minutes more for a ResNet-56",
        "full": "a minute on one GPU",
        "paper": "half an hour on one GPU, and the training of a ResNet-110 where no weights are given",
    },
    run=run,
)
