"""C.dirac: does a DiracNet drift from its identity, and does it do worse than a ResNet?

    skipscope study run C.dirac --preset quick --out DIR
    skipscope study run C.dirac --preset full --device cuda --out DIR

The paper holds that DiracNets, which have an identity in their weights in place of skips, lose it in training, since it
is only their initialisation, and therefore do worse than ResNets. It reports no experiment.

In the published DiracNet the identity is there throughout training, with a factor `a` of each output that is trained
from 1 on; the additive form W + diag(a) is what the paper describes. Both are trained, and a ResNet of the same depth,
each at the rate that is the best for it on a calibration seed. We expect factors that hardly move, and accuracies of
the published form that are no worse than ResNet's; those of the additive form, whose states grow with depth at first,
are lower.

Drift is the mean of |a - 1| over all outputs of all layers, in the end. The distance of the last state and the first
one, |h^L - h^0| / |h^0|, is a mean over training images; of networks with several stages, a mean over stages, from the
first state of their size to the last. Both are reported, with intervals over seeds; the test accuracy is judged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any

import numpy
import torch
import xarray
from torch import Tensor

from skipscope.models.blocks.dirac import DiracConv2d, DiracLinear
from skipscope.models.network import BlockNetwork
from skipscope.module_hooks import following
from skipscope.papers.c import PAPER
from skipscope.papers.c.subjects import (
    ADDITIVE,
    DIRAC,
    LARGE,
    LONG,
    RESIDUAL,
    SMOKE,
    Reader,
    TwinSettings,
    TwinSubject,
    gathered,
    subjects,
)
from skipscope.papers.c.twins import reached, twins
from skipscope.papers.kit import Bench, Claim, Evidence, Part, Quantity, Study
from skipscope.runs.decisions import interval_of

TITLES = (DIRAC, ADDITIVE, RESIDUAL)
AHEAD = Quantity("test accuracy, ResNet - DiracNet")


C17 = Claim(
    "C17",
    "A DiracNet drifts from its identity and does worse than ResNet.",
    "test accuracy at 32 layers; drift of the identity's factor from 1 and distance of last state and input, reported",
    parts=(Part("ResNet is ahead of DiracNet in the test", (AHEAD.above(0.0),)),),
    subjects={"cifar10-32": 3, "mnist-20-connected": 3},
    cost="skipscope study run C.dirac --preset full --device cuda (20 minutes of one H200)",
    note=(
        "the paper takes the Dirac part for an initialisation, in a DiracNet it is there throughout training; both "
        "parametrisations are shown"
    ),
)


def run(bench: Bench, settings: TwinSettings) -> Evidence:
    found = {
        text: bench.part(f"drift-{of.key(bench.device)}", partial(drifted, bench, of))
        for text, of in subjects(bench, settings, *TITLES).items()
    }
    return evidence(found)


def drifted(bench: Bench, of: TwinSubject) -> xarray.Dataset:
    """Accuracies, drift of the identity's factors, distance of last and first state, (network, seed)."""
    trained = twins(bench, of)
    images, _ = of.samples(bench.device)
    rows: dict[str, list[list[float]]] = {name: [] for name in ("drift", "factor", "distance", "first_distance")}
    for title in of.models:
        networks = [reached(bench, of, title, seed, trained) for seed in of.seeds]
        last, initial = [network.at(network.epoch) for network in networks], [network.at(0) for network in networks]
        factors = [identity_factors(model) for model in last]
        rows["drift"].append([float((a - 1).abs().mean()) for a in factors])
        rows["factor"].append([float(a.mean()) for a in factors])
        rows["distance"].append([distance(model, images) for model in last])
        rows["first_distance"].append([distance(model, images) for model in initial])
    measured = {name: (("network", "seed"), numpy.array(values)) for name, values in rows.items()}
    found = trained[["reached_train_accuracy", "reached_test_accuracy"]].assign(measured)
    found.attrs = {"measure": "drift", "title": of.title, "data": of.data.name}
    return found


