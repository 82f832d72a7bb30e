"""A.sizes: does residual alignment appear at all depths and widths?

    skipscope study run A.sizes --preset full --device cuda --out DIR
    skipscope study run A.sizes --preset full --set widths=64 --set depths=8,16 --out DIR

The paper finds it in networks of several depths and widths. A cell is a width and a number of blocks, with five
networks; each has a verdict of its own, by A1, A3, A5 and the line of A7. All widths are at least five times the ten
classes, as A3 and A5 ask for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Annotated

import xarray

from skipscope.constraints import at_least, each, not_empty
from skipscope.papers.a import PAPER
from skipscope.papers.a.doses import doses
from skipscope.papers.a.emergence import emergence, train_all, untrained
from skipscope.papers.a.quantities import ADJACENT, ALL_PAIRS, ENERGY, GAP, LSS, R_SQUARED, SLOPE, seeds_of, values
from skipscope.papers.a.studies.alignment import ALL_PAIRS_AT_START, ENERGY_AT_START, STRAIGHTENED, straightened
from skipscope.papers.a.subjects import ENDS, SMOKE, Looks, TrainingSettings, judged_as, subject
from skipscope.papers.kit import Bench, Claim, Evidence, Measured, Part, Study

WIDTHS, DEPTHS = (64, 128, 256), (8, 16, 32)
NETWORKS = 5
EXPECTED = "The paper finds alignment at all depths and widths: curves should be flat."


def cell(subject: str, width: int, depth: int) -> str:
    """The name of a cell."""
    return f"{subject}-w{width}-b{depth}"


A10 = Claim(
    "A10",
    "Alignment appears across depths and widths.",
    "A1, A3, A5 and the line of A7 at every depth and width",
    parts=tuple(
        Part(
            f"width {width}, {depth} blocks",
            (
                LSS.at_most(1.15),
                ADJACENT.at_most(0.62),
                ALL_PAIRS.at_most(0.77),
                ENERGY.at_least(0.99),
                GAP.at_most(0.05),
                R_SQUARED.at_least(0.9),
            ),
            (STRAIGHTENED.at_least(5.0), ALL_PAIRS_AT_START.at_least(0.97), ENERGY_AT_START.at_most(0.8)),
            subject=cell("type1-mnist", width, depth),
        )
        for width, depth in product(WIDTHS, DEPTHS)
    ),
    subjects={cell("type1-mnist", width, depth): NETWORKS for width, depth in product(WIDTHS, DEPTHS)},
)


@dataclass(frozen=True)
class SizesSettings(TrainingSettings):
    subject: str = "type1-mnist"
    widths: Annotated[tuple[int, ...], not_empty, each(at_least(1))] = WIDTHS
    depths: Annotated[tuple[int, ...], not_empty, each(at_least(1))] = DEPTHS  # blocks
    networks: Annotated[int, at_least(1)] = NETWORKS  # of each size
    looks: Looks = ENDS


def run(bench: Bench, settings: SizesSettings) -> Evidence:
    subjects = {}
    cells = {}
    for width, depth in product(settings.widths, settings.depths):
        training = replace(settings, width=width, blocks=depth)
        one = subject(bench, training, settings.subject, title=f"{depth} blocks of width {width}")
        name = cell(judged_as(settings.subject, one), width, depth)
        subjects[name], cells[name] = one, (f"width {width}", float(depth))
    train_all(bench, subjects.values())
    found = {name: (emergence(bench, one), untrained(bench, one, settings.untrained)) for name, one in subjects.items()}
    by_cell = {cells[name]: trained for name, (trained, _) in found.items()}
    doses(bench, by_cell, "number of blocks", title="Depths and widths", expected=EXPECTED)
    return evidence(found)


def evidence(found: Mapping[str, tuple[xarray.Dataset, xarray.Dataset]]) -> Evidence:
    """found: by cell, statistics (seed, epoch) and (draw) of untrained networks."""
    measured = []
    for name, (trained, drawn) in found.items():
        end = values(trained)
        chosen = {quantity: end[quantity] for quantity in (LSS, ADJACENT, ALL_PAIRS, ENERGY, GAP, R_SQUARED, SLOPE)}
        controls = {
            STRAIGHTENED: straightened(trained, drawn),
            ALL_PAIRS_AT_START: drawn["over_chance_all"].values.tolist(),
            ENERGY_AT_START: drawn["energy"].values.tolist(),
        }
        measured.append(Measured({**chosen, **controls}, name, seeds_of(trained)))
    return {A10: measured}


STUDY = Study(
    PAPER,
    "sizes",
    paper_found="Alignment at all depths and widths.",
    we_expect="The same, at widths of at least five times the classes.",
    presets={
        "smoke": SizesSettings(**SMOKE | {"looks": ENDS}, subject="type1-digits", widths=(50,), depths=(2, 3)),
        "full": SizesSettings(),
        "paper": SizesSettings(samples=None),
    },
    cost={
        "smoke": "seconds",
        "full": "2 hours on 2 cores: 45 networks; a cell of 5 is chosen by --set widths=64 --set depths=8",
        "paper": "hours of one GPU: all images",
    },
    run=run,
    claims=(A10,),
)
