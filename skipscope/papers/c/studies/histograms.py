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
does not say whether its networks have norms: those with norms decide, as in all studies, and those without are reported
besides, of fewer seeds; `--set forms=relu` leaves out all but the networks of C.accuracy. Where such a network diverges
at every rate, it is measured as it was last looked at. 99th percentiles are those of absolute values in the end. Ranks
of back-propagated errors and of weight gradients are counted in float64, over their largest possible value, with the
batch's own statistics in the norms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy
from torch import Tensor

from skipscope.errors import InputError
from skipscope.measure import conditioning
from skipscope.measure.layers import OUTPUT
from skipscope.models.network import BlockNetwork
from skipscope.papers.c import PAPER
from skipscope.papers.c.claims import decided_by
from skipscope.papers.c.subjects import (
    FULL,
    LONG,
    PATHS,
    PLAIN,
    RESIDUAL,
    SMOKE,
    Subject,
    TwinSettings,
    expect_titles,
    gathered,
    plain,
    subject,
)
from skipscope.papers.c.twins import Reached, reached, twins
from skipscope.papers.kit.bench import Bench
from skipscope.papers.kit.study import Evidence, Study
from skipscope.training.trackers import WHAT, Tracker, distributions

if TYPE_CHECKING:
    import xarray

FORMS = {"relu": "ReLU", "linear": "linear", "nonorm": "ReLU, no norms", "linear-nonorm": "linear, no norms"}
JUDGED = ("ReLU", "linear")  # with batch norms
PLACES = ("layer 1", "last layer but one")
WHEN = ("at initialisation", "early in training")
SHARES = {"errors": "error_share", "weight gradients": "gradient_share"}
BATCHES = 4  # that distributions are taken over, where there are as many


@dataclass(frozen=True)
class HistogramSettings(TwinSettings):
    linear_titles: tuple[str, ...] = (PLAIN, RESIDUAL)  # of networks with linear units
    forms: tuple[str, ...] = tuple(FORMS)
    rank_images: int = 1024  # at most so many of the images, for ranks: all layers' errors are in memory at once

    def __post_init__(self) -> None:
        super().__post_init__()
        unknown = [form for form in self.forms if form not in FORMS]
        if unknown or not self.forms:
            raise InputError(f"forms: expected some of {', '.join(FORMS)}, got {', '.join(unknown) or 'none'}")
        object.__setattr__(self, "forms", tuple(form for form in FORMS if form in self.forms))  # the first ones decide
        if self.rank_images < 1:
            raise InputError(f"rank_images: expected at least 1, got {self.rank_images}")

    def of_form(self, form: str) -> TwinSettings:
        """What is trained of a form."""
        titles = {"relu": self.titles, "linear": self.linear_titles}.get(form, (PLAIN, RESIDUAL))
        shared = {name: getattr(self, name) for name in TwinSettings.__dataclass_fields__}
        return TwinSettings(**{**shared, "titles": titles})

    def seeds_of(self, text: str, form: str) -> int:
        """Of a subject in a form; networks without norms are reported besides."""
        return self.besides if "nonorm" in form else self.seeds(text)


def in_form(text: str, form: str) -> str:
    """A subject in a form, mnist-60-linear of mnist-60."""
    source, colon, path = text.partition(":")
    return text if form == "relu" else f"{source}-{form}{colon}{path}"


def run(bench: Bench, settings: HistogramSettings) -> Evidence:
    for titles in (settings.titles, settings.linear_titles):
        expect_titles(titles, PLAIN, RESIDUAL)
    sizes: dict[str, dict[str, xarray.Dataset]] = {}
    ranks: dict[str, dict[str, xarray.Dataset]] = {}
    for form in settings.forms:
        for text in settings.subjects:
            of = subject(bench, settings.of_form(form), in_form(text, form), settings.seeds_of(text, form))
            alone = "" if len(settings.subjects) == 1 else plain(text)
            sizes.setdefault(FORMS[form], {})[text] = sizes_of(bench, of, FORMS[form], alone)
            name = f"ranks-{of.key(bench.device)}"
            ranks.setdefault(FORMS[form], {})[text] = bench.part(
                name, partial(gradient_ranks, bench, of, settings.rank_images)
            )
    return evidence(sizes, ranks, settings.deciding)


