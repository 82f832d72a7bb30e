"""A.decay: how much weight decay, and for how long, does residual alignment take?

    skipscope study run A.decay --preset full --out DIR
    skipscope study run A.decay --preset full --device cuda --out DIR

A16 compares networks with a weight decay of 5e-3 and without. This grid shows what lies between and beyond: five values
of weight decay, each with trainings of three lengths, five networks of each. It also separates the two numbers of which
the decay budget is the product: networks of one budget, but of different weight decays and lengths, would be equally
aligned if the budget were all that counts.

We expect straight lines and common singular vectors with more decay and longer training alone. It decides no claim: for
each length, networks without decay and with A16's stand beside those that decide A16.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Annotated, Any

import xarray

from skipscope.constraints import at_least, each, not_empty
from skipscope.papers.a import PAPER
from skipscope.papers.a.doses import doses
from skipscope.papers.a.emergence import emergence, train_all
from skipscope.papers.a.quantities import ALL_PAIRS, LSS, at_look, seeds_of, values
from skipscope.papers.a.studies.counterfactuals import (
    A16,
    ACCURACY_WITHOUT_DECAY,
    LSS_WITH_DECAY,
    LSS_WITHOUT_DECAY,
    PAIRS_WITHOUT_DECAY,
)
from skipscope.papers.a.subjects import ENDS, SMOKE, Looks, TrainingSettings, judged_as, subject
from skipscope.papers.kit import Bench, Evidence, Measured, Quantity, Study

DECAYS = (0.0, 1e-3, 2e-3, 5e-3, 1e-2)
LENGTHS = (30, 90, 250)
WITH_DECAY = 5e-3  # of A16

Grid = Mapping[tuple[float, int], xarray.Dataset]  # statistics (seed, epoch) by weight decay and epochs


@dataclass(frozen=True)
class DecaySettings(TrainingSettings):
    subject: str = "type1-mnist"
    decays: Annotated[tuple[float, ...], not_empty, each(at_least(0))] = DECAYS
    lengths: Annotated[tuple[int, ...], not_empty, each(at_least(1))] = LENGTHS  # epochs, in place of `epochs`
    networks: Annotated[int, at_least(1)] = 5  # of each weight decay and length
    looks: Looks = ENDS


def run(bench: Bench, settings: DecaySettings) -> Evidence:
    subjects = {
        (decay, epochs): subject(
            bench,
            replace(settings, weight_decay=decay, epochs=epochs, decay_budget=None),
            settings.subject,
            title=f"decay {decay:g}, {epochs} epochs",
        )
        for decay, epochs in product(sorted(settings.decays), sorted(settings.lengths))
    }
    train_all(bench, subjects.values())
    found = {cell: emergence(bench, one) for cell, one in subjects.items()}
    doses(
        bench,
        {(f"{epochs} epochs", decay): dataset for (decay, epochs), dataset in found.items()},
        "weight decay",
        title="Weight decay and the length of the training",
        expected="Curves of one dose that differ between lengths say that the decay alone does not decide.",
    )
    return evidence(found, judged_as(settings.subject, next(iter(subjects.values()))))


def evidence(found: Grid, name: str) -> Evidence:
    """By length, where there are networks without decay and with that of A16. name: of the subject."""
    measured = []
    for epochs in sorted({epochs for _, epochs in found}):
        without, with_decay = found.get((0.0, epochs)), found.get((WITH_DECAY, epochs))
        if without is None or with_decay is None:
            continue
        of_length: dict[Quantity, Any] = {
            LSS_WITHOUT_DECAY: values(without)[LSS],
            LSS_WITH_DECAY: values(with_decay)[LSS],
            ACCURACY_WITHOUT_DECAY: at_look(without, "train_accuracy"),
            PAIRS_WITHOUT_DECAY: values(without)[ALL_PAIRS],
        }
        measured.append(Measured(of_length, f"{name}, {epochs} epochs", seeds_of(without)))
    return {A16: measured}


STUDY = Study(
    PAPER,
    "decay",
    paper_found="The text that could be read names no weight decay and no number of epochs.",
    we_expect="Alignment with more weight decay and longer training; none without decay, however long.",
    presets={
        "smoke": DecaySettings(
            **SMOKE | {"looks": ENDS}, subject="type1-digits", decays=(0.0, WITH_DECAY), lengths=(1, 2)
        ),
        "full": DecaySettings(),
        "paper": DecaySettings(networks=8, lengths=(*LENGTHS, 750)),
    },
    cost={
        "smoke": "seconds",
        "full": "25 minutes on 2 cores: 75 networks; a part is chosen by --set lengths=30 --set decays=0,0.005",
        "paper": "2 hours on 2 cores: 160 networks",
    },
    run=run,
)
