"""A.alignment: the four properties of residual alignment, for a type of network and a data set.

    skipscope study run A.alignment --preset quick --out DIR
    skipscope study run A.alignment --preset full --device cuda --set subjects=type2-cifar10 --out DIR

The paper finds, in trained residual networks of three types on five data sets: states that move along a straight line
in equal steps (RA1), Jacobians of all blocks with common leading singular vectors, left and right ones alike (RA2), no
more than as many large singular values as classes in fully connected networks (RA3), and leading ones that fall like
one over depth (RA4).

We expect RA1, RA3 and RA4 after long training with weight decay, RA2 too but weaker between left and right vectors,
and unequal steps in some networks.

A subject is a type and a data set; with -preactivation at its end, type1-mnist-preactivation, norms and activations
stand before the matrices, so that no mask comes between a branch and the next state. Where several are trained, those
of `deciding` decide (if none is named, all but those with pre-activation), one value a network; the others stand beside
them. The preset quick decides by fully connected networks on 3,000 images of MNIST, in the regime for which the
thresholds were set; convolutional ones on digits of 8 x 8 pixels are shown besides. Samples are training images, as in
the paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy

from skipscope.errors import InputError
from skipscope.papers.a import PAPER
from skipscope.papers.a.cases import PREACTIVATION, SMOKE, Training, case, emergence, portraits, several, values
from skipscope.papers.a.claims import decided_by
from skipscope.papers.kit.bench import Bench
from skipscope.papers.kit.study import Evidence, Study
from skipscope.runs.numbers import interval_of

if TYPE_CHECKING:
    import xarray

CONNECTED = "type1"
LEAST = 5  # times as wide as there are classes: a narrower network has no rank to lose
RANK = ("energy in the first C", "s_(C+1) / s_1")  # RA3, which the paper claims of fully connected networks alone


@dataclass(frozen=True)
class AlignmentSettings(Training):
    subjects: tuple[str, ...] = ("type1-mnist", "type2-digits")
    deciding: tuple[str, ...] = ("type1-mnist",)  # none: all but those with pre-activation

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.subjects:
            raise InputError("subjects: expected at least one, such as type1-mnist, got none")
        if self.deciding and not {*map(plain, self.deciding)} & {*map(plain, self.subjects)}:
            raise InputError(
                f"deciding: expected some of the subjects {', '.join(self.subjects)}, got {', '.join(self.deciding)}; "
                "--set deciding= lets all of them decide"
            )


def run(bench: Bench, settings: AlignmentSettings) -> Evidence:
    found: dict[str, xarray.Dataset] = {}
    for subject in settings.subjects:
        of = case(bench, settings, subject, least=LEAST)
        found[subject] = emergence(bench, of)
        portraits(bench, of)
    return evidence(found, settings.deciding)


def evidence(found: Mapping[str, xarray.Dataset], deciding: tuple[str, ...] = ()) -> dict[str, dict[str, Any]]:
    """found: statistics (seed, epoch) by subject; the first epoch is before the training."""
    usual = {plain(subject) for subject in found if not subject.endswith(PREACTIVATION)}
    chosen_ones = {*map(plain, deciding)} or usual or {*map(plain, found)}
    judged = {subject: dataset for subject, dataset in found.items() if plain(subject) in chosen_ones}
    connected = [dataset for subject, dataset in judged.items() if subject.startswith(CONNECTED)]
    convolutional = [dataset for subject, dataset in found.items() if not subject.startswith(CONNECTED)]
    besides = {subject: dataset for subject, dataset in found.items() if subject not in judged}
    at_end, at_start = several(list(judged.values())), several(list(judged.values()), epoch=0)
    trained_on = [f"{subject} ({dataset.attrs['data']})" for subject, dataset in judged.items()]
    about = {"seeds": _networks(list(judged.values())), "networks": ", ".join(trained_on)}

    def chosen(*quantities: str) -> dict[str, Any]:
        own = {quantity: at_end[quantity] for quantity in quantities}
        others = {
            f"{quantity}, {subject}": values(dataset)[quantity]
            for subject, dataset in besides.items()
            for quantity in quantities
        }
        return {**about, **own, **others}

    rank = {quantity: several(connected)[quantity] for quantity in RANK}
    return {
        "A1": chosen("LSS") | {"LSS at initialisation": at_start["LSS"]},
        "A2": chosen("step CoV") | {"step CoV at initialisation": at_start["step CoV"]},
        "A3": chosen("m_K adjacent / chance", "m_K all pairs / chance")
        | {"m_K all pairs at initialisation / chance": at_start["m_K all pairs / chance"]},
        "A4": chosen("m_K(VJU)", "u_1 . v_1")
        | {
            f"95 % interval of the mean {quantity}": list(interval_of(numpy.array(at_end[quantity])))
            for quantity in ("m_K(VJU)", "u_1 . v_1")
            if len(at_end[quantity]) > 1
        },
        "A5": {
            "seeds": _networks(connected),
            **rank,
            "energy in the first C at initialisation": several(connected, epoch=0)["energy in the first C"],
            "width / C": [dataset.attrs["width"] / dataset.attrs["classes"] for dataset in connected],
        },
        "A6": {
            "seeds": _networks(convolutional),
            **{quantity: several(convolutional)[quantity] for quantity in RANK},
        },
        "A7": chosen("R2 of 1 / s_1 over depth", "slope of 1 / s_1 over depth")
        | {
            "R2 from the 10th block on, as the paper fits": [
                value for dataset in judged.values() for value in dataset["r_squared_papers"].isel(epoch=-1).values
            ],
            "log-log slope of s_1 over depth": [
                value for dataset in judged.values() for value in dataset["log_log_slope"].isel(epoch=-1).values
            ],
        },
    }


def plain(subject: str) -> str:
    """Without the path of its data."""
    return subject.partition(":")[0]


def _networks(datasets: list[xarray.Dataset]) -> int:
    """Of the subject that has the fewest: networks on different data are no repetitions."""
    return min((dataset.sizes["seed"] for dataset in datasets), default=0)


ALL = (
    *(f"type{kind}-{data}" for kind in (1, 2, 3) for data in ("mnist", "fashion-mnist", "cifar10", "cifar100")),
    *(f"type{kind}-imagenette32" for kind in (2, 3)),
)
FEW_LOOKS = (0.0, 0.06, 0.2, 0.5, 1.0)  # states of 16,384 numbers: a look takes a minute of a GPU
STUDY = Study(
    PAPER,
    "alignment",
    paper_found="States on straight lines, common singular vectors, rank at most C, singular values like 1 / depth.",
    we_expect="The same after long training with weight decay; left and right vectors alike in part only.",
    presets={
        "smoke": AlignmentSettings(
            **SMOKE,
            subjects=("type1-digits", "type2-digits"),
            deciding=("type1-digits",),
        ),
        "quick": AlignmentSettings(),
        "full": AlignmentSettings(
            channels=64,
            samples=None,
            networks=1,
            epochs=100,
            batch=1024,
            decay_budget=20.0,
            looks=FEW_LOOKS,
            subjects=(*ALL, f"type1-mnist{PREACTIVATION}"),
            deciding=(),
        ),
        "paper": AlignmentSettings(
            channels=64, samples=None, networks=3, epochs=250, batch=1024, decay_budget=20.0, subjects=ALL, deciding=()
        ),
    },
    cost={
        "smoke": "seconds",
        "quick": "10 minutes on 2 cores",
        "full": "under 10 minutes of one GPU a subject; a stopped run goes on with --resume",
        "paper": "a day of one GPU: 14 subjects with three networks each",
    },
    run=run,
    claims=decided_by("A.alignment"),
)