def sizes_of(bench: Bench, of: Subject, form: str, subject_too: str) -> xarray.Dataset:
    """99th percentiles (network, seed, what, layer) at the last look, from whole distributions, which are kept."""
    import xarray

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
    bench: Bench, of: Subject, title: str, seed: int, among: xarray.Dataset, shown: str
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


def gradient_ranks(bench: Bench, of: Subject, most: int) -> xarray.Dataset:
    """Rank over full rank (network, seed, when, layer); NaN for networks that diverged before the first look."""
    import xarray

    images, labels = of.samples(bench.device, most)
    pairs = [(title, seed) for title in of.models for seed in of.seeds]
    progress = bench.steps(f"ranks of gradients of {of.title}")
    among, rows = twins(bench, of), []
    for done, (title, seed) in enumerate(pairs):
        progress(done, len(pairs))
        rows.append([_shares(model, images, labels) for model in _early(reached(bench, of, title, seed, among))])
    layers = max(len(values) for row in rows for values in row[0].values())
    missing = dict.fromkeys(SHARES.values(), numpy.full(layers, numpy.nan))
    whole = [[*row, missing][: len(WHEN)] for row in rows]
    shape = (len(of.models), len(of.seeds), len(WHEN), layers)
    values = {name: numpy.array([[one[name] for one in row] for row in whole]) for name in SHARES.values()}
    return xarray.Dataset(
        {name: (("network", "seed", "when", "layer"), array.reshape(shape)) for name, array in values.items()},
        {"network": list(of.models), "seed": list(of.seeds), "when": list(WHEN), "layer": range(layers)},
        {"measure": "gradient_ranks", "title": of.title, "data": of.data.name, "samples": len(images)},
    )


def _early(network: Reached) -> Iterator[BlockNetwork | Any]:
    """As it was before the training, and at the first look along it where there is one."""
    yield from (network.at(epoch) for epoch in network.looks[: len(WHEN)])


def _shares(model: BlockNetwork | Any, images: Tensor, labels: Tensor) -> dict[str, numpy.ndarray]:
    found = conditioning(model.double(), images.double(), targets=labels, states=False, weights=False, training=True)
    layers = [name for name in found["layer"].values if "shortcut" not in str(name) and name != OUTPUT]
    return {name: found[name].sel(layer=layers).values for name in SHARES.values()}


# -- what it decides


def evidence(
    sizes: Mapping[str, Mapping[str, xarray.Dataset]],
    ranks: Mapping[str, Mapping[str, xarray.Dataset]],
    deciding: tuple[str, ...] = (),
) -> dict[str, dict[str, Any]]:
    """By form and subject."""
    blown: dict[str, Any] = {}
    for form, found in sizes.items():
        quantities = {
            f"log10 p99 of {what}, PlainNet / ResNet, {place}, {form}": partial(ratio, what=what, place=place)
            for what in WHAT
            for place in PLACES
        }
        own = gathered(found, deciding, quantities)
        if form in JUDGED and blown:
            blown["seeds"] = min(own["seeds"], blown["seeds"])
        blown |= {name: value for name, value in own.items() if name not in blown}
    singular: dict[str, Any] = {}
    for form, found in ranks.items():
        suffix = "" if form == "ReLU" else f", {form}"
        quantities = {
            f"rank share of {what} {when}, {title}{suffix}": partial(share, name=name, when=when, title=title)
            for what, name in SHARES.items()
            for when in WHEN
            for title in (PLAIN, RESIDUAL)
        }
        own = gathered(found, deciding, quantities)
        singular |= {name: value for name, value in own.items() if name not in singular}  # seeds of the first form
    return {"C8": blown, "C15": singular}


def ratio(dataset: xarray.Dataset, what: str, place: str) -> numpy.ndarray:
    """log10 of PlainNet's 99th percentile over ResNet's, one value a seed."""
    values = dataset["p99"].sel(what=what, place=place)
    with numpy.errstate(divide="ignore", invalid="ignore"):
        return numpy.log10(values.sel(network=PLAIN).values / values.sel(network=RESIDUAL).values)


def share(dataset: xarray.Dataset, name: str, when: str, title: str) -> numpy.ndarray:
    """Median over layers, one value a seed."""
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
    claims=decided_by("C.histograms"),
)
