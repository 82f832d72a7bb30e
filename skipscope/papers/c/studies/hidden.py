"""C.hidden: figure 9 of paper C, the condition numbers of hidden states of trained networks.

    skipscope study run C.hidden --preset quick --out DIR
    skipscope study run C.hidden --preset full --device cuda --set subjects=cifar10-110 --out DIR

The paper finds infinite condition numbers in the first 70 of 110 layers of PlainNet, and in ResNet and ResNeXt high
ones in early layers that then fall fast.

We expect infinite ones in PlainNet wherever units died in training, how many layers differs from seed to seed, and
well conditioned states in ResNet from the first layer on. The figure's order, infinite early and finite late, is the
opposite of the paper's theory.

A condition number is infinite where a unit or channel is exactly zero for the whole batch, or the smallest singular
value is; so is it counted for C5 as measured. Without such dead channels, which make ResNets singular too, a number
counts from numerical infinity on, 1 / (eps of float64 times the largest dimension), since the routine for singular
values decides whether it gives an exact zero. Logarithms take a numerically infinite number as it is, and an infinite
one as numerical infinity. States between blocks decide: they are the h of
the paper's theory. All layers, those inside branches too, are also reported.
"""

from __future__ import annotations

import numpy
import xarray

from skipscope.papers.c import PAPER
from skipscope.papers.c.layer_conditions import between, conditions_of_subjects, logarithms
from skipscope.papers.c.subjects import (
    COST_AFTER_ACCURACY,
    COST_OF_DEEP,
    DEEP,
    PLAIN,
    RESIDUAL,
    SMALL,
    TWIN_PRESETS,
    Reader,
    TwinSettings,
    gathered,
    unfitted,
)
from skipscope.papers.kit import Bench, Claim, Evidence, Part, Quantity, Study

FORMS = {next(iter(DEEP)): "convolutions", SMALL: "fully connected"}  # subjects that decide, in words

SINGULAR = Quantity("share of layers with infinite cond of hidden states, PlainNet", "share")
RESIDUAL_SINGULAR = Quantity("layers after the first with infinite cond of hidden states, ResNet")
ALIVE = Quantity("share of layers with numerically infinite cond without dead channels, PlainNet", "share")
RESIDUAL_ALIVE = Quantity("layers after the first with numerically infinite cond without dead channels, ResNet")
INSIDE_TOO = {
    title: Quantity(f"share of layers, those inside branches too, {title}", "share") for title in (PLAIN, RESIDUAL)
}
NUMERICALLY = Quantity("share of layers with numerically infinite cond or worse, PlainNet", "share")
FIRST = Quantity("first layer with infinite cond, PlainNet")
LAST = Quantity("last layer with infinite cond, PlainNet")
DEAD = {title: Quantity(f"units that are zero for the whole batch, a layer, {title}") for title in (PLAIN, RESIDUAL)}
FALL = Quantity("log10 cond of hidden states without dead channels, first tenth / median of the rest, ResNet")
EARLY = Quantity("log10 cond of hidden states without dead channels, first tenth, ResNet")
INFINITE = Quantity("layers with infinite cond of hidden states, ResNet")

C5 = Claim(
    "C5",
    "The hidden states of PlainNet are singular in its early layers.",
    "share of layers whose hidden states have an infinite cond; as measured, and without channels that are zero for "
    "the whole batch",
    parts=tuple(
        part
        for subject, form in FORMS.items()
        for part in (
            Part(
                f"as measured, {form}",
                (SINGULAR.at_least(0.3),),
                (RESIDUAL_SINGULAR.exactly(0.0),),
                subject,
            ),
            Part(
                f"without dead channels, {form}",
                (ALIVE.at_least(0.3),),
                (RESIDUAL_ALIVE.exactly(0.0),),
                subject,
            ),
        )
    ),
    subjects=DEEP,
    cost=COST_OF_DEEP,
    note=(
        "Where these layers are is reported. In small networks it comes from units that die during training, "
        "not from depth as in the paper's theory; and the figures (infinite early, finite late) have the "
        "opposite order to that theory."
    ),
)
C6 = Claim(
    "C6",
    "The condition number of ResNet's hidden states is high early and then falls.",
    "cond of hidden states without dead channels, median of the first tenth of the layers over the median of the rest",
    parts=tuple(
        part
        for subject, form in FORMS.items()
        for part in (
            Part(f"it falls, {form}", (FALL.above(0.0),), subject=subject),
            Part(f"it falls a hundredfold, {form}", (FALL.at_least(2.0),), subject=subject),
        )
    ),
    subjects=DEEP,
    cost=COST_OF_DEEP,
    note="The paper denies infinite condition numbers of ResNet; their number is reported.",
)


