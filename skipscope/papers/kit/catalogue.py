"""All studies and claims of the installed papers, by their names."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module

from skipscope.errors import SkipscopeError
from skipscope.papers.kit.claims import Claim
from skipscope.papers.kit.names import ids_named, split
from skipscope.papers.kit.study import Study
from skipscope.registration import Paper, papers


@cache
def studies() -> tuple[Study, ...]:
    """Paper after paper, each in its own order, in which they are run."""
    return tuple(_loaded(paper, name) for paper in papers() for name in paper.studies)


def _loaded(paper: Paper, name: str) -> Study:
    study = import_module(f"{paper.package}.studies.{name}").STUDY
    if study.paper != paper or study.name != name:
        raise SkipscopeError(f"{paper.package}.studies.{name} has the study {study.id}, not {paper.letter}.{name}")
    return study


@cache
def claims() -> tuple[Claim, ...]:
    """Paper after paper, by number."""
    found = [claim for study in studies() for claim in study.claims]
    doubled = {claim.id for claim in found if [other.id for other in found].count(claim.id) > 1}
    if doubled:
        raise SkipscopeError(f"claims that several studies decide: {', '.join(sorted(doubled))}")
    return tuple(sorted(found, key=lambda claim: (claim.id[0], claim.number)))


def study_of(claim: Claim) -> Study:
    """The study that decides a claim."""
    return next(study for study in studies() if claim in study.claims)


def find(names: str) -> tuple[Study, ...]:
    """The study of an id, all studies of the paper with a letter, or several of these with commas between them."""
    chosen = {id for name in split(names) for id in ids_named(name)}
    return tuple(study for study in studies() if study.id in chosen)


def claims_of(names: str, chosen: Sequence[Study]) -> tuple[Claim, ...]:
    """The claims that a run of `names` speaks about: of a paper all of them, of a study its own."""
    letters = {name.upper() for name in split(names)}
    own = [claim for study in chosen for claim in study.claims]
    return tuple(claim for claim in claims() if claim.id[0] in letters or claim in own)
