"""B.norms: figures 2 and 3 of paper B, deeper networks end with smaller weights; and what depth does to the states.

    skipscope study run B.norms --preset quick --out DIR
    skipscope study run B.norms --preset full --device cuda --set residual_data=cifar10:PATH --out DIR

The paper finds that the deeper a residual network, the smaller its weights, all through the training: n-shortcut
networks from zero (figure 3) and pre-activation ResNets on CIFAR-10 (figure 2, from the preset full on). It argues that
states explode with depth at the usual initialisation, with batch normalisation more slowly, and not from zero, and
recalls that deeper networks have smaller branches (He et al.).

We expect all of it, with weights that fall more slowly than the one over the square root of the depth of theorem 1.

Norms are Frobenius norms, mean over the layers (convolutions of a ResNet). One learning rate for all depths, and as
many steps: these decide. Depths that learn faster are then ahead, so that norms at equal loss are also reported, and
the share of the recorded steps at which norms fall from each depth to the next. "From zero" is the paper's
initialisation of that name, 0.01 times the usual weights of the units.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import numpy
import xarray

from skipscope.constraints import Constrained, above, at_least, each, multiple_of, several
from skipscope.papers.b import PAPER
from skipscope.papers.b.measurements.depth import STARTS, branches, log_slope, residual_norms, shortcut_norms, states
from skipscope.papers.b.subjects import CIFAR10, MNIST, residual_subject, residual_training, subject_on, whitened_data
from skipscope.papers.kit import Bench, Claim, Evidence, Measured, Part, Quantity, Study
from skipscope.papers.kit.estimates import Slope
from skipscope.runs.sweep import Task

KINDS = {"linear": "linear", "relu": "ReLU-mid", "residual": "pre-activation ResNets"}  # titles
SHORTCUT_KINDS = ("linear", "relu")
DIGITS = "digits"  # the subject of what is measured on small ResNets
RESIDUAL_COST = (
    "skipscope study run B.norms --preset full --device cuda (15 minutes on one H200: pre-activation ResNets 20, 56 "
    "and 110, three networks each, 80 epochs)"
)
DROPS = (0.4, 0.61)  # of the learning rate of ResNets: the paper's 81st and 122nd of 200 epochs
RESIDUAL_EPOCHS = 80  # that it takes to judge them


# -- claims

NORM_SLOPE = {kind: Quantity(f"slope of log mean |W|_F over log depth, {title}") for kind, title in KINDS.items()}
EQUAL_LOSS_SLOPE = {
    kind: Quantity(f"slope of log mean |W|_F over log depth at equal loss, {title}") for kind, title in KINDS.items()
}
FALLING_SHARE = {
    kind: Quantity(f"share of the recorded steps with norms that fall with depth, {title}")
    for kind, title in KINDS.items()
}
RESIDUAL_SLOPE_IN_TRAINING = Quantity(f"{NORM_SLOPE['residual']}, mean over the epochs")
B14 = Claim(
    "B14",
    "Deeper networks end with smaller weights.",
    "slope of log mean |W|_F over log depth after training (figures 2 and 3), for ResNets also during it",
    parts=(
        Part("linear networks", (NORM_SLOPE["linear"].at_most(-0.25),)),
        Part("ReLUs in the middle", (NORM_SLOPE["relu"].at_most(-0.25),)),
        Part("ResNets, mean over training", (RESIDUAL_SLOPE_IN_TRAINING.below(0.0),), subject=CIFAR10),
        Part("ResNets, at the end", (NORM_SLOPE["residual"].below(0.0),), subject=CIFAR10),
    ),
    subjects={MNIST: 8, CIFAR10: 3},
    cost=RESIDUAL_COST,
    note=(
        "About -0.38 was seen for n-shortcut networks, for which -0.25 was set; theorem 1 says -0.5. Judged after as "
        "many steps each; the slope at equal loss and the share of the training during which norms fall with depth are "
        "also reported. Of ResNets: the slope through all networks."
    ),
)

GROWTH = Quantity("slope of log variance over depth, without BatchNorm")
GROWTH_BY_BATCH_NORM = Quantity("slope of log variance over depth, with - without BatchNorm")
GROWTH_FROM_ZERO = Quantity("|slope of log variance over depth|, from zero")
BRANCH_SLOPE = Quantity("slope of log branch output over log depth of the network")
RESIDUAL_BRANCH_SLOPE = Quantity("slope of log branch output over log depth, pre-activation ResNets on CIFAR-10")
B22 = Claim(
    "B22",
    "States explode with depth at the usual initialisation, less so with batch normalisation, not from zero; "
    "deeper networks answer with smaller branches.",
    "slope of the log variance of states over depth; standard deviation of branch outputs of trained networks",
    parts=(
        Part("states explode", (GROWTH.above(0.0),)),
        Part("less so with batch normalisation", (GROWTH_BY_BATCH_NORM.below(0.0),)),
        Part("not from zero", (GROWTH_FROM_ZERO.at_most(1e-3, every=True),)),
        Part("smaller branches in deeper networks, digits", (BRANCH_SLOPE.below(0.0),)),
        Part("smaller branches in deeper networks, CIFAR-10", (RESIDUAL_BRANCH_SLOPE.below(0.0),), subject=CIFAR10),
    ),
    subjects={DIGITS: 8, CIFAR10: 3},
    cost=RESIDUAL_COST,
    note=(
        "From zero: 0.01 times the usual weights, the paper's initialisation of that name; with weights of exactly "
        "0 the slope is 0 by construction. What counts as 0 was chosen before a look: 1e-3, a variance that "
        "changes by less than a factor e over 1000 units."
    ),
)


@dataclass(frozen=True)
class NormSettings(Constrained):
    data: str = "mnist"
    depths: Annotated[tuple[int, ...], several, each(at_least(2), multiple_of(2))] = (6, 12, 24, 48)
    networks: Annotated[int, at_least(1)] = 8  # seeds
    steps: Annotated[int, at_least(1)] = 800
    rate: Annotated[float, above(0)] = 0.3
    # The first so many, for networks with ReLUs; linear ones have all.
    samples: Annotated[int | None, at_least(1)] = 1000
    initial: int = 122  # depth of the networks whose first states are measured
    trained: Annotated[tuple[int, ...], several] = (8, 20, 50)  # depths of pre-activation ResNets on digits
    trained_networks: Annotated[int, at_least(1)] = 8  # seeds of these
    epochs: Annotated[int, at_least(1)] = 6  # of their training
    residual: tuple[int, ...] = ()  # depths of pre-activation ResNets on CIFAR-10; they need a GPU
    residual_data: str = "cifar10"
    residual_networks: Annotated[int, at_least(1)] = 3  # of each depth
    residual_epochs: Annotated[int, at_least(5)] = (
        RESIDUAL_EPOCHS  # fewer than 5 leave no room for two drops of the learning rate
    )


def run(bench: Bench, settings: NormSettings) -> Evidence:
    white = whitened_data(bench, settings.data)
    compute = partial(
        shortcut_norms,
        bench,
        white,
        networks=settings.networks,
        rate=settings.rate,
        steps=settings.steps,
        samples=settings.samples,
    )
    norms = {}
    for kind in ("linear", "relu"):
        tasks = [Task(f"{kind}-{depth}", partial(compute, kind, depth)) for depth in settings.depths]
        norms[kind] = bench.sweep(tasks, f"norms of {kind} 2-shortcut networks")
    digits = bench.data("digits")
    seeds = bench.seeds(settings.networks)
    first_states = bench.part("states", partial(states, bench, digits, seeds, settings.initial))
    seeds = bench.seeds(settings.trained_networks)
    trained_branches = bench.sweep(
        Task(f"branches-{depth}", partial(branches, bench, digits, seeds, depth, settings.epochs))
        for depth in settings.trained
    )
    if settings.residual:
        images = bench.data(settings.residual_data)
        training = residual_training(settings.residual_epochs, DROPS)
        norms["residual"] = residual_norms(bench, images, training, settings.residual, settings.residual_networks)
    return evidence(norms, first_states, trained_branches)


# -- what it decides


def evidence(
    norms: Mapping[str, Sequence[xarray.Dataset]], states: xarray.Dataset, branches: Sequence[xarray.Dataset]
) -> Evidence:
    growth = {start: _growth(states, start) for start in STARTS}
    in_training = {
        quantity: found
        for kind in SHORTCUT_KINDS
        for quantity, found in (
            (EQUAL_LOSS_SLOPE[kind], slopes_at_equal_loss(norms[kind])),
            (FALLING_SHARE[kind], shares_falling(norms[kind])),
        )
    }
    weights = {
        NORM_SLOPE[kind]: slopes_over_depth(norms[kind], lambda part: part["norm"].isel(step=-1))
        for kind in SHORTCUT_KINDS
    }
    in_states = {
        GROWTH: growth["without BatchNorm"].tolist(),
        GROWTH_BY_BATCH_NORM: (growth["with BatchNorm"] - growth["without BatchNorm"]).tolist(),
        GROWTH_FROM_ZERO: abs(growth["from zero"]).tolist(),
        BRANCH_SLOPE: slopes_over_depth(branches, lambda part: part["branch"]),
    }
    small = min((*branches, states), key=lambda part: part.sizes["seed"])
    found = {
        B14: [_measured(norms["linear"], subject_on(norms["linear"][0].attrs["data"]), {**weights, **in_training})],
        B22: [Measured(in_states, DIGITS, small["seed"].values.tolist())],
    }
    for claim, values in _of_residual(norms.get("residual", ())).items():
        found[claim].append(values)
    return found


def _of_residual(parts: Sequence[xarray.Dataset]) -> dict[Claim, Measured]:
    """Slopes through all ResNets on CIFAR-10; nothing where there are none."""
    if not parts:
        return {}
    subject = residual_subject(str(parts[0].attrs["data"]))
    epochs = int(parts[0].attrs["epochs"])
    unmet = f"{epochs} of the {RESIDUAL_EPOCHS} epochs that it takes" if epochs < RESIDUAL_EPOCHS else ""
    norms = {
        NORM_SLOPE["residual"]: slope_of_all(parts, lambda part: numpy.log(part["norm"].isel(step=-1).values)),
        RESIDUAL_SLOPE_IN_TRAINING: slope_of_all(
            parts, lambda part: numpy.log(part["norm"].transpose("seed", "step").values[:, 1:]).mean(1)
        ),
        EQUAL_LOSS_SLOPE["residual"]: slopes_at_equal_loss(parts),
        FALLING_SHARE["residual"]: shares_falling(parts),
    }
    outputs = {RESIDUAL_BRANCH_SLOPE: slope_of_all(parts, lambda part: numpy.log(part["branch"].values))}
    return {B14: _measured(parts, subject, norms, unmet), B22: _measured(parts, subject, outputs, unmet)}


def _measured(
    parts: Sequence[xarray.Dataset], subject: str, values: Mapping[Quantity, Any], unmet: str = ""
) -> Measured:
    fewest = min(parts, key=lambda part: part.sizes["seed"])
    return Measured(values, subject, fewest["seed"].values.tolist(), unmet=unmet)


def slope_of_all(parts: Sequence[xarray.Dataset], logs: Callable[[xarray.Dataset], numpy.ndarray]) -> Slope:
    """Of logarithms (seed) over log depth, through all networks of all depths."""
    values = [logs(part) for part in parts]
    at = [math.log(part.attrs["depth"]) for part, each in zip(parts, values, strict=True) for _ in each]
    return Slope(at, numpy.concatenate(values).tolist())


def slopes_over_depth(
    parts: Sequence[xarray.Dataset], value: Callable[[xarray.Dataset], xarray.DataArray]
) -> list[float]:
    """Of the log of a value (seed) over log depth, one slope per seed; none where there are no networks."""
    if not parts:
        return []
    depths = numpy.array([part.attrs["depth"] for part in parts], dtype=float)
    values = numpy.stack([value(part).values for part in parts])  # depths, seeds
    return [log_slope(depths, column) for column in values.T]


def slopes_at_equal_loss(parts: Sequence[xarray.Dataset]) -> list[float]:
    """As slopes_over_depth, of the norms where each depth first has the highest of the final losses of all depths."""
    targets = numpy.max([part["loss"].isel(step=-1).values for part in parts], axis=0)  # seeds
    return slopes_over_depth(parts, lambda part: _norms_at(part, targets))


def _norms_at(part: xarray.Dataset, losses: numpy.ndarray) -> xarray.DataArray:
    """Norms (seed) where the loss of each seed first comes down to one; linear between recorded steps."""
    found = []
    for loss, norm, target in zip(part["loss"].values, part["norm"].values, losses, strict=True):
        if not numpy.isfinite(target):
            found.append(numpy.nan)
            continue
        after = int((loss <= target).argmax())
        before = max(after - 1, 0)
        way = (loss[before] - target) / (loss[before] - loss[after]) if loss[before] > loss[after] else 1.0
        found.append(norm[before] + way * (norm[after] - norm[before]))
    return xarray.DataArray(found, dims="seed")


def shares_falling(parts: Sequence[xarray.Dataset]) -> list[float]:
    """By seed: of the recorded steps but the first, those at which each depth has smaller norms than the one before."""
    norms = numpy.stack([part["norm"].transpose("seed", "step").values for part in parts])[:, :, 1:]
    return (numpy.diff(norms, axis=0) < 0).all(0).mean(1).tolist()


def _growth(states: xarray.Dataset, start: str) -> numpy.ndarray:
    """Slopes of the log variance over the units, by seed."""
    logs = numpy.log(states["variance"].sel(start=start).transpose("unit", "seed").values)
    return numpy.polyfit(states["unit"].values, logs, 1)[0]


STUDY = Study(
    PAPER,
    "norms",
    paper_found="The deeper a residual network, the smaller its weights; states explode at the usual initialisation.",
    we_expect="The same; weights fall like the depth to the power -0.4, more slowly than theorem 1's -0.5.",
    presets={
        "smoke": NormSettings(
            "digits", (4, 8), 1, 10, samples=50, initial=20, trained=(8, 14), trained_networks=1, epochs=1
        ),
        "quick": NormSettings(),
        "full": NormSettings(samples=None, residual=(20, 56, 110)),
        "paper": NormSettings(networks=10, steps=1000, samples=None, residual=(20, 56, 110), residual_epochs=200),
    },
    cost={
        "smoke": "seconds",
        "quick": "2 minutes on 2 cores",
        "full": "15 minutes on one H200, most for three ResNet-110; a stopped run goes on with --resume",
        "paper": "an hour on one GPU",
    },
    run=run,
    claims=(B14, B22),
)
