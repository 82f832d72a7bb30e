"""C.norms: which statements of paper C need batch norms, and which need that there are none?

    skipscope study run C.norms --preset full --device cuda --out DIR
    skipscope study run C.norms --preset full --device cuda --set subjects=cifar10-110 --out DIR

The paper does not say whether its networks have norms. Norms keep activations at one scale and make gradients grow
backwards, so that what it finds in PlainNets could be due to them, or could be impossible with them. Here PlainNet and
ResNet of one depth are trained with norms and without, in everything else alike: the same data, seeds, rates to choose
from and lengths. Every statement about accuracies, condition numbers, sizes and ranks (C1, C3 to C6, C8, C15) is then
held against both pairs by the rules of its claim.

We expect that PlainNets fail in both forms, that singular states come with norms (units that die) and without (products
of many weights), and that ResNets without norms do not train at the rates of the others. One pair of each form by
default: it shows which statements go with norms, and decides no claim.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Annotated

import numpy
import xarray

from skipscope.constraints import at_least
from skipscope.papers.c import PAPER
from skipscope.papers.c.layer_conditions import layer_conditions
from skipscope.papers.c.studies import accuracy, hidden, histograms, weights
from skipscope.papers.c.studies.histograms import FORMS, gradient_ranks, in_form, sizes_of
from skipscope.papers.c.subjects import (
    LARGE,
    LONG,
    PLAIN,
    RESIDUAL,
    SMOKE,
    TwinSettings,
    TwinSubject,
    expect_titles,
    subject,
    without_path,
)
from skipscope.papers.c.twins import twins
from skipscope.papers.kit import Bench, Claim, Evidence, Measured, Part, Study
from skipscope.papers.kit.study import Found

COMPARED = {"relu": "with norms", "nonorm": "without norms"}  # forms of the networks
CLAIMS = (accuracy.C1, weights.C3, weights.C4, hidden.C5, hidden.C6, histograms.C8, histograms.C15)
HOLDS = {"reproduced": "holds", "not reproduced": "does not hold"}


@dataclass(frozen=True)
class NormsSettings(TwinSettings):
    rank_images: Annotated[int, at_least(1)] = 128  # for ranks of gradients, at most

    @property
    def of_twins(self) -> TwinSettings:
        return TwinSettings(**{field.name: getattr(self, field.name) for field in fields(TwinSettings)})


def run(bench: Bench, settings: NormsSettings) -> Evidence:
    expect_titles(settings.titles, PLAIN, RESIDUAL)
    found: dict[Claim, list[Measured]] = {}
    for text in settings.subjects:
        forms = {form: subject(bench, settings.of_twins, in_form(text, form)) for form in COMPARED}
        alone = "" if len(settings.subjects) == 1 else without_path(text)
        by_form = {form: _measured(bench, of, form, alone, settings.rank_images) for form, of in forms.items()}
        first = forms["relu"]
        bench.part(f"statements-{first.key(bench.device)}", partial(statements, by_form, first.title, first.data.name))
        for evidence in by_form.values():
            for claim, measured in evidence.items():
                found.setdefault(claim, []).extend(_listed(measured))
    return dict(found)


def _measured(bench: Bench, of: TwinSubject, form: str, subject_too: str, rank_images: int) -> Evidence:
    """Everything that the studies of ReLU networks measure, of one form. subject_too: in the networks' names."""
    trained, conditions = twins(bench, of), layer_conditions(bench, of)
    sizes = sizes_of(bench, of, FORMS[form], subject_too)
    ranks = bench.part(f"ranks-{of.key(bench.device)}", partial(gradient_ranks, bench, of, rank_images))
    return {
        **accuracy.evidence({of.name: trained}),
        **weights.evidence({of.name: conditions}),
        **hidden.evidence({of.name: conditions}),
        **histograms.evidence({of.name: sizes}, {of.name: ranks}),
    }


def _listed(measured: Found) -> list[Measured]:
    return [Measured(measured)] if isinstance(measured, Mapping) else list(measured)