def identity_factors(model: BlockNetwork | Any) -> Tensor:
    """All factors `a` of a network; none in a network without an identity in its weights."""
    found = [module.a.detach().flatten() for module in model.modules() if isinstance(module, DiracConv2d | DiracLinear)]
    return torch.cat(found) if found else torch.empty(0)


@torch.no_grad()
def distance(model: BlockNetwork | Any, images: Tensor) -> float:
    """|last - first| / |first| of the states between blocks, mean over images and over stages."""
    states: list[Tensor] = []
    blocks = dict(model.blocks)
    first_block = dict([next(iter(blocks.items()))])
    with (
        following(first_block, entered=lambda call: states.append(call.args[0])),
        following(blocks, left=lambda call, output: states.append(output)),
    ):
        model(images)
    moved = []
    for _, group in groupby(states, key=lambda state: state.shape):
        first, *between = [state.flatten(1) for state in group]
        if between:  # a stage of one block has one state
            moved.append(float(((between[-1] - first).norm(dim=1) / first.norm(dim=1)).mean()))
    return sum(moved) / len(moved)


def evidence(found: dict[str, xarray.Dataset]) -> Evidence:
    """With intervals of what is reported."""
    by_subject = gathered(found, {AHEAD: lambda data: -_behind(data, DIRAC), **REPORTED})
    return {C17: [replace(measured, values=_with_intervals(measured.values)) for measured in by_subject]}


def _with_intervals(values: Mapping[Quantity, Any]) -> dict[Quantity, Any]:
    found = dict(values)
    for quantity in REPORTED:
        members = numpy.array(values[quantity])
        if len(members) > 1 and numpy.isfinite(members).all():
            found[Quantity(f"95 % interval of its mean, {quantity}")] = list(interval_of(members))
    return found


def _of(dataset: xarray.Dataset, name: str, title: str) -> numpy.ndarray:
    return dataset[name].sel(network=title).values


def _behind(dataset: xarray.Dataset, title: str) -> numpy.ndarray:
    test = dataset["reached_test_accuracy"]
    return (test.sel(network=title) - test.sel(network=RESIDUAL)).values


REPORTED: dict[Quantity, Reader] = {
    **{Quantity(f"mean |a - 1|, {title}"): partial(_of, name="drift", title=title) for title in (DIRAC, ADDITIVE)},
    **{Quantity(f"mean of a, {title}"): partial(_of, name="factor", title=title) for title in (DIRAC, ADDITIVE)},
    **{
        Quantity(f"|h^L - h^0| / |h^0|, {when}{title}"): partial(_of, name=name, title=title)
        for name, when in (("distance", ""), ("first_distance", "at initialisation, "))
        for title in TITLES
    },
    **{
        Quantity(f"{what} accuracy, {title}"): partial(_of, name=f"reached_{what}_accuracy", title=title)
        for what in ("train", "test")
        for title in TITLES
    },
    Quantity(f"test accuracy, {ADDITIVE} - ResNet"): partial(_behind, title=ADDITIVE),
}
STUDY = Study(
    PAPER,
    "dirac",
    paper_found="No experiment: an identity that is only there at first is lost in training.",
    we_expect="Factors that stay close to 1; the published form does as well as ResNet, the additive one worse.",
    presets={
        "smoke": TwinSettings(**{**SMOKE, "titles": TITLES}, equal_rates=False),
        "quick": TwinSettings(
            subjects=("mnist-20-connected",), titles=TITLES, networks=3, calibration_epochs=5, equal_rates=False
        ),
        "full": TwinSettings(
            **{**LARGE, "subjects": ("cifar10-32",), "titles": TITLES, "networks": 3}, equal_rates=False
        ),
        "paper": TwinSettings(**{**LONG, "subjects": ("cifar10-110",), "titles": TITLES}, equal_rates=False),
    },
    cost={
        "smoke": "seconds",
        "quick": "2 minutes on one core",
        "full": "20 minutes of one GPU, of which every 10 minutes can be a command: --resume goes on",
        "paper": "a day of one GPU",
    },
    run=run,
    claims=(C17,),
)
