"""D.noise: figure 5 (right) of paper D, the spectrum of a unit whose weights turn into noise.

    skipscope study run D.noise --preset full --device cuda --weights resnet56.pt --data cifar10:PATH --out DIR

The paper finds, for t theta + (1 - t) eta with noise eta of the weights' norm, no plateau at t = 0 and the widest at
t = 0.5. That mixture has its smallest norm at 0.5, which shrinks the branch and so widens the plateau by itself; the
mixture sqrt(t) theta + sqrt(1 - t) eta has a constant norm and is the control. Members of a claim's quantities are the
units of all networks; of each the mean over images and draws of the noise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import numpy
import xarray

from skipscope.constraints import Expectation, at_least, each, from_to, including, some_of
from skipscope.measure.spectra import spectra_of
from skipscope.papers.d import PAPER
from skipscope.papers.d.measured_networks import MeasuredNetwork, NetworkSettings, judged, measured_networks
from skipscope.papers.kit import SEEDS, Bench, Claim, Evidence, Quantity, Study
from skipscope.trace.surgery import noisy_weights, with_weights

MIXTURES = {"convex": "convex mixture", "norm": "constant norm"}
BINS = numpy.linspace(0, 2, 81)  # of the histograms; what is above 2 is in the last

PEAK = {
    mixture: Quantity(f"share near 1 at t = 0.5 - largest at other t, {title}") for mixture, title in MIXTURES.items()
}
D16 = Claim(
    "D16",
    "Weights half way between trained ones and noise have the widest plateau.",
    "share near 1 against t, for t theta + (1 - t) noise and for a mixture of constant norm",
    criteria=(PEAK["convex"].above(0.0), PEAK["norm"].above(0.0)),
    seeds=3,
    presets=("full", "paper"),
    note=(
        "The convex mixture has its smallest norm at t = 0.5, which makes a peak by itself: one that a mixture of "
        "constant norm does not have is an artefact of the norm."
    ),
)


@dataclass(frozen=True)
class NoiseSettings(NetworkSettings):
    draws: Annotated[int, at_least(1)] = 3
    mixing: Annotated[tuple[float, ...], including(0.5), each(from_to(0, 1))] = (0.0, 0.25, 0.5, 0.75, 1.0)
    stages: Annotated[tuple[int, ...], some_of(1, 2, 3)] = (1, 2, 3)  # of whose middle unit the weights are mixed

    def expectations(self) -> Iterator[Expectation]:
        yield from super().expectations()
        yield len(set(self.mixing)) > 1, "mixing: expected other values beside 0.5, got none"


def run(bench: Bench, settings: NoiseSettings) -> Evidence:
    measured = partial(_measured, bench=bench, settings=settings)
    return evidence(bench.sweep(network.task(measured) for network in measured_networks(bench, settings)))


def evidence(found: Sequence[xarray.Dataset]) -> Evidence:
    parts = judged(found)
    members: dict[Quantity, Any] = {SEEDS: len(parts)}
    for mixture, peak in PEAK.items():
        peaks = []
        for part in parts:
            shares = part["share_near_one"].sel(mixture=mixture).mean(("draw", "sample"))
            middle = shares.sel(t=0.5)
            others = shares.sel(t=[t for t in shares["t"].values if t != 0.5]).max("t")
            peaks += [float(value) for value in (middle - others).values]
        members[peak] = peaks
    return {D16: members}


def _measured(network: MeasuredNetwork, bench: Bench, settings: NoiseSettings) -> xarray.Dataset:
    point = network.trunk.at(network.images)
    names = list(network.units) or [network.middle_unit(stage) for stage in settings.stages]
    shape = (len(MIXTURES), len(settings.mixing), len(names), settings.draws)
    shares = numpy.zeros((*shape, network.count))
    histogram = numpy.zeros((*shape[:3], len(BINS) - 1))
    say = bench.steps(f"noise in {network.title}")
    for done, place in enumerate(numpy.ndindex(*shape)):
        say(done, int(numpy.prod(shape)))
        m, t, u, draw = place
        unit, mixing = network.trunk[names[u]], settings.mixing[t]
        if mixing == 1.0 and draw > 0:  # no noise in it: one draw is all
            shares[place] = shares[m, t, u, 0]
            continue
        weights = noisy_weights(unit, mixing, seed=bench.seed + draw, mixture=list(MIXTURES)[m])
        operator = with_weights(unit, weights).jacobian(point)
        found = spectra_of({"": operator}).isel(unit=0)
        shares[place] = found["share_near_one"].values
        values = found["value"].values
        histogram[m, t, u] += numpy.histogram(numpy.clip(values, 0, BINS[-1]), BINS)[0] / values.size
    drawn = numpy.where(numpy.array(settings.mixing) == 1.0, 1, settings.draws)
    return xarray.Dataset(
        {
            "share_near_one": (("mixture", "t", "unit", "draw", "sample"), shares),
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
        "smoke": NoiseSettings("resnet14-digits-n8", epochs=1, networks=1, images=2, draws=1),
        "quick": NoiseSettings(images=2, units=("stage3.4",), large_images=(1,), draws=2, stages=(2, 3)),
        "full": NoiseSettings(images=2, large_images=(1,), draws=2, stages=(2, 3), train110=True),
        "paper": NoiseSettings(draws=10, train110=True),
    },
    cost={
        "smoke": "seconds",
        "quick": "two minutes on 2 cores, and the training of three networks on digits; minutes more for a ResNet-56",
        "full": "a minute on one GPU",
        "paper": "half an hour on one GPU, and the training of a ResNet-110 where no weights are given",
    },
    run=run,
    claims=(D16,),
)
