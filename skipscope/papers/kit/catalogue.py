"""Studies and claims of the installed papers, by their names. Those of a paper are imported when they are asked for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache
from importlib import import_module

from skipscope.errors import SkipscopeError
from skipscope.papers.kit.claims import Claim
from skipscope.papers.kit.names import ids_named, split
from skipscope.papers.kit.study import Study
from skipscope.registration import papers


def studies() -> tuple[Study, ...]:
    """Paper after paper, each in its own order, in which they are run."""
    return tuple(study for paper in papers() for study in studies_of(paper.letter))


def claims() -> tuple[Claim, ...]:
    """Paper after paper, by number."""
    return tuple(claim for letter in sorted(paper.letter for paper in papers()) for claim in claims_of_paper(letter))


@cache
def studies_of(letter: str) -> tuple[Study, ...]:
    """Of one paper."""
    (paper,) = [paper for paper in papers() if paper.letter == letter]
    found = []
    for name in paper.studies:
        study = import_module(f"{paper.package}.studies.{name}").STUDY
        if study.paper != paper or study.name != name:
            raise SkipscopeError(f"{paper.package}.studies.{name} has the study {study.id}, not {letter}.{name}")
        found.append(study)
    return tuple(found)


@cache
def claims_of_paper(letter: str) -> tuple[Claim, ...]:
    """Of one paper, by number; each is decided by one study."""
    found = [claim for study in studies_of(letter) for claim in study.claims]
    ids = [claim.id for claim in found]
    doubled = sorted({id for id in ids if ids.count(id) > 1})
    if doubled:
        raise SkipscopeError(f"claims that several studies decide, or one study twice: {', '.join(doubled)}")
    return tuple(sorted(found, key=lambda claim: claim.number))


def study_of(claim: Claim) -> Study:
    """The study that decides a claim."""
    return next(study for study in studies_of(claim.letter) if claim in study.claims)


def find(names: str, preset: str = "") -> tuple[Study, ...]:
    """The study of an id, all studies of the paper with a letter, or several of these with commas between them.

    preset: of a paper only the studies that have it. A study that is named itself is there in any case.
    """
    by_name = {name: ids_named(name) for name in split(names)}
    chosen = {id for ids in by_name.values() for id in ids}
    named = {id for name, ids in by_name.items() for id in ids if id.lower() == name.lower()}
    letters = [paper.letter for paper in papers() if any(id.startswith(f"{paper.letter}.") for id in chosen)]
    found = [study for letter in letters for study in studies_of(letter) if study.id in chosen]
    return tuple(study for study in found if not preset or preset in study.presets or study.id in named)


def claims_of(names: str, chosen: Sequence[Study], evidence: Collection[Claim] = ()) -> tuple[Claim, ...]:
    """The claims that a run of `names` speaks about: of a paper all of them, of a study its own.

    evidence: claims for which the run made some; another study may decide them.
    """
    whole = {name.upper() for name in split(names)}  # letters, among others
    own = [*evidence, *(claim for study in chosen for claim in study.claims)]
    letters = sorted({study.paper.letter for study in chosen})
    return tuple(claim for letter in letters for claim in claims_of_paper(letter) if letter in whole or claim in own)
