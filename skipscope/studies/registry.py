"""All claims and all studies, by their names."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from skipscope.errors import InputError
from skipscope.runs import Claim
from skipscope.studies.a.alignment import ALIGNMENT
from skipscope.studies.a.claims import CLAIMS as A
from skipscope.studies.a.collapse import COLLAPSE
from skipscope.studies.a.counterfactuals import COUNTERFACTUALS
from skipscope.studies.a.theorem31 import THEOREM31
from skipscope.studies.a.theorem33 import THEOREM33
from skipscope.studies.b.claims import CLAIMS as B
from skipscope.studies.b.dynamics import DYNAMICS
from skipscope.studies.b.initial import INITIAL
from skipscope.studies.b.learning import LEARNING
from skipscope.studies.b.norms import NORMS
from skipscope.studies.b.shortcuts import SHORTCUT_DEPTHS
from skipscope.studies.b.theorem1 import THEOREM1
from skipscope.studies.b.theorem2 import THEOREM2
from skipscope.studies.c.accuracy import ACCURACY
from skipscope.studies.c.claims import CLAIMS as C
from skipscope.studies.c.deeper import DEEPER
from skipscope.studies.c.dirac import DIRACNETS
from skipscope.studies.c.hidden import HIDDEN
from skipscope.studies.c.histograms import HISTOGRAMS
from skipscope.studies.c.linear import LINEAR
from skipscope.studies.c.theorems import THEOREMS
from skipscope.studies.c.weights import WEIGHTS
from skipscope.studies.d.claims import CLAIMS as D
from skipscope.studies.d.law import LAW
from skipscope.studies.d.noise import NOISE
from skipscope.studies.d.perturbations import PERTURBATIONS
from skipscope.studies.d.projections import PROJECTIONS
from skipscope.studies.d.proportions import PROPORTIONS
from skipscope.studies.d.scaling import SCALING
from skipscope.studies.d.spectra import SPECTRA
from skipscope.studies.d.verify import VERIFY
from skipscope.studies.study import Study

CLAIMS: tuple[Claim, ...] = (*A, *B, *C, *D)
STUDIES: tuple[Study, ...] = (
    ALIGNMENT,
    COUNTERFACTUALS,
    COLLAPSE,
    THEOREM31,
    THEOREM33,
    THEOREM2,
    THEOREM1,
    INITIAL,
    DYNAMICS,
    LEARNING,
    NORMS,
    SHORTCUT_DEPTHS,
    THEOREMS,
    ACCURACY,
    HISTOGRAMS,
    WEIGHTS,
    HIDDEN,
    LINEAR,
    DEEPER,
    DIRACNETS,
    VERIFY,
    LAW,
    SPECTRA,
    PROPORTIONS,
    PERTURBATIONS,
    PROJECTIONS,
    SCALING,
    NOISE,
)
PAPERS = tuple(sorted({claim.paper for claim in CLAIMS}))


def find(names: str) -> tuple[Study, ...]:
    """The study of an id, all studies of the paper with a letter, or several of these with commas between them."""
    chosen = {study.id for name in _split(names) for study in _named(name)}
    return tuple(study for study in STUDIES if study.id in chosen)


def claims_of(names: str, studies: Sequence[Study]) -> tuple[Claim, ...]:
    """The claims that a run of `names` speaks about: of a paper all of them, of a study its own."""
    papers, ids = {name.upper() for name in _split(names)}, {study.id for study in studies}
    return tuple(claim for claim in CLAIMS if claim.paper in papers or claim.study in ids)


def _split(names: str) -> list[str]:
    found = [name.strip() for name in names.split(",")]
    if len(found) > 1 and not all(found):
        raise InputError(f"studies '{names}': expected names with commas between them, got an empty one")
    return found


def _named(name: str) -> tuple[Study, ...]:
    if name.upper() in PAPERS:
        return tuple(study for study in STUDIES if study.paper == name.upper())
    for study in STUDIES:
        if study.id.lower() == name.lower():
            return (study,)
    close = difflib.get_close_matches(name, [*(study.id for study in STUDIES), *PAPERS], n=1)
    hint = f"did you mean {close[0]}? There" if close else "there"
    raise InputError(f"no study '{name}'; {hint} are {_listed()}, and a paper's letter runs all of its studies")


def _listed() -> str:
    return ", ".join(study.id for study in STUDIES)