def statements(by_form: Mapping[str, Evidence], title: str, data: str) -> xarray.Dataset:
    """(statement, form): `outcome`, whether it holds; `value`, the mean over networks of what it is about, NaN where
    there is none; `why` there is no answer. A precondition that fails, such as a ResNet that is not trained, is why."""
    judged = [(claim, part) for claim in CLAIMS for part in parts_once(claim)]
    outcomes = numpy.full((len(judged), len(COMPARED)), "", dtype=object)
    why, values = outcomes.copy(), numpy.full(outcomes.shape, numpy.nan)
    networks = 0
    for column, form in enumerate(COMPARED):
        for row, (claim, part) in enumerate(judged):
            (measured,) = _listed(by_form[form][claim])
            verdict, reason, found = part.judge(measured.values)
            values[row, column] = numpy.nan if found[0].mean is None else found[0].mean
            outcomes[row, column] = "open" if measured.unmet else HOLDS.get(verdict, "undecided")
            why[row, column] = measured.unmet or ("" if verdict in HOLDS else reason)
            networks = max(networks, measured.count)
    return xarray.Dataset(
        {
            "outcome": (("statement", "form"), outcomes),
            "value": (("statement", "form"), values),
            "why": (("statement", "form"), why),
            "claim": ("statement", [claim.id for claim, _ in judged]),
            "rule": ("statement", ["; ".join(map(str, part.criteria)) for _, part in judged]),
        },
        {
            "statement": [_words(claim, part) for claim, part in judged],
            "form": list(COMPARED.values()),
        },
        {"measure": "statements", "title": title, "data": data, "networks": networks},
    )


def parts_once(claim: Claim) -> list[Part]:
    """Without parts that differ in their subject alone: C5 says the same of convolutions and of matrices. Those about
    linear units are left out."""
    found: dict[tuple[str, ...], Part] = {}
    for part in claim.parts:
        if "linear" not in part.name:
            found.setdefault(tuple(map(str, part.rules)), part)
    return list(found.values())


def _words(claim: Claim, part: Part) -> str:
    """What is stated: the claim's text, or its part without the subject that decides it."""
    name = part.name.partition(",")[0]
    return f"{claim.text.rstrip('.')}: {name}" if name else claim.text.rstrip(".")


def needs(dataset: xarray.Dataset) -> dict[str, list[str]]:
    """Claims and parts by the form in which they hold, as one reads them from the table."""
    found: dict[str, list[str]] = {"both": [], **{form: [] for form in COMPARED.values()}, "none": [], "unclear": []}
    for place, outcomes in enumerate(dataset["outcome"].values):
        statement = f"{dataset['claim'].values[place]} ({dataset['statement'].values[place]})"
        found[_where(outcomes)].append(statement)
    return found


def _where(outcomes: Iterable[str]) -> str:
    held = dict(zip(COMPARED.values(), outcomes, strict=True))
    if not set(held.values()) <= set(HOLDS.values()):
        return "unclear"
    there = [form for form, outcome in held.items() if outcome == HOLDS["reproduced"]]
    return "both" if len(there) == len(held) else there[0] if there else "none"


STUDY = Study(
    PAPER,
    "norms",
    paper_found="It does not say whether its networks have norms.",
    we_expect="PlainNets fail with norms and without; ResNets without norms hardly train.",
    presets={
        "smoke": NormsSettings(**{**SMOKE, "titles": (PLAIN, RESIDUAL)}, rank_images=50),
        "full": NormsSettings(
            **{**LARGE, "subjects": ("mnist-110",), "titles": (PLAIN, RESIDUAL), "networks": 1, "epochs": 20},
            calibration_epochs=3,
        ),
        "paper": NormsSettings(**{**LONG, "subjects": ("cifar10-110", "mnist-110"), "titles": (PLAIN, RESIDUAL)}),
    },
    cost={
        "smoke": "seconds",
        "full": "15 minutes of one H200, of which every 10 minutes can be a command: --resume goes on",
        "paper": "days of one GPU",
    },
    run=run,
)
