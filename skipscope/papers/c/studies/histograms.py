"""C.histograms: figures 4 to 6 of paper C, how large activations, weights and gradients are; and ranks of gradients.

    skipscope study run C.histograms --preset quick --out DIR
    skipscope study run C.histograms --preset full --device cuda --set subjects=cifar100-110 --out DIR

The paper finds, in the first of 110 layers of PlainNet, activations up to 1e6, weights up to 6e5 and gradients up to 5,
and moderate ones in layer 108 and in residual networks. It holds that gradients are singular in PlainNet and not in
residual networks.

We expect the former in part: with ReLUs and batch norms the first weights of PlainNet grow in training and its first
activations with them, by orders of magnitude that differ from seed to seed; gradients do not, nor anything with linear
units. Gradients have full rank before the training in all networks with norms and ReLUs, and nearly so early in it.

The first layer and the last but one are looked at before the training, along it and in the end, at the best learning
rate; nothing is trained for it that C.accuracy and C.linear do not train, but for the networks without norms. The paper
does not say whether its networks have norms: those with norms decide, as in all studies, and those without are also
reported, of fewer seeds; `--set forms=relu` leaves out all but those of C.accuracy. Where such a network diverges
at every rate, it is measured as it was last looked at. 99th percentiles are those of absolute values in the end. Ranks
of back-propagated errors and of weight gradients are counted in float64, over their largest possible value, with the
batch's own statistics in the norms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Annotated, Any

import numpy
import xarray
from torch import Tensor

from skipscope.constraints import at_least, some_of
from skipscope.measure import conditioning
from skipscope.measure.layers import OUTPUT
from skipscope.models.network import BlockNetwork
from skipscope.papers.c import PAPER
from skipscope.papers.c.subjects import (
    FULL,
    LONG,
    PATHS,
    PLAIN,
    RESIDUAL,
    SMOKE,
    TwinSettings,
    TwinSubject,
    expect_titles,
    gathered,
    subject,
    without_path,
)
from skipscope.papers.c.twins import Reached, measured_twins, reached, twins
from skipscope.papers.kit import SEEDS, Bench, Claim, Evidence, Quantity, Study
from skipscope.training.trackers import WHAT, Tracker, distributions

FORMS = {"relu": "ReLU", "linear": "linear", "nonorm": "ReLU, no norms", "linear-nonorm": "linear, no norms"}
JUDGED = ("ReLU", "linear")  # with batch norms
PLACES = ("layer 1", "last layer but one")
WHEN = ("at initialisation", "early in training")
SHARES = {"errors": "error_share", "weight gradients": "gradient_share"}
BATCHES = 4  # that distributions are taken over, where there are as many


SIZE = {
    (what, place, form): Quantity(f"log10 p99 of {what}, PlainNet / ResNet, {place}, {form}")
    for form in FORMS.values()
    for what in WHAT
    for place in PLACES
}
RANK_SHARE = {
    (what, when, title, form): Quantity(f"rank share of {what} {when}, {title}{'' if form == 'ReLU' else f', {form}'}")
    for form in FORMS.values()
    for what in SHARES
    for when in WHEN
    for title in (PLAIN, RESIDUAL)
}

C8 = Claim(
    "C8",
    "Activations, weights and gradients of PlainNet blow up at layer 1 and are moderate at the last layer but one, "
    "with ReLUs and with linear units.",
    "99th percentile of absolute values, PlainNet over ResNet",
    criteria=tuple(
        criterion
        for form in JUDGED
        for what in WHAT
        for criterion in (
            SIZE[what, "layer 1", form].at_least(2.0),
            SIZE[what, "last layer but one", form].within(-1.0, 1.0),
        )
    ),
    seeds=3,
    note="The paper does not say whether its networks have batch normalisation: measured with and without it.",
)
C15 = Claim(
    "C15",
    "Gradients are singular in PlainNet and not in residual networks.",
    "rank over full rank of back-propagated errors and of weight gradients, median over layers",
    criteria=tuple(
        criterion
        for what in SHARES
        for when in WHEN
        for criterion in (
            RANK_SHARE[what, when, PLAIN, "ReLU"].at_most(0.5),
            RANK_SHARE[what, when, RESIDUAL, "ReLU"].at_least(0.9),
        )
    ),
    seeds=3,
)


@dataclass(frozen=True)
class HistogramSettings(TwinSettings):
    linear_titles: tuple[str, ...] = (PLAIN, RESIDUAL)  # of networks with linear units
    forms: Annotated[tuple[str, ...], some_of(*FORMS)] = tuple(FORMS)
    # At most so many of the images, for ranks: all layers' errors are in memory at once.
    rank_images: Annotated[int, at_least(1)] = 1024

    @property
    def ordered_forms(self) -> list[str]:
        """The first ones decide, in whatever order they were given."""
        return [form for form in FORMS if form in self.forms]

    def of_form(self, form: str) -> TwinSettings:
        """What is trained of a form."""
        titles = {"relu": self.titles, "linear": self.linear_titles}.get(form, (PLAIN, RESIDUAL))
        shared = {field.name: getattr(self, field.name) for field in fields(TwinSettings)}
        return TwinSettings(**{**shared, "titles": titles})

    def seeds_of(self, text: str, form: str) -> int:
        """Of a subject in a form; networks without norms are reported beside the others."""
        return self.other_networks if "nonorm" in form else self.seeds(text)


def in_form(text: str, form: str) -> str:
    """A subject in a form, mnist-60-linear of mnist-60."""
    source, colon, path = text.partition(":")
    return text if form == "relu" else f"{source}-{form}{colon}{path}"


def run(bench: Bench, settings: HistogramSettings) -> Evidence:
    for titles in (settings.titles, settings.linear_titles):
        expect_titles(titles, PLAIN, RESIDUAL)
    sizes: dict[str, dict[str, xarray.Dataset]] = {}
    ranks: dict[str, dict[str, xarray.Dataset]] = {}
    for form in settings.ordered_forms:
        for text in settings.subjects:
            of = subject(bench, settings.of_form(form), in_form(text, form), settings.seeds_of(text, form))
            alone = "" if len(settings.subjects) == 1 else without_path(text)
            sizes.setdefault(FORMS[form], {})[text] = sizes_of(bench, of, FORMS[form], alone)
            name = f"ranks-{of.key(bench.device)}"
            ranks.setdefault(FORMS[form], {})[text] = bench.part(
                name, partial(gradient_ranks, bench, of, settings.rank_images)
            )
    return evidence(sizes, ranks, settings.deciding)


def sizes_of(bench: Bench, of: TwinSubject, form: str, subject_too: str) -> xarray.Dataset:
    """99th percentiles (network, seed, what, layer) at the last look, from whole distributions, which are kept."""
    among, rows = twins(bench, of), []
    for title in of.models:
        named = ", ".join(filter(None, [title, "" if form == "ReLU" else form, subject_too]))
        row = []
        for seed in of.seeds:
            name = f"{of.key(bench.device)}-{title}-{seed}"
            shown = seed == of.seeds[0]
            whole = bench.part(name, partial(_distributions, bench, of, title, seed, among, named if shown else ""))
            last = whole["p99_abs"].isel(network=0, epoch=-1).sel(what=list(WHAT))
            row.append(last.transpose("what", "layer").values)
        rows.append(row)
    return xarray.Dataset(
        {"p99": (("network", "seed", "what", "place"), numpy.array(rows))},
        {"network": list(of.models), "seed": list(of.seeds), "what": list(WHAT), "place": list(PLACES)},
        {"data": of.data.name},
    )


def _distributions(
    bench: Bench, of: TwinSubject, title: str, seed: int, among: xarray.Dataset, shown: str
) -> xarray.Dataset:
    """shown: the network's name in the report; empty for one that is not shown there."""
    network = reached(bench, of, title, seed, among)
    batch = of.settings.batch
    tracker = Tracker(None, of.data.train, batches=min(BATCHES, len(of.data.train) // batch), batch=batch)
    history = network.trained.history
    looks = {epoch: tracker(network.at(epoch), epoch, history) for epoch in network.looks}
    joined = distributions(looks).expand_dims(network=[shown or title])
    about = {"title": of.title, "data": of.data.name, "model": of.models[title]}
    if shown:
        return joined.assign_attrs(about)
    del joined.attrs["measure"]
    return joined.assign_attrs(about, part="piece")


def gradient_ranks(bench: Bench, of: TwinSubject, most: int) -> xarray.Dataset:
    """Rank over full rank (network, seed, when, layer); NaN for networks that diverged before the first look."""
    images, labels = of.samples(bench.device, most)

    def measure(network: Reached) -> dict[str, numpy.ndarray]:
        """Before the training, and at the first look along it where there is one: (when, layer)."""
        rows = [_shares(network.at(epoch), images, labels) for epoch in network.looks[: len(WHEN)]]
        missing = {name: numpy.full_like(values, numpy.nan) for name, values in rows[0].items()}
        return {name: numpy.array([row[name] for row in [*rows, missing][: len(WHEN)]]) for name in missing}

    found = measured_twins(bench, of, "ranks of gradients", measure)
    layers = next(iter(found.values())).shape[-1]
    return xarray.Dataset(
        {name: (("network", "seed", "when", "layer"), values) for name, values in found.items()},
        {"network": list(of.models), "seed": list(of.seeds), "when": list(WHEN), "layer": range(layers)},
        {"measure": "gradient_ranks", "title": of.title, "data": of.data.name, "samples": len(images)},
    )


def _shares(model: BlockNetwork | Any, images: Tensor, labels: Tensor) -> dict[str, numpy.ndarray]:
    found = conditioning(model.double(), images.double(), targets=labels, states=False, weights=False, training=True)
    layers = [name for name in found["layer"].values if "shortcut" not in str(name) and name != OUTPUT]
    return {name: found[name].sel(layer=layers).values for name in SHARES.values()}


# -- what it decides


def evidence(
    sizes: Mapping[str, Mapping[str, xarray.Dataset]],
    ranks: Mapping[str, Mapping[str, xarray.Dataset]],
    deciding: tuple[str, ...] = (),
) -> Evidence:
    """By form and subject."""
    blown: dict[Quantity, Any] = {}
    for form, found in sizes.items():
        readers = {SIZE[what, place, form]: partial(ratio, what=what, place=place) for what in WHAT for place in PLACES}
        own = gathered(found, deciding, readers)
        if form in JUDGED and blown:
            blown[SEEDS] = min(own[SEEDS], blown[SEEDS])
        blown |= {quantity: value for quantity, value in own.items() if quantity not in blown}
    singular: dict[Quantity, Any] = {}
    for form, found in ranks.items():
        readers = {
            RANK_SHARE[what, when, title, form]: partial(share, name=name, when=when, title=title)
            for what, name in SHARES.items()
            for when in WHEN
            for title in (PLAIN, RESIDUAL)
        }
        own = gathered(found, deciding, readers)
        # Seeds and networks of the first form.
        singular |= {quantity: value for quantity, value in own.items() if quantity not in singular}
    return {C8: blown, C15: singular}


def ratio(dataset: xarray.Dataset, what: str, place: str) -> numpy.ndarray:
    """log10 of PlainNet's 99th percentile over ResNet's, one value per seed."""
    values = dataset["p99"].sel(what=what, place=place)
    with numpy.errstate(divide="ignore", invalid="ignore"):
        return numpy.log10(values.sel(network=PLAIN).values / values.sel(network=RESIDUAL).values)


def share(dataset: xarray.Dataset, name: str, when: str, title: str) -> numpy.ndarray:
    """Median over layers, one value per seed."""
    return dataset[name].sel(network=title, when=when).median("layer", skipna=False).values


STUDY = Study(
    PAPER,
    "histograms",
    paper_found="Huge values in PlainNet's first layer, moderate ones elsewhere; singular gradients in PlainNet alone.",
    we_expect="Large first weights and activations in PlainNet with ReLUs alone; gradients of nearly full rank.",
    presets={
        "smoke": HistogramSettings(**SMOKE, forms=("relu", "linear")),
        "quick": HistogramSettings(),
        "full": HistogramSettings(**{**FULL, "subjects": ("cifar100-110",)}, rank_images=128),
        "paper": HistogramSettings(
            subjects=("cifar100-110",), linear_titles=(PLAIN, RESIDUAL, PATHS), rank_images=128, **LONG
        ),
    },
    cost={
        "smoke": "seconds",
        "quick": "2 minutes on one core after C.accuracy and C.linear, whose networks it takes; 9 without",
        "full": "an hour of one GPU, of which every 10 minutes can be a command: --resume goes on",
        "paper": "days of one GPU",
    },
    run=run,
    claims=(C8, C15),
)
