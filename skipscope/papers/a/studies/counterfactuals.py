"""A.counterfactuals: what becomes of residual alignment when one thing is changed.

    skipscope study run A.counterfactuals --preset quick --out DIR
    skipscope study run A.counterfactuals --preset full --device cuda --set changes=skips --out DIR

The paper finds that alignment goes away without skips, that the number of large singular values follows the number of
classes, that it appears at all depths and widths and in networks that generalise, and that stochastic depth modulates
it. We add weight decay, without which trajectories do not become straight.

We expect the effects of classes, sizes and weight decay. Whether skips are necessary is open: a network without them
trains at small learning rates only, at which one with skips may not align either, so that both are trained alike, for
long and with clipped gradients, and the test says nothing where the one with skips does not align. The direction in
which stochastic depth works is not known to us: the differences are given with intervals.

Every change is one of `changes`, and is compared with the networks that differ in nothing else. Fewer classes have as
many samples in all: with as many of each class, which we tried first, two classes had a fifth of the steps and hence of
the decay budget, and no rank to speak of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy
from scipy.stats import spearmanr

from skipscope.errors import InputError
from skipscope.papers.a import PAPER
from skipscope.papers.a.cases import SMOKE, Training, case, emergence, values
from skipscope.papers.a.claims import CLAIMS, decided_by
from skipscope.papers.kit.bench import Bench
from skipscope.papers.kit.study import Evidence, Study
from skipscope.runs.numbers import interval_of

if TYPE_CHECKING:
    import xarray

CHANGES = ("decay", "classes", "sizes", "skips", "labels", "drop")
DROPPED = (20, 50)  # per cent of the steps in which a sample goes around a branch
OF_A_SIZE = ("A1", "A3", "A5", "A7")  # claims that a depth and a width have to meet
OF_SKIPS = ("A3", "A5", "A7")


@dataclass(frozen=True)
class CounterfactualSettings(Training):
    subject: str = "type1-mnist"
    changes: tuple[str, ...] = ("decay", "classes")
    classes: tuple[int, ...] = (2, 3, 5, 7)  # besides all of them
    class_networks: int = 1  # seeds of these
    widths: tuple[int, ...] = (32, 64, 128)
    depths: tuple[int, ...] = (8, 16)  # blocks
    long_rate: float = 0.02  # at which networks without skips train
    long_epochs: int = 1250
    long_clip: float = 1.0  # without it the loss of those without skips becomes infinite on all ten classes

    def __post_init__(self) -> None:
        super().__post_init__()
        unknown = [change for change in self.changes if change not in CHANGES]
        if unknown or not self.changes:
            raise InputError(f"changes: expected some of {', '.join(CHANGES)}, got {', '.join(unknown) or 'none'}")
        if self.class_networks > self.networks:
            raise InputError(
                f"class_networks: expected at most the {self.networks} networks with all classes, got "
                f"{self.class_networks}"
            )
        if min((*self.classes, self.class_networks, *self.widths, *self.depths)) < 1:
            raise InputError(
                f"expected classes, class_networks, widths and depths of at least 1, got {self.classes}, "
                f"{self.class_networks}, {self.widths}, {self.depths}"
            )


Measured = Callable[..., "xarray.Dataset"]  # a case, by how it differs


def run(bench: Bench, settings: CounterfactualSettings) -> Evidence:
    def measured(training: Training = settings, **differs: Any) -> xarray.Dataset:
        return emergence(bench, case(bench, training, settings.subject, **differs))

    found: dict[str, dict[str, Any]] = {}
    for change in settings.changes:
        found |= DECIDED[change](measured, settings)
    return found


def _decay(measured: Measured, settings: CounterfactualSettings) -> dict[str, dict[str, Any]]:
    without = measured(replace(settings, weight_decay=0.0, decay_budget=None), title="without weight decay")
    with_decay = measured()
    return {
        "A16": {
            "seeds": min(without.sizes["seed"], with_decay.sizes["seed"]),
            "LSS without weight decay": values(without)["LSS"],
            "LSS with weight decay": values(with_decay)["LSS"],
            "train accuracy without weight decay": _last(without, "train_accuracy"),
            "m_K all pairs / chance without weight decay": values(without)["m_K all pairs / chance"],
        }
    }


def _classes(measured: Measured, settings: CounterfactualSettings) -> dict[str, dict[str, Any]]:
    seeds, every = settings.class_networks, measured()
    alike = replace(settings, decay_budget=every.attrs["decay_budget"])  # also where a few classes have fewer samples
    counted = {
        count: measured(alike, classes=count, seeds=seeds, title=f"{count} classes") for count in settings.classes
    }
    counted[int(every.attrs["classes"])] = every
    counts = sorted(counted)
    large = numpy.array([_last(counted[count], "large")[:seeds] for count in counts])  # count, seed
    return {
        "A9": {
            "seeds": seeds,
            "Spearman of large singular values and C": [float(spearmanr(counts, of)[0]) for of in large.T],
            "large singular values / C, largest": (large / numpy.array(counts)[:, None]).max(0).tolist(),
            "C": counts,
            "mean of large singular values by C": large.mean(1).tolist(),
        }
    }


def _sizes(measured: Measured, settings: CounterfactualSettings) -> dict[str, dict[str, Any]]:
    """A member is a size: a claim holds there if it holds for two thirds of the seeds."""
    sizes = [(width, depth) for width in settings.widths for depth in settings.depths]
    each = [
        measured(replace(settings, width=width, blocks=depth), title=f"{depth} blocks of width {width}")
        for width, depth in sizes
    ]
    return {
        "A10": {
            "seeds": settings.networks,
            **{
                f"{claim} holds at this depth and width": [
                    float(numpy.mean(holds(claim, dataset)) >= 2 / 3) for dataset in each
                ]
                for claim in OF_A_SIZE
            },
            "sizes": ", ".join(f"{width} x {depth}" for width, depth in sizes),
        }
    }


def _skips(measured: Measured, settings: CounterfactualSettings) -> dict[str, dict[str, Any]]:
    long = replace(settings, rate=settings.long_rate, epochs=settings.long_epochs, clip=settings.long_clip)
    with_skips = measured(long, title=f"with skips, rate {long.rate:g}")
    without = measured(long, options="-noskips", title=f"without skips, rate {long.rate:g}")
    found: dict[str, Any] = {"seeds": settings.networks}
    for claim in OF_SKIPS:
        found[f"{claim} fails without skips"] = (1.0 - numpy.array(holds(claim, without))).tolist()
        found[f"{claim} holds with skips"] = holds(claim, with_skips)
    for title, dataset in (("with", with_skips), ("without", without)):
        found[f"train accuracy {title} skips"] = _last(dataset, "train_accuracy")
        found[f"m_K all pairs / chance {title} skips"] = values(dataset)["m_K all pairs / chance"]
        found[f"LSS {title} skips, over its own at initialisation"] = (
            numpy.array(values(dataset)["LSS"]) / values(dataset, epoch=0)["LSS"]
        ).tolist()
    return {"A8": found}


def _labels(measured: Measured, settings: CounterfactualSettings) -> dict[str, dict[str, Any]]:
    true, random = measured(), measured(random_labels=True, title="random labels")
    coupled = [1 - numpy.array(values(dataset)["m_K all pairs / chance"]) for dataset in (true, random)]
    bent = [numpy.array(values(dataset)["LSS"]) - 1 for dataset in (true, random)]
    return {
        "A13": {
            "seeds": settings.networks,
            "1 - m_K / chance, random / true labels": (coupled[1] / coupled[0]).tolist(),
            "LSS - 1, random / true labels": (bent[1] / bent[0]).tolist(),
            "m_K all pairs / chance, true labels": values(true)["m_K all pairs / chance"],
            "train accuracy with true labels": _last(true, "train_accuracy"),
            "train accuracy with random labels": _last(random, "train_accuracy"),
        }
    }


def _drop(measured: Measured, settings: CounterfactualSettings) -> dict[str, dict[str, Any]]:
    base = measured()
    found: dict[str, Any] = {"seeds": settings.networks}
    for percent in DROPPED:
        dropped = measured(options=f"-drop{percent}", title=f"stochastic depth, {percent} %")
        for quantity in ("LSS", "m_K all pairs / chance"):
            change = numpy.array(values(dropped)[quantity]) - values(base)[quantity]
            found[f"change of {quantity}, {percent} % dropped"] = change.tolist()
            if len(change) > 1:
                found[f"95 % interval of its mean, {quantity}, {percent} %"] = list(interval_of(change))
        found[f"train accuracy, {percent} % dropped"] = _last(dropped, "train_accuracy")
    return {"A11": found}


DECIDED: Mapping[str, Callable[[Measured, CounterfactualSettings], dict[str, dict[str, Any]]]] = {
    "decay": _decay,
    "classes": _classes,
    "sizes": _sizes,
    "skips": _skips,
    "labels": _labels,
    "drop": _drop,
}


def holds(claim: str, dataset: xarray.Dataset) -> list[float]:
    """Whether all criteria of a claim hold in the end: 1 or 0 of each seed."""
    criteria = next(each for each in CLAIMS if each.id == claim).criteria
    found = values(dataset)
    return [
        float(
            all(criterion.judge({criterion.quantity: found[criterion.quantity][seed]}).passed for criterion in criteria)
        )
        for seed in range(dataset.sizes["seed"])
    ]


def _last(dataset: xarray.Dataset, name: str) -> list[float]:
    return dataset[name].isel(epoch=-1).values.tolist()


STUDY = Study(
    PAPER,
    "counterfactuals",
    paper_found="No alignment without skips; rank follows the classes; alignment at all depths and widths.",
    we_expect="The same for classes, sizes and weight decay; open for skips at equal training.",
    presets={
        "smoke": CounterfactualSettings(
            **SMOKE,
            subject="type1-digits",
            classes=(2,),
            widths=(50,),
            depths=(2, 3),
            long_epochs=3,
        ),
        "quick": CounterfactualSettings(),
        "full": CounterfactualSettings(changes=CHANGES, class_networks=3),
        "paper": CounterfactualSettings(changes=CHANGES, class_networks=3, samples=None),
    },
    cost={
        "smoke": "seconds",
        "quick": "8 minutes on 2 cores",
        "full": "under 10 minutes of one GPU a change; a stopped run goes on with --resume",
        "paper": "half a day of one GPU: all changes on all images",
    },
    run=run,
    claims=decided_by("A.counterfactuals"),
)