def run(bench: Bench, settings: TwinSettings) -> Evidence:
    return evidence(conditions_of_subjects(bench, settings))


def evidence(found: dict[str, xarray.Dataset]) -> Evidence:
    singular: dict[Quantity, Reader] = {
        SINGULAR: lambda data: infinite(data, PLAIN).mean(1),
        RESIDUAL_SINGULAR: lambda data: infinite(data, RESIDUAL)[:, 1:].sum(1),
        ALIVE: lambda data: infinite(data, PLAIN, "alive", numerically=True).mean(1),
        RESIDUAL_ALIVE: lambda data: infinite(data, RESIDUAL, "alive", numerically=True)[:, 1:].sum(1),
        INSIDE_TOO[PLAIN]: lambda data: infinite(data, PLAIN, inside=True).mean(1),
        INSIDE_TOO[RESIDUAL]: lambda data: infinite(data, RESIDUAL, inside=True).mean(1),
        NUMERICALLY: lambda data: infinite(data, PLAIN, numerically=True).mean(1),
        FIRST: lambda data: _end(data, first=True),
        LAST: lambda data: _end(data, first=False),
        DEAD[PLAIN]: lambda data: dead(data, PLAIN),
        DEAD[RESIDUAL]: lambda data: dead(data, RESIDUAL),
    }
    falling: dict[Quantity, Reader] = {
        FALL: fall,
        EARLY: lambda data: _early_and_rest(data)[0],
        INFINITE: lambda data: infinite(data, RESIDUAL).sum(1),
    }
    return {C5: gathered(found, singular, unfitted), C6: gathered(found, falling, unfitted)}


def infinite(
    dataset: xarray.Dataset, title: str, what: str = "hidden", *, inside: bool = False, numerically: bool = False
) -> numpy.ndarray:
    """Which states are singular, (seed, layer). what: "alive" for states without dead channels. inside: those inside
    branches too. numerically: up to rounding, or overflown."""
    places = slice(None, -1) if inside else between(dataset)
    status = dataset[f"{what}_status"].sel(network=title).isel(layer=places).transpose("seed", "layer").values
    return numpy.isin(status, ["infinite", "numerically infinite", "overflow"] if numerically else ["infinite"])


def dead(dataset: xarray.Dataset, title: str) -> numpy.ndarray:
    return dataset["dead_units"].sel(network=title).isel(layer=between(dataset)).mean("layer").values


def fall(dataset: xarray.Dataset) -> numpy.ndarray:
    """From the first tenth of the states between blocks to the others."""
    early, rest = _early_and_rest(dataset)
    return early - rest


def _early_and_rest(dataset: xarray.Dataset) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Medians over layers of ResNet's log10 cond without dead channels: of the first tenth, and of the rest."""
    values = logarithms(dataset, "alive").sel(network=RESIDUAL).isel(layer=between(dataset))
    tenth = max(1, round(values.sizes["layer"] / 10))
    first, rest = values.isel(layer=slice(tenth)), values.isel(layer=slice(tenth, None))
    return first.median("layer", skipna=False).values, rest.median("layer", skipna=False).values


def _end(dataset: xarray.Dataset, *, first: bool) -> numpy.ndarray:
    """The first or the last layer, counted from 1, behind which PlainNet's state between blocks is singular."""
    layers = between(dataset) + 1
    places = [layers[row] for row in infinite(dataset, PLAIN)]
    return numpy.array([place[0 if first else -1] if len(place) else numpy.nan for place in places])


STUDY = Study(
    PAPER,
    "hidden",
    paper_found="PlainNet's hidden states are singular in its early layers; those of residual networks never.",
    we_expect="Singular states in PlainNet, from units that died in training; in ResNet none, and no fall.",
    presets=TWIN_PRESETS,
    cost=COST_AFTER_ACCURACY,
    run=run,
    claims=(C5, C6),
)
