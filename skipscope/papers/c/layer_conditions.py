"""Condition numbers of the twins of a subject, layer by layer: of weights and of hidden states.

A layer's hidden state is what it passes on to the next layer: with norm, activation and skip where there are any. The
classifier's is the output, and is no hidden state. In networks of convolutions the last block's state is the one that
enters the classifier, a mean over places. States between blocks are the h of the paper's theory; those inside branches
are measured too. Networks are measured in float64 on training images, in evaluation mode; those that diverged before
the first look, as they were before the training, with the batch's statistics in their norms, and they decide nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy
import torch
import xarray
from torch import Tensor, nn

from skipscope.measure import conditioning
from skipscope.measure.layers import OUTPUT, run, undisturbed_run
from skipscope.measure.passed_states import State
from skipscope.models.network import BlockNetwork
from skipscope.module_hooks import Call
from skipscope.papers.c.subjects import MEASURED_EPOCH, PLAIN, RESIDUAL, TwinSettings, TwinSubject, subjects
from skipscope.papers.c.twins import Reached, measured_twins, reached, twins, with_fit
from skipscope.papers.kit import Bench
from skipscope.spectrum.condition import Reduction
from skipscope.trace.inputs import Inputs

REDUCTION: Reduction = "max"  # of a tensor's condition numbers, over its modes
ALONG = ("weight_condition", "weight_status", "hidden_condition", "hidden_status", "between")


def layer_conditions(bench: Bench, of: TwinSubject) -> xarray.Dataset:
    """Of weights and of the states that layers pass on, (network, seed, layer); alive_...: of states without the units
    or channels that are zero for all images.

    weight_infinity, hidden_infinity: from where on a condition number is numerically infinite. between: whether the
    state is one between blocks. measured_epoch, (network, seed): 0 for a network that diverged before the first look.
    """
    studies = ["C.linear"] if "linear" in of.options else ["C.weights", "C.hidden"]
    key = of.key(bench.device)
    bench.shared(f"conditions-along-{key}", partial(_conditions_along, bench, of), studies)
    return bench.shared(f"conditions-{key}", partial(_measured_conditions, bench, of), studies)


def conditions_of_subjects(bench: Bench, settings: TwinSettings) -> dict[str, xarray.Dataset]:
    """Of all subjects of a study that compares PlainNet and ResNet."""
    return {text: layer_conditions(bench, of) for text, of in subjects(bench, settings, PLAIN, RESIDUAL).items()}


def _measured_conditions(bench: Bench, of: TwinSubject) -> xarray.Dataset:
    images, _ = of.samples(bench.device)

    def measure(network: Reached) -> dict[str, numpy.ndarray]:
        untrained = network.epoch == 0  # its norms have no statistics of their own yet
        return conditions(network.at(network.epoch), images, batch_statistics=untrained)

    found = measured_twins(bench, of, "condition numbers", measure)
    if (found["hidden_full_rank"] == len(images)).any():
        bench.note(
            f"{of.title}: {len(images)} images are no more than some states have units, which limits their ranks"
        )
    among = twins(bench, of)
    data = xarray.Dataset(
        {
            **{name: (("network", "seed", "layer"), values) for name, values in found.items()},
            MEASURED_EPOCH: (("network", "seed"), among["reached_epoch"].values),
        },
        {"network": list(of.models), "seed": list(of.seeds), "layer": range(found["between"].shape[-1])},
        {
            **of.kind("layer_conditions"),
            "title": of.title,
            "data": of.data.name,
            "reduction": REDUCTION,
            "samples": len(images),
        },
    )
    return with_fit(data, among)


def _conditions_along(bench: Bench, of: TwinSubject) -> xarray.Dataset:
    """Of the first network of each kind at every look, (network, epoch, layer); nothing after a divergence.

    Before the training norms have no statistics of their own, and take the batch's.
    """
    images, _ = of.samples(bench.device)
    among, seed = twins(bench, of), of.seeds[0]
    networks = {title: reached(bench, of, title, seed, among) for title in of.models}
    looks = [(title, epoch) for title, network in networks.items() for epoch in network.looks]
    pieces: dict[str, list[xarray.Dataset]] = {title: [] for title in networks}
    for title, epoch in bench.each(f"condition numbers of {of.title} along the training", looks):
        found = conditions(networks[title].at(epoch), images, batch_statistics=epoch == 0)
        kept = {name: ("layer", found[name]) for name in ALONG}
        pieces[title].append(xarray.Dataset(kept, {"epoch": epoch}))
    along = [xarray.concat(own, "epoch").expand_dims(network=[title]) for title, own in pieces.items()]
    fill = {name: "" for name in ALONG if name.endswith("status")}
    joined = xarray.concat(along, "network", join="outer", fill_value={**dict.fromkeys(ALONG, numpy.nan), **fill})
    about = {"title": of.title, "data": of.data.name, "reduction": REDUCTION, "samples": len(images), "seed": seed}
    return joined.assign_attrs(of.kind("conditions_along") | about)


def conditions(
    model: BlockNetwork | Any, images: Tensor, *, batch_statistics: bool = False
) -> dict[str, numpy.ndarray]:
    """Of one network, one entry per layer, without the weights of shortcuts; the model is in float64 afterwards."""
    found = conditioning(model.double(), images.double(), training=batch_statistics).sel(reduction=REDUCTION)
    layers = [str(name) for name in found["layer"].values if "shortcut" not in str(name) and name != OUTPUT]
    weights = found.sel(weight=[f"{layer}.weight" for layer in layers])
    states = found.sel(layer=[*layers[1:], OUTPUT])
    blocks = [_block(layer, model) for layer in layers]
    alive = _without_dead_units(model, images.double(), states, batch_statistics)
    return {
        "weight_condition": weights["weight_condition"].values,
        "weight_status": weights["weight_status"].values,
        "weight_infinity": numpy.array([_infinity(_shape(text)) for text in weights["weight_shape"].values]),
        "hidden_condition": states["state_condition"].values,
        "hidden_status": states["state_status"].values,
        "hidden_infinity": numpy.array([_infinity([max(_shape(text)), 1]) for text in states["layer_shape"].values]),
        "hidden_rank": states["state_rank"].values,
        "hidden_full_rank": states["state_full_rank"].values,
        "alive_condition": numpy.array([value for value, _ in alive]),
        "alive_status": numpy.array([status for _, status in alive], dtype=object),
        "dead_units": states["state_zero_units"].values,
        "between": numpy.array([one != other for one, other in zip(blocks, [*blocks[1:], blocks[-1]], strict=True)]),
    }


def _without_dead_units(
    model: nn.Module, images: Tensor, states: xarray.Dataset, batch_statistics: bool
) -> list[tuple[float, str]]:
    """Condition numbers and statuses of the states that were measured, without the units or channels that are zero for
    all images."""
    names = [str(name) for name in states["layer"].values]
    as_measured = zip(states["state_condition"].values, states["state_status"].values, strict=True)
    found = dict(zip(names, as_measured, strict=True))
    with_dead = {name for name, dead in zip(names, states["state_zero_units"].values, strict=True) if dead}

    def measure(name: str, state: Tensor) -> None:
        alive = (state.transpose(0, 1).flatten(1) != 0).any(1)
        if bool(alive.any()):  # else it stays infinite
            condition = State.of(state[:, alive], axis=0, channel=1).condition.reduced(REDUCTION, 1)
            found[name] = condition.value, condition.status

    def entered(call: Call, state: Tensor | None) -> None:
        if call.name in with_dead and state is not None:
            measure(call.name, state)

    if with_dead:
        with undisturbed_run(model, batch_statistics=batch_statistics):
            output = run(model, Inputs.of(model, images), entered)
        if OUTPUT in with_dead:
            measure(OUTPUT, output)
    return [found[name] for name in names]


def _block(layer: str, model: BlockNetwork) -> str:
    return next((block for block in model.blocks if layer.startswith(f"{block}.")), layer)


def _shape(text: str) -> list[int]:
    return [int(size) for size in str(text).split(" x ")]


def _infinity(shape: Sequence[int]) -> float:
    """1 / (eps of float64 times the longest side of an unfolding)."""
    entries = math.prod(shape)
    return 1 / (torch.finfo(torch.float64).eps * max(max(size, entries // size) for size in shape))


def logarithms(dataset: xarray.Dataset, what: str) -> xarray.DataArray:
    """log10 of condition numbers of "weight", of "hidden" states, or of those without dead units, "alive".

    Infinite ones count as numerical infinity.
    """
    value = dataset[f"{what}_condition"]
    finite = value.where(~numpy.isinf(value), dataset["hidden_infinity" if what == "alive" else f"{what}_infinity"])
    return xarray.DataArray(numpy.log10(finite.values), finite.coords, finite.dims)


def medians(dataset: xarray.Dataset, what: str, title: str) -> numpy.ndarray:
    """Of logarithms over layers, one value per seed; of hidden states those between blocks."""
    values = logarithms(dataset, what).sel(network=title)
    if what == "hidden":
        values = values.isel(layer=between(dataset))
    return values.median("layer", skipna=False).values


def between(dataset: xarray.Dataset) -> numpy.ndarray:
    """Places of the layers whose states are between blocks, which are the same in all networks."""
    return numpy.flatnonzero(dataset["between"].values.reshape(-1, dataset.sizes["layer"])[0])
