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
from torch import Tensor

from skipscope.measure import conditioning
from skipscope.measure.layers import OUTPUT
from skipscope.models.network import BlockNetwork
from skipscope.papers.c.subjects import MEASURED_EPOCH, PLAIN, RESIDUAL, TwinSettings, TwinSubject, subjects
from skipscope.papers.c.twins import Reached, measured_twins, twins
from skipscope.papers.kit import Bench

REDUCTION = "max"  # of a tensor's condition numbers, over its modes


def layer_conditions(bench: Bench, of: TwinSubject) -> xarray.Dataset:
    """Of weights and of the states that layers pass on, (network, seed, layer).

    weight_infinity, hidden_infinity: from where on a condition number is numerically infinite. between: whether the
    state is one between blocks. measured_epoch, (network, seed): 0 for a network that diverged before the first look.
    """
    studies = ["C.linear"] if "linear" in of.options else ["C.weights", "C.hidden"]
    return bench.shared(f"conditions-{of.key(bench.device)}", partial(_measured_conditions, bench, of), studies)


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
    return xarray.Dataset(
        {
            **{name: (("network", "seed", "layer"), values) for name, values in found.items()},
            MEASURED_EPOCH: (("network", "seed"), twins(bench, of)["reached_epoch"].values),
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


def conditions(
    model: BlockNetwork | Any, images: Tensor, *, batch_statistics: bool = False
) -> dict[str, numpy.ndarray]:
    """Of one network, one entry per layer, without the weights of shortcuts; the model is in float64 afterwards."""
    found = conditioning(model.double(), images.double(), training=batch_statistics).sel(reduction=REDUCTION)
    layers = [str(name) for name in found["layer"].values if "shortcut" not in str(name) and name != OUTPUT]
    weights = found.sel(weight=[f"{layer}.weight" for layer in layers])
    states = found.sel(layer=[*layers[1:], OUTPUT])
    blocks = [_block(layer, model) for layer in layers]
    return {
        "weight_condition": weights["weight_condition"].values,
        "weight_status": weights["weight_status"].values,
        "weight_infinity": numpy.array([_infinity(_shape(text)) for text in weights["weight_shape"].values]),
        "hidden_condition": states["state_condition"].values,
        "hidden_status": states["state_status"].values,
        "hidden_infinity": numpy.array([_infinity([max(_shape(text)), 1]) for text in states["layer_shape"].values]),
        "hidden_rank": states["state_rank"].values,
        "hidden_full_rank": states["state_full_rank"].values,
        "dead_units": states["state_zero_units"].values,
        "between": numpy.array([one != other for one, other in zip(blocks, [*blocks[1:], blocks[-1]], strict=True)]),
    }


def _block(layer: str, model: BlockNetwork) -> str:
    return next((block for block in model.blocks if layer.startswith(f"{block}.")), layer)


def _shape(text: str) -> list[int]:
    return [int(size) for size in str(text).split(" x ")]


def _infinity(shape: Sequence[int]) -> float:
    """1 / (eps of float64 times the longest side of an unfolding)."""
    entries = math.prod(shape)
    return 1 / (torch.finfo(torch.float64).eps * max(max(size, entries // size) for size in shape))


def logarithms(dataset: xarray.Dataset, what: str) -> xarray.DataArray:
    """log10 of condition numbers of "weight" or "hidden"; infinite ones count as numerical infinity."""
    value = dataset[f"{what}_condition"]
    finite = value.where(~numpy.isinf(value), dataset[f"{what}_infinity"])
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
