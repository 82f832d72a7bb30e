"""C.histograms: figures 4 to 6 of paper C, how large activations, weights and gradients are; and ranks of gradients.

    skipscope study run C.histograms --preset quick --out DIR
    skipscope study run C.histograms --preset full --device cuda --set subjects=cifar100-110 --out DIR

The paper finds, in the first of 110 layers of PlainNet, activations up to 1e6, weights up to 6e5 and gradients up to 5,
and moderate ones in layer 108 and in residual networks. It holds that gradients are singular in PlainNet and not in
residual networks.

We expect the former in part: with ReLUs and batch norms the first weights of PlainNet grow in training and its first
activations with them, by orders of magnitude that differ from seed to seed; gradients do not, nor anything with linear
units. Gradients have full rank before the training in all networks with norms and ReLUs, and nearly so early in it.

The first layer and the last but one are looked at before the training, along it and in the end, PlainNet and ResNet at
equal rates; nothing is trained for it that C.accuracy and C.linear do not train. The paper does not say whether its
networks have norms: those with norms decide, as in all studies; `--set forms=relu,linear,nonorm,linear-nonorm` reports
those without too, of fewer seeds. A network that diverges is measured as it was last looked at. For layer 1 the largest
99th percentile of absolute values over all looks counts, since the paper shows them along the training, and for the
last layer but one that in the end. Ranks of back-propagated errors and of weight gradients are counted over their
largest possible value, at the tolerance of float32, in which networks are trained, with the batch's own statistics in
the norms; there a condition number is that of a singular matrix from 1 / (eps times the size) on.
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
    LARGE,
    LONG,
    PATHS,
    PLAIN,
    QUICK,
    RESIDUAL,
    SMALL,
    SMOKE,
    Reader,
    TwinSettings,
    TwinSubject,
    expect_titles,
    gathered,
    subject,
    unfitted,
    without_path,
)
from skipscope.papers.c.twins import Reached, measured_twins, reached, twins, with_fit
from skipscope.papers.kit import Bench, Claim, Evidence, Part, Quantity, Study
from skipscope.training.trackers import WHAT, Tracker, distributions

FORMS = {"relu": "ReLU", "linear": "linear", "nonorm": "ReLU, no norms", "linear-nonorm": "linear, no norms"}
PLACES = ("layer 1", "last layer but one")
WHEN = ("at initialisation", "early in training")
SHARES = {"errors": "error_share", "weight gradients": "gradient_share"}
SINGULAR = {"errors": "error_singular", "weight gradients": "gradient_singular"}
STATUSES = ("infinite", "numerically infinite", "overflow")  # of singular matrices
BATCHES = 4  # that distributions are taken over, where there are as many


FIRST = {what: Quantity(f"log10 of the largest p99 of {what}, layer 1, PlainNet / ResNet") for what in WHAT}
LAST = {what: Quantity(f"log10 p99 of {what} in the end, last layer but one, PlainNet / ResNet") for what in WHAT}
AT_THE_END = {what: Quantity(f"log10 p99 of {what} in the end, layer 1, PlainNet / ResNet") for what in WHAT}
PLACE_OF = {
    (what, when, title): f"{what} {when}, {title}" for what in SHARES for when in WHEN for title in (PLAIN, RESIDUAL)
}
RANK_SHARE = {place: Quantity(f"rank share of {text}", "share") for place, text in PLACE_OF.items()}
SINGULAR_SHARE = {
    place: Quantity(f"share of layers with infinite cond of {text}", "share") for place, text in PLACE_OF.items()
}

C8 = Claim(
    "C8",
    "Activations, weights and gradients of PlainNet blow up at layer 1 and are moderate at the last layer but one.",
    "99th percentile of absolute values, PlainNet over ResNet: the largest over all looks, and in the end",
    parts=(
        Part("activations at layer 1", (FIRST["activations"].at_least(2.0),)),
        Part("weights at layer 1", (FIRST["weights"].at_least(2.0),)),
        Part("gradients at layer 1", (FIRST["gradients"].at_least(1.0),)),
        Part(
            "activations and gradients at the last layer but one",
            (LAST["activations"].within(-1.0, 1.0), LAST["gradients"].within(-1.0, 1.0)),
        ),
        Part("weights at the last layer but one", (LAST["weights"].at_most(-1.0),)),
    ),
    subjects={"cifar100-110": 3, "cifar100-110-linear": 3, "mnist-60-connected": 8, "mnist-60-connected-linear": 8},
    cost="skipscope study run C.histograms --preset full --device cuda (about 25 minutes of one H200)",
    note="The paper does not say whether its networks have batch normalisation: those with it decide.",
)
SMALL_LINEAR = f"{SMALL}-linear"
C15 = Claim(
    "C15",
    "Gradients are singular in PlainNet and not in residual networks.",
    "back-propagated errors and weight gradients, at the tolerance of float32: rank over full rank, median over "
    "layers; share of layers with an infinite cond",
    parts=tuple(
        part
        for units, subject in (("ReLU", SMALL), ("linear units", SMALL_LINEAR))
        for part in (
            Part(
                f"rank, {units}",
                tuple(
                    criterion
                    for what in SHARES
                    for when in WHEN
                    for criterion in (
                        RANK_SHARE[what, when, PLAIN].at_most(0.5),
                        RANK_SHARE[what, when, RESIDUAL].at_least(0.9),
                    )
                ),
                subject=subject,
            ),
            Part(
                f"condition number, {units}",
                tuple(
                    criterion
                    for what in SHARES
                    for when in WHEN
                    for criterion in (
                        SINGULAR_SHARE[what, when, PLAIN].at_least(0.5),
                        SINGULAR_SHARE[what, when, RESIDUAL].below(0.5),
                    )
                ),
                subject=subject,
            ),
        )
    ),
    subjects={SMALL: 8, SMALL_LINEAR: 8},
    cost="skipscope study run C.histograms --preset quick (10 minutes on one core, with MNIST)",
    note="A condition number is infinite in the median layer where it is in half of the layers or more.",
)


@dataclass(frozen=True)
class HistogramSettings(TwinSettings):
    linear_titles: tuple[str, ...] = (PLAIN, RESIDUAL)  # of networks with linear units
    linear_epochs: Annotated[int | None, at_least(1)] = None  # of them; None: as many as of the others
    forms: Annotated[tuple[str, ...], some_of(*FORMS)] = ("relu", "linear")
    # At most so many of the images, for ranks: all layers' errors are in memory at once.
    rank_images: Annotated[int, at_least(1)] = 1024

    @property
    def ordered_forms(self) -> list[str]:
        """In whatever order they were given."""
        return [form for form in FORMS if form in self.forms]

    def of_form(self, form: str) -> TwinSettings:
        """What is trained of a form."""
        titles = {"relu": self.titles, "linear": self.linear_titles}.get(form, (PLAIN, RESIDUAL))
        shared = {field.name: getattr(self, field.name) for field in fields(TwinSettings)}
        go_on = self.go_on if form == "relu" else 1  # accuracies at several rates are claimed of ReLUs alone
        epochs = (self.linear_epochs if form.startswith("linear") else None) or self.epochs
        return TwinSettings(**{**shared, "titles": titles, "go_on": go_on, "epochs": epochs})

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
    sizes: dict[str, xarray.Dataset] = {}
    ranks: dict[str, xarray.Dataset] = {}
    for form in settings.ordered_forms:
        for text in settings.subjects:
            of = subject(bench, settings.of_form(form), in_form(text, form), settings.seeds_of(text, form))
            alone = "" if len(settings.subjects) == 1 else without_path(text)
            sizes[of.name] = sizes_of(bench, of, FORMS[form], alone)
            name = f"ranks-{of.key(bench.device)}"
            ranks[of.name] = bench.part(name, partial(gradient_ranks, bench, of, settings.rank_images))
    return evidence(sizes, ranks)


def sizes_of(bench: Bench, of: TwinSubject, form: str, subject_too: str) -> xarray.Dataset:
    """99th percentiles (network, seed, what, place) in the end, `p99`, and the largest over all looks, `largest`; from
    whole distributions, which are kept."""
    among = twins(bench, of)
    rows: dict[str, list[list[numpy.ndarray]]] = {"p99": [], "largest": []}
    for title in of.models:
        named = ", ".join(filter(None, [title, "" if form == "ReLU" else form, subject_too]))
        for row in rows.values():
            row.append([])
        for seed in of.seeds:
            name = f"{of.key(bench.device)}-{title}-{seed}"
            shown = seed == of.seeds[0]
            whole = bench.part(name, partial(_distributions, bench, of, title, seed, among, named if shown else ""))
            sizes = whole["p99_abs"].isel(network=0).sel(what=list(WHAT)).transpose("epoch", "what", "layer").values
            rows["p99"][-1].append(sizes[-1])
            rows["largest"][-1].append(sizes.max(0))
    data = xarray.Dataset(
        {name: (("network", "seed", "what", "place"), numpy.array(values)) for name, values in rows.items()},
        {"network": list(of.models), "seed": list(of.seeds), "what": list(WHAT), "place": list(PLACES)},
        {"data": of.data.name, "title": of.title},
    )
    return with_fit(data, among)


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
    """Rank over full rank, and whether the condition number is infinite, (network, seed, when, layer); NaN for networks
    that diverged before the first look."""
    images, labels = of.samples(bench.device, most)

    def measure(network: Reached) -> dict[str, numpy.ndarray]:
        """Before the training, and at the first look along it where there is one: (when, layer)."""
        rows = [_shares(network.at(epoch), images, labels) for epoch in network.looks[: len(WHEN)]]
        missing = {name: numpy.full_like(values, numpy.nan) for name, values in rows[0].items()}
        return {name: numpy.array([row[name] for row in [*rows, missing][: len(WHEN)]]) for name in missing}

    found = measured_twins(bench, of, "ranks of gradients", measure)
    layers = next(iter(found.values())).shape[-1]
    data = xarray.Dataset(
        {name: (("network", "seed", "when", "layer"), values) for name, values in found.items()},
        {"network": list(of.models), "seed": list(of.seeds), "when": list(WHEN), "layer": range(layers)},
        {"measure": "gradient_ranks", "title": of.title, "data": of.data.name, "samples": len(images)},
    )
    return with_fit(data, twins(bench, of))


def _shares(model: BlockNetwork | Any, images: Tensor, labels: Tensor) -> dict[str, numpy.ndarray]:
    found = conditioning(model.float(), images.float(), targets=labels, states=False, weights=False, training=True)
    layers = [name for name in found["layer"].values if "shortcut" not in str(name) and name != OUTPUT]
    chosen = found.sel(layer=layers)
    singular = {
        name: numpy.isin(chosen[name.replace("singular", "status")].values.astype(str), STATUSES).astype(float)
        for name in SINGULAR.values()
    }
    return {**{name: chosen[name].values for name in SHARES.values()}, **singular}


# -- what it decides


def evidence(sizes: Mapping[str, xarray.Dataset], ranks: Mapping[str, xarray.Dataset]) -> Evidence:
    """By subject; a form is one of its own."""
    of_sizes: dict[Quantity, Reader] = {}
    for what in WHAT:
        of_sizes[FIRST[what]] = partial(ratio, what=what, place=PLACES[0], name="largest")
        of_sizes[LAST[what]] = partial(ratio, what=what, place=PLACES[1])
        of_sizes[AT_THE_END[what]] = partial(ratio, what=what, place=PLACES[0])
    of_ranks: dict[Quantity, Reader] = {}
    for what, when, title in PLACE_OF:
        of_ranks[RANK_SHARE[what, when, title]] = partial(share, name=SHARES[what], when=when, title=title)
        of_ranks[SINGULAR_SHARE[what, when, title]] = partial(
            share, name=SINGULAR[what], when=when, title=title, reduce="mean"
        )
    return {C8: gathered(sizes, of_sizes, _unfitted), C15: gathered(ranks, of_ranks, _unfitted)}


def _unfitted(dataset: xarray.Dataset) -> str:
    """Linear networks are not asked to fit: no linear function does."""
    return "" if "linear units" in str(dataset.attrs.get("title", "")) else unfitted(dataset)


def ratio(dataset: xarray.Dataset, what: str, place: str, name: str = "p99") -> numpy.ndarray:
    """log10 of PlainNet's 99th percentile over ResNet's, one value per network."""
    values = dataset[name].sel(what=what, place=place)
    with numpy.errstate(divide="ignore", invalid="ignore"):
        return numpy.log10(values.sel(network=PLAIN).values / values.sel(network=RESIDUAL).values)


def share(dataset: xarray.Dataset, name: str, when: str, title: str, reduce: str = "median") -> numpy.ndarray:
    """Median or mean over layers, one value per network."""
    return getattr(dataset[name].sel(network=title, when=when), reduce)("layer", skipna=False).values


STUDY = Study(
    PAPER,
    "histograms",
    paper_found="Huge values in PlainNet's first layer, moderate ones elsewhere; singular gradients in PlainNet alone.",
    we_expect="Large first weights and activations in PlainNet with ReLUs alone; gradients of nearly full rank.",
    presets={
        "smoke": HistogramSettings(**SMOKE),
        "quick": HistogramSettings(**QUICK),
        "full": HistogramSettings(
            **{**LARGE, "subjects": ("cifar100-110",), "titles": (PLAIN, RESIDUAL), "networks": 3},
            linear_epochs=20,
            rank_images=128,
        ),
        "paper": HistogramSettings(
            subjects=("cifar100-110",),
            linear_titles=(PLAIN, RESIDUAL, PATHS),
            forms=tuple(FORMS),
            rank_images=128,
            **LONG,
        ),
    },
    cost={
        "smoke": "seconds",
        "quick": "2 minutes on one core after C.accuracy and C.linear, whose networks it takes; 12 without",
        "full": "25 minutes of one H200, of which every 10 minutes can be a command: --resume goes on",
        "paper": "days of one GPU",
    },
    run=run,
    claims=(C8, C15),
)
